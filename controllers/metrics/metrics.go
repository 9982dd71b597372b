// Package metrics holds every Prometheus metric that Tranche adds to those of controller-runtime. Metrics that Kueue has too have Kueue's
// names, labels and buckets, so that its dashboards keep working; metrics of Tranche alone begin with tranche_.
//
// There are two kinds. One collector reads the current state (gauges) from the engine at each scrape: nothing is kept up to date in
// between, and deleted objects are no longer reported. Transitions (counters, histograms) are recorded from the changes of quota Workloads
// in the cache, see Recorder. Only the leader reports and records them.
package metrics

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// timeout is how long a scrape waits for the engine.
const timeout = 5 * time.Second

// An Engine provides the state of all queues.
type Engine interface {
	// View runs f on the engine and waits for it, or until the context ends.
	View(ctx context.Context, f func(*admission.Engine)) error
}

// A Replica describes the role of this process among the replicas of the manager.
type Replica struct {
	// Elected is closed when this process leads.
	Elected <-chan struct{}
	// LeaderElection is true if there can be other replicas.
	LeaderElection bool
}

// leads reports whether this process reports metrics.
func (r Replica) leads() bool {
	select {
	case <-r.Elected:
		return true
	default:
		return false
	}
}

// role returns the value of the label replica_role.
func (r Replica) role() string {
	switch {
	case !r.LeaderElection:
		return "standalone"
	case r.leads():
		return "leader"
	}
	return "follower"
}

// A Config configures the metrics.
type Config struct {
	Engine  Engine
	Metrics *Metrics
	// Version is the version of the manager.
	Version string
	// Mode is the mode of the configuration.
	Mode configapi.Mode
}

// Metrics has the counters and histograms of one manager. Its methods may be called from any goroutine.
type Metrics struct {
	replica Replica
	kueueVectors
	stageVectors
	groupVectors
	forecastVectors
	crdVectors
	all catalogue
}

// New returns Metrics that are not registered yet.
func New(replica Replica) *Metrics {
	m := &Metrics{replica: replica}
	m.kueueVectors, m.stageVectors, m.groupVectors = newKueueVectors(&m.all), newStageVectors(&m.all), newGroupVectors(&m.all)
	m.forecastVectors, m.crdVectors = newForecastVectors(&m.all), newCRDVectors(&m.all)
	return m
}

// Collectors returns all counters and histograms.
func (m *Metrics) Collectors() []prometheus.Collector { return m.all }

// forget deletes the series with these labels.
func (m *Metrics) forget(labels prometheus.Labels) {
	for _, c := range m.all {
		if v, ok := c.(vector); ok {
			v.DeletePartialMatch(labels)
		}
	}
}

// buildInfo returns the build information that the Go tool has recorded in this binary.
func buildInfo(version string) prometheus.Collector {
	labels := prometheus.Labels{
		"git_version": version, "git_commit": "", "build_date": "",
		"go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": runtime.GOOS + "/" + runtime.GOARCH,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch setting.Key {
			case "vcs.revision":
				labels["git_commit"] = setting.Value
			case "vcs.time":
				labels["build_date"] = setting.Value
			}
		}
	}
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kueue_build_info",
		Help: "Always 1. The labels describe the build of this binary; git_version is the version of Tranche.",
	}, []string{"git_version", "git_commit", "build_date", "go_version", "compiler", "platform"})
	info.With(labels).Set(1)
	return info
}

// modeInfo returns which engine admits, so that rules can leave out what the other one does.
func modeInfo(mode configapi.Mode) prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tranche_mode_info", Help: "Always 1. The label is the mode of the configuration: in Beside, Kueue admits.",
	}, []string{"mode"})
	info.WithLabelValues(string(mode)).Set(1)
	return info
}

// Admitted counts one admitted stage.
func (m *Metrics) Admitted(clusterQueue string) { m.admissions.WithLabelValues(clusterQueue).Inc() }

// WriteFailed counts one decision that could not be written.
func (m *Metrics) WriteFailed(decision string) { m.writeFailures.WithLabelValues(decision).Inc() }

// Released counts child Jobs that were released.
func (m *Metrics) Released(jobs int) { m.releases.Add(float64(jobs)) }

// Audited counts one comparison of the engine's charges with the objects.
func (m *Metrics) Audited() { m.audits.Inc() }

// LedgerMismatch counts one difference between the engine's charges and the objects.
func (m *Metrics) LedgerMismatch(clusterQueue, flavor, resource string) {
	m.mismatches.WithLabelValues(clusterQueue, flavor, resource).Inc()
}

// Uncharged identifies accelerators that live pods of a namespace ask for beyond what quota is charged for them.
type Uncharged struct{ Namespace, Resource string }

// SetUncharged replaces all accelerators that are not charged.
func (m *Metrics) SetUncharged(all map[Uncharged]float64) {
	m.uncharged.mu.Lock()
	defer m.uncharged.mu.Unlock()
	for u := range m.uncharged.reported {
		if _, isStill := all[u]; !isStill {
			m.uncharged.gauge.DeleteLabelValues(u.Namespace, u.Resource)
		}
	}
	for u, amount := range all {
		m.uncharged.gauge.WithLabelValues(u.Namespace, u.Resource).Set(amount)
	}
	m.uncharged.reported = all
}

// Preempted counts one eviction that was written for a stage in a ClusterQueue, by the reason of the condition Preempted. The victim does
// not name that queue, so the writer of the decision calls this.
func (m *Metrics) Preempted(preemptingClusterQueue, reason string) {
	m.preempted.WithLabelValues(preemptingClusterQueue, reason, m.replica.role()).Inc()
}

// WorkloadsCreated records how long after the creation of an object of a kind (a JobSet, a Job, or the last pod of a gang) its quota Workloads were
// created. If the spec of the object has changed since, the cause of the delay is unknown.
func (m *Metrics) WorkloadsCreated(kind string, object client.Object, at time.Time) {
	if object.GetGeneration() <= 1 {
		observe(m.creationLatency, at.Sub(object.GetCreationTimestamp().Time), kind, m.replica.role())
	}
}

// Ungated records how long after its admission a pod of a gang was ungated.
func (m *Metrics) Ungated(workload *kueue.Workload, at time.Time) {
	if admitted := isTrue(workload, kueue.WorkloadAdmitted); admitted != nil && workload.Status.Admission != nil {
		observe(m.ungating, at.Sub(admitted.LastTransitionTime.Time), apis.PodAdmissionGate, string(workload.Status.Admission.ClusterQueue), "true", m.replica.role())
	}
}

// Noticed counts one notice of a preemption that was given, or withdrawn, to a stage in a ClusterQueue.
func (m *Metrics) Noticed(clusterQueue, action string) {
	m.notices.WithLabelValues(clusterQueue, action).Inc()
}

// DeadlockResolved counts one stage that was evicted to resolve a deadlock.
func (m *Metrics) DeadlockResolved(clusterQueue string) {
	m.deadlockEvictions.WithLabelValues(clusterQueue).Inc()
}

// Decided counts one call of Engine.Decide that decided about an admission, and its duration.
func (m *Metrics) Decided(decisions []admission.Decision, took time.Duration) {
	result := ""
	for _, d := range decisions {
		switch d.(type) {
		case admission.Admit:
			result = "success"
		case admission.Refuse:
			if result == "" {
				result = "inadmissible"
			}
		case admission.Evict, admission.Notice:
		}
	}
	if result != "" {
		m.attempts.WithLabelValues(result, m.replica.role()).Inc()
		m.attemptDuration.WithLabelValues(result, m.replica.role()).Observe(took.Seconds())
	}
}
