// Package history records what happens to the quota Workloads of a simulated cluster.
package history

import (
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A Record is what happens to one quota Workload after a snapshot.
type Record struct {
	// Workload is the quota Workload.
	Workload admission.StageKey
	// JobSet, Stage and Growth say what it stands for. They are empty if it belongs to no JobSet; then Job is the queued Job that it belongs to, if any.
	JobSet, Stage, Job string
	Growth             int
	// IsAdmitted is true if it was admitted before the snapshot, and is neither being evicted nor suspended by its user.
	IsAdmitted bool
	// Starts are the times at which it is admitted. An earlier admission is not among them.
	Starts []time.Time
	// Evictions are in the order of time. One that began before the snapshot is not among them.
	Evictions []Eviction
	// End is its state at the end, and since when it has finished, if it has. IsSuspended is true if it Waits because its user has suspended its JobSet
	// or Job.
	End         End
	Finished    time.Time
	IsSuspended bool
}

// An End is the state of a quota Workload at the end of a simulation.
type End string

const (
	// Waits is pending, or gated.
	Waits End = "Waits"
	// Holds has quota.
	Holds End = "Holds"
	// Finished has ended.
	Finished End = "Finished"
	// Gone no longer exists.
	Gone End = "Gone"
)

// An Eviction takes the quota of a quota Workload back. A suspension by its user does, too.
type Eviction struct {
	At time.Time
	// Reason and Message are those of the condition Evicted, but for a preemption the message is that of the engine. For a suspension they are those of the
	// condition QuotaReserved when the quota is released.
	Reason, Message string
	// Preemptor is the quota Workload that gets the quota, or empty.
	Preemptor admission.StageKey
	// IsUnsafe is true if the JobSet could no longer have finished with the quota that it held, or others could not because of it.
	IsUnsafe bool
	// Ran is how long the quota Workload was admitted before: the work since then is lost. Finished stages are not repeated, so this is the work since
	// the last stage boundary.
	Ran time.Duration
	// Held is the quota that it held during that time.
	Held corev1.ResourceList
}

// A Recorder records the changes of quota Workloads.
type Recorder struct {
	*cluster.Cluster
	records map[admission.StageKey]*Record
	phases  map[admission.StageKey]phase
	// evicted has the last eviction of each quota Workload that the engine decided.
	evicted map[admission.StageKey]admission.Evict
}

// A phase is what matters of the state of a quota Workload. One that its user suspends is evicting until its quota is released.
type phase struct {
	isAdmitted, isEvicting, isFinished bool
	// since is when it was admitted.
	since time.Time
}

func phaseOf(w *kueue.Workload) phase {
	holds, isStopped := quotaworkload.HoldsQuota(w), quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || isSuspended(w)
	return phase{
		isAdmitted: holds && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !isStopped && !cluster.IsFinished(w),
		isEvicting: holds && isStopped && !cluster.IsFinished(w),
		isFinished: cluster.IsFinished(w),
	}
}

// isSuspended reports whether its user has suspended the JobSet or the Job of a quota Workload.
func isSuspended(w *kueue.Workload) bool {
	return quotaworkload.HasGate(w, apis.SuspendedGate)
}

// New returns a Recorder that records the changes of quota Workloads from now on.
func New(cl *cluster.Cluster) *Recorder {
	r := &Recorder{Cluster: cl, records: map[admission.StageKey]*Record{}, phases: map[admission.StageKey]phase{}, evicted: map[admission.StageKey]admission.Evict{}}
	for key, w := range r.Workloads {
		p := phaseOf(w)
		if c := quotaworkload.FindTrue(w, kueue.WorkloadAdmitted); p.isAdmitted {
			p.since = c.LastTransitionTime.Time
		}
		r.phases[key] = p
		r.recordOf(w).IsAdmitted = p.isAdmitted
	}
	observe := r.Observe
	r.Observe = func(event admission.Event) {
		switch event := event.(type) {
		case admission.WorkloadObserved:
			r.record(event.Workload)
		case admission.WorkloadGone:
			delete(r.phases, event.Key)
		}
		observe(event)
	}
	return r
}

// Decided takes a decision of the engine before it is written.
func (r *Recorder) Decided(decision admission.Decision) {
	if d, is := decision.(admission.Evict); is {
		r.evicted[d.Stage] = d
	}
}

// Records returns what happened so far, in the order of namespace and name.
func (r *Recorder) Records() []Record {
	var all []Record
	for _, key := range slices.SortedFunc(maps.Keys(r.records), cluster.CompareKeys) {
		one := *r.records[key]
		switch w := r.Workloads[key]; {
		case w == nil:
			one.End = Gone
		case cluster.IsFinished(w):
			one.End = Finished
		case quotaworkload.HoldsQuota(w):
			one.End = Holds
		default:
			one.End, one.IsSuspended = Waits, isSuspended(w)
		}
		all = append(all, one)
	}
	return all
}

func (r *Recorder) recordOf(w *kueue.Workload) *Record {
	key := cluster.KeyOf(w)
	if r.records[key] == nil {
		r.records[key] = &Record{Workload: key}
		if js := w.Labels[apis.JobSetLabel]; js != "" {
			*r.records[key] = Record{Workload: key, JobSet: js, Stage: w.Labels[apis.StageLabel], Growth: jobsetstate.GrowthNumber(w)}
		} else if owner := metav1.GetControllerOf(w); owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String() {
			*r.records[key] = Record{Workload: key, Job: owner.Name, Growth: jobsetstate.GrowthNumber(w)}
		}
	}
	return r.records[key]
}

// record compares a quota Workload with its previous version.
func (r *Recorder) record(w *kueue.Workload) {
	key := cluster.KeyOf(w)
	before, now, h := r.phases[key], phaseOf(w), r.recordOf(w)
	now.since = before.since
	if now.isAdmitted && !before.isAdmitted {
		now.since = r.Time()
		h.Starts = append(h.Starts, r.Time())
	}
	if now.isEvicting && !before.isEvicting {
		h.Evictions = append(h.Evictions, r.evictionOf(w, before))
	}
	switch {
	case !now.isFinished:
		h.Finished = time.Time{}
	case !before.isFinished:
		h.Finished = r.Time()
	}
	r.phases[key] = now
}

// evictionOf describes an eviction that has begun.
func (r *Recorder) evictionOf(w *kueue.Workload, before phase) Eviction {
	c := quotaworkload.FindTrue(w, kueue.WorkloadEvicted)
	if c == nil {
		status := workloadstatus.Suspended(w, r.Time())
		c = apimeta.FindStatusCondition(status.Conditions, kueue.WorkloadQuotaReserved)
	}
	e := Eviction{At: r.Time(), Reason: c.Reason, Message: c.Message, Held: heldBy(w)}
	if before.isAdmitted {
		e.Ran = max(0, r.Time().Sub(before.since))
	}
	d, isDecided := r.evicted[cluster.KeyOf(w)]
	switch {
	case isDecided && d.Preemption != nil && strings.HasPrefix(c.Message, quotaworkload.PreemptedFor+string(d.Preemption.PreemptorUID)+","):
		e.Preemptor, e.Message, e.IsUnsafe = d.Preemption.Preemptor, d.Message, d.ResolvesDeadlock
	case isDecided && d.Preemption == nil && d.Message == c.Message:
		e.IsUnsafe = d.ResolvesDeadlock
	}
	return e
}

// heldBy returns the quota that a quota Workload holds, added up over its flavors.
func heldBy(w *kueue.Workload) corev1.ResourceList {
	held := corev1.ResourceList{}
	for fr, amount := range cluster.Usage(w) {
		sum := held[fr.Resource]
		sum.Add(amount)
		held[fr.Resource] = sum
	}
	return held
}
