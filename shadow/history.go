package shadow

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
)

// A jobSet is what happened to one JobSet.
type jobSet struct {
	// object is the JobSet as it was observed first. It is nil if only its Jobs or quota Workloads were observed.
	object  *jobsetapi.JobSet
	version int64
	// finished is when it succeeded or failed, and deleted when it was deleted before.
	finished, deleted time.Time
	hasFailed         bool
	jobs              map[replay.Job]*jobTimes
	reservations      []*reservations
	// jobUIDs and workloadUIDs are those under which the Recorder has them.
	jobUIDs, workloadUIDs []types.UID
}

// end notes that a JobSet was deleted before it has finished.
func (js *jobSet) end(at time.Time) {
	if js.finished.IsZero() && js.deleted.IsZero() {
		js.deleted = at
	}
}

func (js *jobSet) endedAt() time.Time {
	if js.finished.IsZero() {
		return js.deleted
	}
	return js.finished
}

// startedAt returns when a JobSet was admitted first, or its first Job started if it has no quota Workload. It is zero if it never was.
func (js *jobSet) startedAt() time.Time {
	var first time.Time
	note := func(at time.Time) {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	for _, held := range js.reservations {
		note(held.admitted)
	}
	if !first.IsZero() {
		return first
	}
	for _, job := range js.jobs {
		for i := range job.runs {
			note(job.runs[i].started)
		}
	}
	return first
}

// jobTimes is what happened to one child Job. A Job that was suspended and resumed has several runs.
type jobTimes struct {
	version int64
	pods    int32
	runs    []jobRun
}

// A jobRun is one time that a Job ran.
type jobRun struct {
	started, ready, ended time.Time
	// isReady is true if it was ready when it was observed first: then it is not known since when.
	isReady, hasSucceeded, hasFailed bool
}

// maxDelay is how long after the start of a Job its first observation still shows when it was ready.
const maxDelay = 2 * time.Second

// podsOf returns how many pods of a Job exist at once.
func podsOf(spec *batchv1.JobSpec) int32 {
	pods := int32(1)
	if spec.Parallelism != nil {
		pods = *spec.Parallelism
	}
	if spec.Completions != nil {
		pods = min(pods, *spec.Completions)
	}
	return pods
}

// observe compares a Job with its last version.
func (j *jobTimes) observe(o *batchv1.Job, at time.Time) {
	status := &o.Status
	if status.StartTime == nil {
		j.end(at)
		return
	}
	isFirst := false
	if len(j.runs) == 0 || j.runs[len(j.runs)-1].started.Before(status.StartTime.Time) {
		j.end(status.StartTime.Time)
		j.runs = append(j.runs, jobRun{started: status.StartTime.Time})
		isFirst = true
	}
	run := &j.runs[len(j.runs)-1]
	ready := status.Succeeded
	if status.Ready != nil {
		ready += *status.Ready
	}
	if run.ready.IsZero() && !run.isReady && ready >= j.pods {
		if isFirst && at.Sub(run.started) > maxDelay {
			run.isReady = true
		} else {
			run.ready = at
		}
	}
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Status != corev1.ConditionTrue || c.Type != batchv1.JobComplete && c.Type != batchv1.JobFailed {
			continue
		}
		run.ended = c.LastTransitionTime.Time
		if status.CompletionTime != nil {
			run.ended = status.CompletionTime.Time
		}
		run.ended = earliest(at, run.ended)
		run.hasSucceeded, run.hasFailed = c.Type == batchv1.JobComplete, c.Type == batchv1.JobFailed
		if run.ready.After(run.ended) {
			run.ready, run.isReady = time.Time{}, true
		}
	}
}

// end ends the last run of a Job that was stopped.
func (j *jobTimes) end(at time.Time) {
	if len(j.runs) > 0 && j.runs[len(j.runs)-1].ended.IsZero() {
		j.runs[len(j.runs)-1].ended = at
	}
}

// reservations are the quota that a quota Workload held.
type reservations struct {
	version int64
	// admitted is when it was admitted first.
	admitted time.Time
	// releases is true if the quota of pods that have succeeded is released.
	releases bool
	all      []reservation
}

// A reservation is quota that was held for some time. It has not ended if to is zero.
type reservation struct {
	from, to time.Time
	podSets  []kueue.PodSetAssignment
}

// observe compares a quota Workload with its last version.
func (h *reservations) observe(o *kueue.Workload, at time.Time) {
	find := func(name string) *metav1.Condition { return apimeta.FindStatusCondition(o.Status.Conditions, name) }
	isTrue := func(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue }
	reserved := find(kueue.WorkloadQuotaReserved)
	if admitted := find(kueue.WorkloadAdmitted); isTrue(admitted) && h.admitted.IsZero() {
		h.admitted = admitted.LastTransitionTime.Time
	}
	h.releases = h.releases || len(o.Status.ReclaimablePods) > 0
	switch {
	case isTrue(reserved) && o.Status.Admission != nil:
		from := reserved.LastTransitionTime.Time
		if len(h.all) == 0 || h.all[len(h.all)-1].from.Before(from) {
			h.end(from)
			h.all = append(h.all, reservation{from: from, podSets: o.Status.Admission.PodSetAssignments})
		}
	case reserved != nil && reserved.Status == metav1.ConditionFalse:
		h.end(reserved.LastTransitionTime.Time)
	default:
		h.end(at)
	}
	if finished := find(kueue.WorkloadFinished); isTrue(finished) {
		h.end(earliest(at, finished.LastTransitionTime.Time))
	}
}

// end ends the last reservation.
func (h *reservations) end(at time.Time) {
	if len(h.all) > 0 && h.all[len(h.all)-1].to.IsZero() {
		h.all[len(h.all)-1].to = at
	}
}

// An otherJob is a job of another kind, with a quota Workload.
type otherJob struct {
	reservations

	object            *kueue.Workload
	finished, deleted time.Time
}

func (o *otherJob) endedAt() time.Time {
	if o.finished.IsZero() {
		return o.deleted
	}
	return o.finished
}
