package dashboard

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/quota"
)

// SampleInterval is how often Sample should be called, and maxSamples how many samples are kept: those of four hours.
const (
	SampleInterval = time.Minute
	maxSamples     = 240
)

// A history has the usage of each ClusterQueue at the last samples. It is in memory only.
type history struct {
	times  []time.Time
	series map[string]*series
}

// A series has the samples of one ClusterQueue, the last of which belong to the last times. Its first samples are missing if it did not exist.
type series struct {
	pending []float32
	used    map[quota.FlavorResource][]float32
}

// Sample records the usage of each ClusterQueue.
func (m *Model) Sample(now time.Time) {
	h := &m.history
	h.times = cutHead(append(h.times, now))
	for name, q := range m.clusterQueues {
		if !q.exists {
			continue
		}
		s := h.series[name]
		if s == nil {
			s = &series{}
			h.series[name] = s
		}
		s.pending = cutHead(append(s.pending, float32(q.waiting)))
		used := map[quota.FlavorResource][]float32{}
		for _, l := range m.limitsOf(q) {
			used[l.FlavorResource] = cutHead(append(s.used[l.FlavorResource], float32(units(l.Resource, q.usageOf(l.FlavorResource).reserved))))
		}
		s.used = used
	}
}

// cutHead drops the oldest samples.
func cutHead[T any](all []T) []T {
	if len(all) > maxSamples {
		return slices.Clone(all[len(all)-maxSamples:])
	}
	return all
}

// A HistoryAnswer is the past usage of a ClusterQueue, up to now. A value is null before the ClusterQueue was first observed.
type HistoryAnswer struct {
	// Times are in seconds since 1970.
	Times   []int64      `json:"times"`
	Pending []*float64   `json:"pending"`
	Used    []UsedAnswer `json:"used"`
}

// A UsedAnswer is the past usage of one flavor and resource.
type UsedAnswer struct {
	Flavor   string              `json:"flavor"`
	Resource corev1.ResourceName `json:"resource"`
	Values   []*float64          `json:"values"`
}

// historyOf returns the samples of a ClusterQueue and its current values.
func (m *Model) historyOf(q *clusterQueue, now time.Time) HistoryAnswer {
	h := &m.history
	s := h.series[q.name]
	if s == nil {
		s = &series{}
	}
	answer := HistoryAnswer{Times: []int64{}, Used: []UsedAnswer{}}
	for _, t := range h.times {
		answer.Times = append(answer.Times, t.Unix())
	}
	answer.Times = append(answer.Times, now.Unix())
	answer.Pending = h.values(s.pending, float64(q.waiting))
	for _, l := range m.limitsOf(q) {
		answer.Used = append(answer.Used, UsedAnswer{
			Flavor: string(l.Flavor), Resource: l.Resource, Values: h.values(s.used[l.FlavorResource], units(l.Resource, q.usageOf(l.FlavorResource).reserved)),
		})
	}
	return answer
}

// values returns as many values as there are samples, and the current one.
func (h *history) values(samples []float32, current float64) []*float64 {
	values := make([]*float64, len(h.times)-min(len(samples), len(h.times)), len(h.times)+1)
	for _, v := range samples {
		values = append(values, new(float64(v)))
	}
	return append(values, &current)
}
