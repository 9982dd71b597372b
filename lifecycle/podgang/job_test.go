package podgang_test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// newJob adds a Job of the gang, and makes it the controller of some pods.
func (w *world) newJob(uid types.UID, pods ...*corev1.Pod) *batchv1.Job {
	n := int32(len(pods))
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: batchv1.JobSpec{Parallelism: &n, Completions: &n}}
	job.Spec.Template.Labels = map[string]string{apis.QueueLabel: "main"}
	w.jobs = append(w.jobs, job)
	owned(pods, uid)
	return job
}

// complete records that a Job is complete.
func (w *world) complete(job *batchv1.Job) {
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	job.Status.CompletionTime = new(metav1.NewTime(w.now))
}

// evictAll preempts all that holds quota. All pods terminate, and disappear.
func (w *world) evictAll() {
	for _, x := range w.workloads {
		if quotaworkload.HoldsQuota(x) {
			w.preempt(x)
		}
	}
	w.settle()
	w.pods = nil
	w.settle()
}

// recreate creates pods of a Job.
func (w *world) recreate(pods int, uid types.UID) {
	for range pods {
		owned([]*corev1.Pod{w.add(1)}, uid)
	}
	w.now = w.now.Add(backoff)
	w.settle()
}

// TestSucceededWhileEvicted: pods that succeed while their eviction deletes them count as far as their Job counts them, also if the manager never reads
// them as succeeded.
func TestSucceededWhileEvicted(t *testing.T) {
	groups := map[string]func(t *testing.T) *world{
		"a group of Kueue": func(t *testing.T) *world {
			t.Helper()
			w := newWorld(t, podgroup.Ref{Kind: podgroup.Kueue, Namespace: "ml", Name: "train"})
			w.settings[apis.PodGroupTotalCountAnnotation] = "3"
			return w
		},
		"annotations":     func(t *testing.T) *world { t.Helper(); return newGang(t, 0, "min-available", "3") },
		"a gang in parts": func(t *testing.T) *world { t.Helper(); return newGang(t, 0, "min-available", "3", "mode", "NonStrict") },
		"a PodGroup":      func(t *testing.T) *world { t.Helper(); return newGroup(t, 3) },
	}
	for name, group := range groups {
		t.Run(name+", one Job", func(t *testing.T) {
			w := group(t)
			job := w.newJob("a", w.add(1), w.add(1), w.add(1))
			w.startTogether("rrr")
			w.evictAll()
			w.recreate(2, "a")
			w.expectPods("gg")
			job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"pod-01"}}
			w.startTogether("rr")
			job.Status.Succeeded, job.Status.UncountedTerminatedPods = 1, nil
			w.finish("ss")
		})
		t.Run(name+", two Jobs", func(t *testing.T) {
			w := group(t)
			w.newJob("a", w.add(1))
			b := w.newJob("b", w.add(1), w.add(1))
			w.startTogether("rrr")
			if w.object != nil { // it alone owns the quota Workload, so that only the time shows the run of a Job
				w.now = w.now.Add(time.Second)
			}
			w.evictAll()
			b.Status.Succeeded = 2
			w.complete(b)
			w.recreate(1, "a")
			w.startTogether("r")
			w.finish("s")
		})
		t.Run(name+", all pods", func(t *testing.T) {
			w := group(t)
			job := w.newJob("a", w.add(1), w.add(1), w.add(1))
			w.startTogether("rrr")
			w.evictAll()
			w.now = w.now.Add(time.Second)
			w.settle()
			if w.isFinished() {
				t.Error("finished before the Job has counted its pods")
			}
			job.Status.Succeeded = 3
			w.complete(job)
			w.settle()
			w.expectNothingHeld()
			if len(w.workloads) > 0 && !w.isFinished() {
				t.Errorf("%d quota Workloads wait although the Job is complete", len(w.workloads))
			}
		})
	}
}

// expectPods checks the pods, and that none of them is admitted.
func (w *world) expectPods(standing string) {
	w.t.Helper()
	if w.admitAll(); w.standing() != standing {
		w.t.Errorf("pods %q, want %q", w.standing(), standing)
	}
}

// startTogether admits the gang, all of whose pods must run then.
func (w *world) startTogether(standing string) {
	w.t.Helper()
	w.settle()
	w.expectPods(standing)
	slots := int32(0)
	for _, x := range w.workloads {
		for i := range x.Spec.PodSets {
			if quotaworkload.HoldsQuota(x) {
				slots += x.Spec.PodSets[i].Count
			}
		}
	}
	if int(slots) != len(standing) {
		w.t.Errorf("quota is held for %d pods, and %d run", slots, len(standing))
	}
}

// finish lets all pods succeed.
func (w *world) finish(standing string) {
	w.t.Helper()
	for _, pod := range w.pods {
		pod.Status.Phase = corev1.PodSucceeded
	}
	w.settle()
	w.expectNothingHeld()
	if w.standing() != standing || !w.isFinished() || !strings.Contains(w.last.Message.Text, "All pods of the gang have succeeded") {
		w.t.Errorf("pods %q, finished %t, told %q", w.standing(), w.isFinished(), w.last.Message.Text)
	}
}

// isFinished reports whether all quota Workloads have finished, and there are some.
func (w *world) isFinished() bool {
	for _, x := range w.workloads {
		if !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
			return false
		}
	}
	return len(w.workloads) > 0
}

// TestOthersMayComplete: a gang has not finished with one of its Jobs while pods of another controller can come, or after another Job has failed.
func TestOthersMayComplete(t *testing.T) {
	for name, other := range map[string]func(w *world, b *batchv1.Job){
		"a Job recreates its pod": func(*world, *batchv1.Job) {},
		"a Job has failed": func(_ *world, b *batchv1.Job) {
			b.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}
		},
		"a StatefulSet recreates its pod": func(w *world, b *batchv1.Job) {
			w.jobs = w.jobs[:1]
			for _, x := range w.workloads {
				for i := range x.OwnerReferences {
					if x.OwnerReferences[i].UID == b.UID {
						x.OwnerReferences[i].Kind = "StatefulSet"
					}
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGang(t, 0, "min-available", "2")
			a, b := w.newJob("a", w.add(1)), w.newJob("b", w.add(1))
			w.startTogether("rr")
			w.evictAll()
			a.Status.Succeeded = 1
			w.complete(a)
			other(w, b)
			w.settle()
			if len(w.workloads) != 1 || w.isFinished() {
				t.Errorf("%d quota Workloads, finished %t; want one that waits for a pod", len(w.workloads), w.isFinished())
			}
		})
	}
}

// TestUnqueuedJob: a Job whose pods name the PodGroup and no queue does not count, because they are no members of the gang.
func TestUnqueuedJob(t *testing.T) {
	w := newGroup(t, 2)
	w.newJob("a", w.add(1), w.add(1))
	free := w.newJob("free", w.add(1))
	free.Spec.Template.Labels = nil
	w.vanish(w.pods[2]) // only members are read
	w.startTogether("rr")
	w.now = w.now.Add(time.Second)
	free.Status.Succeeded = 1
	w.complete(free)
	w.evictAll()
	w.recreate(1, "a")
	w.expectPods("g")
	w.recreate(1, "a")
	w.expectPods("rr")
}

// TestPodGroupAwaitsJob: a gang has not finished when as many pods have succeeded as start together, and another Job of it has not finished.
func TestPodGroupAwaitsJob(t *testing.T) {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "train"})
	w.object = &podgroup.Object{
		Name: "train", UID: "group", MinMember: 1, Labels: map[string]string{apis.QueueLabel: "main"},
		Annotations: map[string]string{apis.KoordinatorPrefix + "total-number": "2"},
	}
	a, b := w.newJob("a", w.add(1)), w.newJob("b", w.add(1))
	w.startTogether("rr")
	w.now = w.now.Add(time.Second)
	w.evictAll()
	a.Status.Succeeded = 1
	w.complete(a)
	w.settle()
	w.expect("", 1, "")
	if w.isFinished() {
		t.Error("finished while a Job recreates its pod")
	}
	b.Status.Succeeded = 1
	w.complete(b)
	w.settle()
	if !w.isFinished() {
		t.Error("not finished although both Jobs are complete")
	}
}

// TestSucceededOnce: a pod that has succeeded counts once, although it exists and its Job counts it.
func TestSucceededOnce(t *testing.T) {
	w := newGang(t, 0, "min-available", "3")
	job := w.newJob("a", w.add(1), w.add(1), w.add(1))
	w.startTogether("rrr")
	w.pods[0].Status.Phase = corev1.PodSucceeded
	job.Status.Succeeded = 1
	kept := w.pods[0]
	w.evictAll()
	w.pods = []*corev1.Pod{kept}
	w.recreate(1, "a")
	w.expectPods("sg")
	w.recreate(1, "a")
	w.expectPods("srr")
}

// TestJobWithoutCompletions: such a Job is complete when one pod has succeeded and the others have terminated, and the gang does not wait for those.
func TestJobWithoutCompletions(t *testing.T) {
	w := newGang(t, 0, "min-available", "3")
	w.newJob("a", w.add(1))
	b := w.newJob("b", w.add(1), w.add(1))
	b.Spec.Completions = nil
	w.startTogether("rrr")
	w.evictAll()
	b.Status.Succeeded, b.Status.Failed = 1, 1
	w.recreate(1, "a")
	w.expectPods("g")
	w.complete(b)
	w.settle()
	w.expectPods("r")
}

// TestJobsOfEarlierRuns: the pods of a Job that was complete before the gang asked for quota do not count.
func TestJobsOfEarlierRuns(t *testing.T) {
	for name, isKept := range map[string]bool{"pods kept": true, "pods deleted": false} {
		t.Run(name, func(t *testing.T) {
			w := newGang(t, 0, "min-available", "2")
			old := w.newJob("a", w.add(1), w.add(1))
			w.startTogether("rr")
			w.finish("ss")
			old.Status.Succeeded = 2
			w.complete(old)
			kept := "ss"
			if !isKept {
				w.pods, kept = nil, ""
			}
			w.newJob("b", w.add(1))
			w.settle()
			w.expect(kept+"g", 0, "fewer than the 2 pods")
			w.recreate(1, "b")
			w.admitAll()
			w.expect(kept+"rr", 1, "has started")
			w.evictAll()
			w.recreate(1, "b")
			w.expectPods("g")
		})
	}
}

// TestJobDiffers: a gang is reconciled when its Job counts a pod, becomes complete or fails, and not for each other change of the status.
func TestJobDiffers(t *testing.T) {
	w := newGang(t, 0, "min-available", "2")
	job := w.newJob("a", w.add(1), w.add(1))
	for _, c := range []struct {
		name   string
		want   bool
		change func()
	}{
		{"a pod is active", false, func() { job.Status.Active = 1 }},
		{"a pod has failed", false, func() { job.Status.Failed = 1 }},
		{"a pod is counted", true, func() {
			job.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"pod-01"}}
		}},
		{"it stays counted", false, func() { job.Status.Succeeded, job.Status.UncountedTerminatedPods = 1, nil }},
		{"all are counted", true, func() { job.Status.Succeeded = 2 }},
		{"it is complete", true, func() { w.complete(job) }},
		{"it has failed instead", true, func() { job.Status.Conditions[0].Type = batchv1.JobFailed }},
	} {
		before := job.DeepCopy()
		c.change()
		if got := podgang.JobDiffers(before, job); got != c.want {
			t.Errorf("%s: differs is %t, want %t", c.name, got, c.want)
		}
	}
}

// TestPeerWithCompleteJob: a pod that succeeded while its gang was evicted counts for the gangs that start together with it.
func TestPeerWithCompleteJob(t *testing.T) {
	w := newGang(t, 0, "min-available", "2")
	job := w.newJob("a", w.add(1), w.add(1))
	w.startTogether("rr")
	w.evictAll()
	w.recreate(1, "a")
	if podgang.PeerOf(w.seen()).IsWhole {
		t.Error("one of two pods is missing, and its peers see the gang as whole")
	}
	job.Status.Succeeded = 1
	if !podgang.PeerOf(w.seen()).IsWhole {
		t.Error("one of two pods has succeeded, and the peers wait for it")
	}
}
