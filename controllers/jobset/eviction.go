package jobset

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	shapes "github.com/tranche-dev/tranche/admission/gang"
	"github.com/tranche-dev/tranche/admission/life"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
)

// An eviction takes a whole JobSet back to the boundary of its last succeeded stage. It begins when the quota Workload of any stage
// that holds quota says Evicted=True, and ends when no stage that has not succeeded holds quota:
//
//	init(finished)  launcher(held, Evicted)  train(held)
//	   every stage that holds says Evicted; train, opened by launcher being Ready, is closed
//	   their Jobs are held, those with progress are made anew once their pods are over
//	   when no pod of any of them is left: train gives its quota back, then launcher
//	init(finished)  launcher(waiting)        train(closed)
//
// Each step is derived anew from the objects, so it goes on wherever it was cut off.
type eviction struct {
	// cause is the stage that was evicted first, nil if the JobSet is not evicted.
	cause *stage
	// complete tells that no pod of the evicted stages is left, and nothing else is to be done before they give their quota back.
	complete bool
}

// evict is what is told to a quota Workload whose JobSet is evicted because of another stage.
type evict struct {
	workload *kueue.Workload
	why      life.Eviction
}

// markEvicted finds out which stages have to go back, and returns the one for which they have to, or nil if none has to. A stage that
// has succeeded does not go back: it finishes, whatever was decided about it meanwhile. The others go all the same, since it was the
// JobSet that was to go.
func markEvicted(stages []stage) *stage {
	var cause *stage
	for i := range stages {
		if st := &stages[i]; st.isEvicted() && (cause == nil || st.evictedAt().Before(cause.evictedAt())) {
			cause = st
		}
	}
	goesBack := func(st stage) bool {
		return st.workload != nil && st.holdsQuota() && !life.IsTrue(st.workload, kueue.WorkloadFinished) && !st.succeeded()
	}
	if cause == nil || !slices.ContainsFunc(stages, goesBack) {
		return nil
	}
	for i := range stages {
		st := &stages[i]
		st.jobSetEvicted, st.goesBack = true, goesBack(*st)
	}
	return cause
}

func (st *stage) isEvicted() bool {
	return st.workload != nil && st.holdsQuota() && life.IsTrue(st.workload, kueue.WorkloadEvicted) &&
		!life.IsTrue(st.workload, kueue.WorkloadFinished)
}

func (st *stage) evictedAt() *metav1.Time {
	return &apimeta.FindStatusCondition(st.workload.Status.Conditions, kueue.WorkloadEvicted).LastTransitionTime
}

// isDeactivated tells whether the stage was evicted because its quota Workload is not active. One that is deactivated before it
// holds anything does not keep the stages before it from running.
func (st *stage) isDeactivated() bool {
	return st.workload != nil && life.IsShutOut(st.workload)
}

// goBack brings one evicted stage closer to its boundary.
func (w *wanted) goBack(s *seen, st *stage, e *eviction) {
	if after := st.adjusted(s); after != nil {
		w.change = append(w.change, change{st.workload, after, st.isGated() && st.open})
	}
	if !life.IsTrue(st.workload, kueue.WorkloadEvicted) {
		w.evict = append(w.evict, evict{st.workload, life.EvictionOf(e.cause.workload)})
		e.complete = false
	}
	w.forgetReadiness(st)
	e.complete = w.stop(s, st) && e.complete
}

// stop holds the Jobs of a stage again, and makes those anew that would not start from their beginning. It tells whether nothing of
// them runs and nothing is left to be done to them.
func (w *wanted) stop(s *seen, st *stage) bool {
	stopped := !st.hasPods
	for _, job := range st.jobs {
		switch {
		case childjob.IsEnding(job):
			stopped = false
		case childjob.IsNoticed(job):
			w.hold = append(w.hold, job)
		case childjob.HasPods(job):
		case childjob.HasProgress(job) || childjob.IsFinished(job, batchv1.JobComplete) && restartsWhole(s.jobSet, st.replicatedJobOf(job)):
			w.remake = append(w.remake, job)
			stopped = false
		case childjob.IsHeld(job) && !childjob.IsRestored(job):
			w.restore = append(w.restore, job)
			stopped = false
		}
	}
	return stopped
}

// giveBackEvicted lets the evicted stages give their quota back, the last first: so none is admitted before those that wait for it
// are closed and hold nothing.
func (w *wanted) giveBackEvicted(stages []stage) {
	for i := range slices.Backward(stages) {
		if st := &stages[i]; st.goesBack {
			w.giveBack = append(w.giveBack, st.workload)
		}
	}
}

// restartsWhole tells whether a Job that has succeeded belongs to a gang with others, which has to run from its beginning.
func restartsWhole(js *jobsetapi.JobSet, replicatedJob string) bool {
	return shapes.Whole(js, replicatedJob)
}
