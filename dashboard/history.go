package dashboard

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/quota"
)

// SampleInterval is how often Sample should be called. Each sample is kept for fineSpan, and one in each coarseInterval for historySpan.
const (
	SampleInterval = time.Minute
	fineSpan       = 4 * time.Hour
	coarseInterval = 10 * time.Minute
	historySpan    = 24 * time.Hour
)

// A history has the usage of each ClusterQueue, and of each accelerator, at the last samples. It is in memory only.
type history struct {
	times  []time.Time
	series map[string]*series
	// accelerators have a sample for each part of their use.
	accelerators map[quota.FlavorResource]*acceleratorUse[[]float32]
}

// A series has the samples of one ClusterQueue, the last of which belong to the last times. Its first samples are missing if it did not exist.
type series struct {
	pending []float32
	used    map[quota.FlavorResource][]float32
}

// Sample records the usage of each ClusterQueue, and of each accelerator.
func (m *Model) Sample(now time.Time) {
	h := &m.history
	h.times = append(h.times, now)
	keep := h.kept(now)
	add := func(samples []float32, v float64) []float32 { return thin(append(samples, float32(v)), keep) }
	for name, q := range m.clusterQueues {
		if !q.exists {
			continue
		}
		s := h.series[name]
		if s == nil {
			s = &series{}
			h.series[name] = s
		}
		s.pending = add(s.pending, float64(q.waiting))
		used := map[quota.FlavorResource][]float32{}
		for _, l := range m.limitsOf(q) {
			used[l.FlavorResource] = add(s.used[l.FlavorResource], units(l.Resource, q.usageOf(l.FlavorResource).reserved))
		}
		s.used = used
	}
	accelerators := map[quota.FlavorResource]*acceleratorUse[[]float32]{}
	for fr, use := range m.acceleratorUses() {
		before := h.accelerators[fr]
		if before == nil {
			before = &acceleratorUse[[]float32]{}
		}
		after := &acceleratorUse[[]float32]{}
		for i := range use {
			after[i] = add(before[i], use[i])
		}
		accelerators[fr] = after
	}
	h.accelerators = accelerators
	h.times = thin(h.times, keep)
}

// kept reports which of the samples are still kept.
func (h *history) kept(now time.Time) []bool {
	keep := make([]bool, len(h.times))
	var last time.Time
	for i, t := range h.times {
		switch age := now.Sub(t); {
		case age < fineSpan:
			keep[i] = true
		case age <= historySpan && t.Sub(last) >= coarseInterval:
			keep[i], last = true, t
		}
	}
	return keep
}

// thin removes samples that are not kept. The last of the samples belong to the last of keep.
func thin[T any](samples []T, keep []bool) []T {
	keep = keep[len(keep)-len(samples):]
	n := 0
	for i, s := range samples {
		if keep[i] {
			samples[n] = s
			n++
		}
	}
	return samples[:n]
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
