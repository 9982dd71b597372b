package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// A Shadow has the gauges of tranche shadow. Its methods may be called from any goroutine.
type Shadow struct {
	held, idle, replayed, jobSets, starts, startError *prometheus.GaugeVec
	gain, unsafe, reported                            prometheus.Gauge
	all                                               []prometheus.Collector
}

// NewShadow returns gauges that are not registered yet.
func NewShadow() *Shadow {
	s := &Shadow{}
	vector := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		s.all = append(s.all, v)
		return v
	}
	single := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		s.all = append(s.all, g)
		return g
	}
	s.held = vector("tranche_shadow_held_seconds", "Quota that JobSets held since the observation began, in resource units times seconds.", "resource")
	s.idle = vector("tranche_shadow_idle_seconds", "The part of it that was idle. Cause is LaterStage, NotStarted, NotReady or Ended.", "resource", "cause")
	s.replayed = vector("tranche_shadow_replayed_held_seconds",
		"Quota that JobSets hold when the same arrivals are replayed. Policy is Whole, as Kueue admits, or Staged.", "resource", "policy")
	s.jobSets = vector("tranche_shadow_jobsets", "Number of observed JobSets. State is pending, running or finished.", "state")
	s.starts = vector("tranche_shadow_starts", "Number of JobSets that start earlier, or later, in the replay in stages than in that as a whole.", "change")
	s.startError = vector("tranche_shadow_start_error_seconds",
		"How far the starts in the replay as a whole are from what happened. Statistic is median, p95 or max.", "statistic")
	s.gain = single("tranche_shadow_start_gain_seconds", "By how much JobSets start earlier in stages, less by how much others start later, in sum.")
	s.unsafe = single("tranche_shadow_unsafe_stages", "Number of stages that fitted in the replay and waited, because admitting them could have led to a deadlock.")
	s.reported = single("tranche_shadow_report_timestamp_seconds", "When the observations were replayed last, in seconds since 1970.")
	return s
}

// Collectors returns all gauges.
func (s *Shadow) Collectors() []prometheus.Collector { return s.all }

// A ShadowReport has the values of the gauges.
type ShadowReport struct {
	// Resources are by name.
	Resources map[string]ShadowResource
	// JobSets is by state, Starts by change, and StartError by statistic.
	JobSets, Starts, StartError map[string]float64
	Gain, Unsafe, Reported      float64
}

// A ShadowResource is what was held of a resource, with the idle part by cause, and what is held in the replays, by policy.
type ShadowResource struct {
	Held           float64
	Idle, Replayed map[string]float64
}

// Set sets all gauges.
func (s *Shadow) Set(r *ShadowReport) {
	for name, resource := range r.Resources {
		s.held.WithLabelValues(name).Set(resource.Held)
		for cause, seconds := range resource.Idle {
			s.idle.WithLabelValues(name, cause).Set(seconds)
		}
		for policy, seconds := range resource.Replayed {
			s.replayed.WithLabelValues(name, policy).Set(seconds)
		}
	}
	for vector, values := range map[*prometheus.GaugeVec]map[string]float64{s.jobSets: r.JobSets, s.starts: r.Starts, s.startError: r.StartError} {
		for label, value := range values {
			vector.WithLabelValues(label).Set(value)
		}
	}
	s.gain.Set(r.Gain)
	s.unsafe.Set(r.Unsafe)
	s.reported.Set(r.Reported)
}
