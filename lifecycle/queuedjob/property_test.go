package queuedjob_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A world has one Job, its quota Workload and its pods, and plays the API server, the Job controller, the engine and users.
type world struct {
	*rapid.T
	job *batchv1.Job
	// shown is the Job as the cache of the manager has it.
	shown *batchv1.Job
	// seen is the Job as the Job controller has read it for a sync that it has not ended, or nil.
	seen     *batchv1.Job
	workload *kueue.Workload
	// growths of the Job, if it is elastic.
	growths []*kueue.Workload
	// active and terminating pods.
	active, terminating int32
	// partial is true if the engine may admit the Job with fewer pods than it asks for.
	partial bool
	serial  int
}

// errCut ends a Step, as a crash does.
var errCut = errors.New("the manager has crashed")

// TestNextInAnyOrder checks that pods live only on held quota, and that the Job finishes once its users leave it alone.
func TestNextInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, job: newJob()}
		w.job.Spec.Parallelism, w.job.Spec.Completions = new(int32(3)), new(int32(4))
		w.partial = rapid.Bool().Draw(t, "partial")
		if w.partial {
			w.job.Annotations = map[string]string{apis.MinParallelismAnnotation: "1"}
		}
		actions := map[string]func(*rapid.T){
			"reconcile": func(t *rapid.T) { w.reconcile(rapid.IntRange(0, 3).Draw(t, "writes")) },
			"stale":     func(*rapid.T) { w.reconcileWith(w.shown, 9) },
			"cache":     func(*rapid.T) { w.shown = w.job.DeepCopy() },
			"job":       func(*rapid.T) { w.controlJob() },
			"read":      func(*rapid.T) { w.seen = cmp.Or(w.seen, w.job) },
			"pod":       func(*rapid.T) { w.terminate() },
			"succeed":   func(*rapid.T) { w.succeed() },
			"admit":     func(*rapid.T) { w.admit() },
			"evict":     func(*rapid.T) { w.evict() },
			"suspend":   func(*rapid.T) { w.user(true) },
			"resume":    func(*rapid.T) { w.user(false) },
			"move": func(t *rapid.T) {
				if *w.job.Spec.Suspend {
					w.putJob(func(j *batchv1.Job) {
						j.Labels = maps.Clone(j.Labels)
						j.Labels[apis.QueueLabel] = rapid.SampledFrom([]string{"queue", "other"}).Draw(t, "queue")
					})
				}
			},
			"delete": func(*rapid.T) {
				if w.workload != nil && w.workload.DeletionTimestamp == nil {
					w.workload.DeletionTimestamp = new(metav1.NewTime(start))
				}
			},
			"": func(*rapid.T) { w.check() },
		}
		t.Repeat(actions)
		w.finish()
	})
}

// finish lets the Job run to its end.
func (w *world) finish() {
	w.user(false)
	for range 200 {
		w.reconcile(9)
		w.check()
		w.controlJob()
		w.terminate()
		w.admit()
		w.admitGrowths()
		w.succeed()
		w.check()
	}
	// A quota Workload that was deleted as the Job ended is not made again.
	if !childjob.IsFinished(w.job, batchv1.JobComplete) || w.workload != nil && !quotaworkload.IsTrue(w.workload, kueue.WorkloadFinished) || len(w.growths) > 0 {
		w.Fatalf("the Job does not finish: %+v, quota Workload %+v, growths %+v", w.job, w.workload, w.growths)
	}
}

// check fails if pods live without quota.
func (w *world) check() {
	if w.active+w.terminating > 0 && (w.workload == nil || !quotaworkload.HoldsQuota(w.workload) || quotaworkload.IsTrue(w.workload, kueue.WorkloadFinished)) {
		w.Fatalf("%d pods without quota", w.active+w.terminating)
	}
	if !*w.job.Spec.Suspend && w.workload != nil && quotaworkload.HoldsQuota(w.workload) && string(w.workload.Spec.QueueName) != w.job.Labels[apis.QueueLabel] {
		w.Fatal("the Job runs on quota of another queue")
	}
	// The Job controller of this test replaces pods early: the manager must not rely on the field alone.
	if pods := w.active + w.terminating; pods > 0 && pods > w.held() {
		w.Fatalf("%d pods on quota for %d", pods, w.held())
	}
}

// reconcile takes the next step from the current objects, and crashes after so many writes.
func (w *world) reconcile(writes int) { w.reconcileWith(w.job, writes) }

func (w *world) reconcileWith(shown *batchv1.Job, writes int) {
	if shown == nil {
		return
	}
	step := queuedjob.Next(w.cached(shown))
	if step.NeedsLive() {
		step = queuedjob.Next(w.live())
	}
	w.write(step, writes)
}

// live returns what the manager reads past its cache.
func (w *world) live() *queuedjob.Snapshot {
	s := w.cached(w.job)
	for range w.active + w.terminating {
		s.Owned.Pods = append(s.Owned.Pods, &corev1.Pod{})
	}
	return s
}

func (w *world) write(step *queuedjob.Step, writes int) {
	do := func(f func()) func(*queuedjob.Step) error {
		return func(*queuedjob.Step) error {
			if writes--; writes < 0 {
				return errCut
			}
			f()
			return nil
		}
	}
	_ = step.Write(&queuedjob.Writer{
		Quota: func(all []quotastep.Write) error {
			for i := range all {
				if err := do(func() { w.writeQuota(&all[i]) })(step); err != nil {
					return err
				}
			}
			return nil
		},
		Job: do(func() { w.writeJob(step.Job) }),
		Report: func(*queuedjob.Step) error {
			if step.Refusal+step.Complaint != "" {
				w.Fatalf("refusal %q, complaint %q", step.Refusal, step.Complaint)
			}
			return nil
		},
	})
}

// writeJob writes the Job. The API server refuses changes of a Job that is not as it was read.
func (w *world) writeJob(write *queuedjob.JobWrite) {
	put := w.putJob
	switch {
	case !write.IsLocked():
		w.putJob(func(j *batchv1.Job) { j.Spec.Suspend = write.After.Spec.Suspend })
		return
	case write.Before.ResourceVersion != w.job.ResourceVersion:
		return
	case (write.Kind == queuedjob.Restore || write.Kind == queuedjob.Release) && w.job.Status.StartTime != nil:
		w.Fatal("the pod template of a Job with a start time is changed")
	case write.Kind == queuedjob.Resize:
		put = w.resizeJob
	}
	put(func(j *batchv1.Job) { *j = *write.After.DeepCopy() })
}

func (w *world) writeQuota(write *quotastep.Write) {
	switch read := write.Workload; {
	case write.Kind == quotastep.Create:
		w.create(read)
	case write.Kind == quotastep.Delete:
		w.delete(read)
	case w.workload == nil:
	case write.Kind == quotastep.RemoveFinalizer:
		w.removeFinalizer()
	case write.Kind == quotastep.Reopen:
		w.workload.DeletionTimestamp = new(metav1.NewTime(start))
	default:
		w.replace(read, func(current *kueue.Workload) *kueue.Workload { return write.Result(current, start) })
	}
}

func (w *world) create(workload *kueue.Workload) {
	w.serial++
	created := workload.DeepCopy()
	created.UID, created.CreationTimestamp = types.UID(strconv.Itoa(w.serial)), metav1.NewTime(start)
	if created.Labels[apis.GrowthLabel] != "" {
		w.growths = append(w.growths, created)
		return
	}
	w.workload = created
}

func (w *world) putJob(change func(*batchv1.Job)) {
	w.serial++
	w.job = w.job.DeepCopy()
	change(w.job)
	w.job.ResourceVersion = string(rune(w.serial))
}

func (w *world) removeFinalizer() {
	if w.workload.Finalizers = nil; w.workload.DeletionTimestamp != nil {
		w.workload = nil
	}
}

// admit plays the engine.
func (w *world) admit() {
	l := w.workload
	if l == nil || l.DeletionTimestamp != nil || quotaworkload.HoldsQuota(l) || len(quotaworkload.Gates(l)) > 0 || quotaworkload.IsTrue(l, kueue.WorkloadFinished) {
		return
	}
	admission := admission(l)
	for _, r := range l.Status.ReclaimablePods {
		*admission.PodSetAssignments[0].Count -= r.Count
	}
	if count := admission.PodSetAssignments[0].Count; w.partial && l.Spec.PodSets[0].MinCount != nil {
		*count = max(1, *count-int32(w.serial%3))
	}
	w.workload = workloadstatus.Merge(l, new(workloadstatus.Admitted(l, admission, start)))
}

func (w *world) evict() {
	if l := w.workload; l != nil && quotaworkload.HoldsQuota(l) && !quotaworkload.IsTrue(l, kueue.WorkloadFinished) {
		w.workload = evicted(l)
	}
}

// user does what the policies make of a user's write of spec.suspend. A user who resumes a Job also removes the annotation.
func (w *world) user(suspends bool) {
	isSuspended := *w.job.Spec.Suspend
	w.putJob(func(j *batchv1.Job) {
		switch {
		case suspends && !isSuspended:
			if !childjob.IsNoticed(j) {
				metav1.SetMetaDataAnnotation(&j.ObjectMeta, apis.UnnoticedAnnotation, "true")
			}
			j.Spec.Suspend = new(true)
			metav1.SetMetaDataAnnotation(&j.ObjectMeta, apis.SuspendedAnnotation, "true")
		case !suspends:
			delete(j.Annotations, apis.SuspendedAnnotation)
		}
	})
}

// controlJob plays the Job controller: it acts on the Job as it has read it, and then writes the status, unless the Job has changed since.
func (w *world) controlJob() {
	seen := w.seen
	if w.seen = nil; seen == nil {
		seen = w.job
	}
	if childjob.IsFinished(w.job, batchv1.JobComplete) {
		return
	}
	isSuspended, isComplete := *seen.Spec.Suspend, w.job.Status.Succeeded >= *seen.Spec.Completions
	switch {
	case isSuspended:
		w.terminating, w.active = w.terminating+w.active, 0
	case !isComplete:
		active := max(0, min(*seen.Spec.Parallelism, *seen.Spec.Completions-w.job.Status.Succeeded))
		w.terminating, w.active = w.terminating+max(0, w.active-active), active
	case w.active > 0:
		w.terminating, w.active = w.terminating+w.active, 0
	}
	if seen.ResourceVersion == w.job.ResourceVersion {
		w.putJob(w.writeStatus)
	}
}

func (w *world) writeStatus(j *batchv1.Job) {
	j.Status.Active, j.Status.Terminating, j.Status.Ready = w.active, new(w.terminating), new(w.active)
	switch {
	case *j.Spec.Suspend:
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
		return
	case j.Status.StartTime == nil:
		j.Status.StartTime = new(metav1.NewTime(start))
	}
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionFalse}}
	if j.Status.Succeeded >= *j.Spec.Completions {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue})
	}
}

func (w *world) terminate() { w.terminating = max(0, w.terminating-1) }

// succeed lets a pod succeed.
func (w *world) succeed() {
	if w.active == 0 {
		return
	}
	w.active--
	w.putJob(func(j *batchv1.Job) {
		j.Status.Succeeded++
		if childjob.IsIndexed(&j.Spec) {
			j.Status.CompletedIndexes = fmt.Sprintf("0-%d", j.Status.Succeeded-1)
		}
	})
}

// afterOf returns the Job after a write of a kind, or nil if the Step has no such write.
func afterOf(w *queuedjob.Step, kind queuedjob.JobWriteKind) *batchv1.Job {
	if w.Job == nil || w.Job.Kind != kind {
		return nil
	}
	return w.Job.After
}

// parts names the parts of a Step that are not empty.
func parts(w *queuedjob.Step) string {
	var all []string
	note := func(name string) func(*queuedjob.Step) error {
		return func(*queuedjob.Step) error { all = append(all, name); return nil }
	}
	_ = w.Write(&queuedjob.Writer{
		Job: func(w *queuedjob.Step) error { return note(string(w.Job.Kind))(w) }, Ungate: note("ungate"), EndPods: note("end-pods"),
		Report: note("report"), DeleteExpired: note("delete-expired"),
		Quota: func(writes []quotastep.Write) error {
			for i := range writes {
				all = append(all, writes[i].Kind.String())
			}
			return nil
		},
	})
	return strings.Join(all, " ")
}
