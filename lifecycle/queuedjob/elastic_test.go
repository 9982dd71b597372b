package queuedjob_test

import (
	"slices"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestElasticInAnyOrder checks that the pods of an elastic Job, also those that terminate, live only on held quota, and that the Job finishes with the
// size that its user wants.
func TestElasticInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{T: t, job: newJob()}
		w.job.Spec.Parallelism, w.job.Spec.Completions = new(int32(3)), new(rapid.Int32Range(3, 9).Draw(t, "completions"))
		w.job.Annotations = map[string]string{apis.ElasticJobAnnotation: "true"}
		if rapid.Bool().Draw(t, "indexed") {
			w.job.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		}
		chosen := func(t *rapid.T, may func(*kueue.Workload) bool, change func(*kueue.Workload) *kueue.Workload) {
			if len(w.growths) == 0 {
				return
			}
			if growth := rapid.SampledFrom(w.growths).Draw(t, "growth"); may(growth) {
				w.replace(growth, change)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"reconcile": func(t *rapid.T) { w.reconcile(rapid.IntRange(0, 3).Draw(t, "writes")) },
			"all":       func(*rapid.T) { w.reconcile(9) },
			"stale":     func(*rapid.T) { w.reconcileWith(w.shown, 9) },
			"cache":     func(*rapid.T) { w.shown = w.job.DeepCopy() },
			"job":       func(*rapid.T) { w.controlJob() },
			"pod":       func(*rapid.T) { w.terminate() },
			"succeed":   func(*rapid.T) { w.succeed() },
			"admit":     func(*rapid.T) { w.admit() },
			"growths":   func(*rapid.T) { w.admitGrowths() },
			"evict":     func(*rapid.T) { w.evict() },
			"suspend":   func(*rapid.T) { w.user(true) },
			"resume":    func(*rapid.T) { w.user(false) },
			"resize": func(t *rapid.T) {
				pods, completions := rapid.Int32Range(1, 7).Draw(t, "pods"), w.job.Spec.Completions
				if childjob.IsIndexed(&w.job.Spec) && rapid.Bool().Draw(t, "together") {
					completions = &pods
				}
				w.userResizes(pods, completions)
			},
			"withdraw": func(*rapid.T) {
				w.putJob(func(j *batchv1.Job) {
					delete(j.Annotations, apis.SizeAnnotation)
					delete(j.Annotations, apis.CompletionsAnnotation)
				})
			},
			"growth evicted": func(t *rapid.T) { chosen(t, quotaworkload.HoldsQuota, evicted) },
			"growth deleted": func(t *rapid.T) {
				chosen(t, func(g *kueue.Workload) bool { return g.DeletionTimestamp == nil }, func(g *kueue.Workload) *kueue.Workload {
					after := g.DeepCopy()
					after.DeletionTimestamp = new(metav1.NewTime(start))
					return after
				})
			},
			"delete": func(*rapid.T) {
				if w.workload != nil && w.workload.DeletionTimestamp == nil {
					w.workload.DeletionTimestamp = new(metav1.NewTime(start))
				}
			},
			"": func(*rapid.T) { w.check() },
		})
		w.settle()
		w.finish()
	})
}

// settle lets the Job get all the quota that it asks for.
func (w *world) settle() {
	w.user(false)
	for range 40 {
		w.reconcile(9)
		w.check()
		w.controlJob()
		w.terminate()
		w.admit()
		w.admitGrowths()
		w.check()
	}
	if childjob.IsFinished(w.job, batchv1.JobComplete) || w.job.Status.Succeeded >= *w.job.Spec.Completions {
		return
	}
	_, isSmaller := w.job.Annotations[apis.SizeAnnotation]
	left := min(*w.job.Spec.Parallelism, *w.job.Spec.Completions-w.job.Status.Succeeded)
	if isSmaller || w.active != left || w.held() != left {
		w.Fatalf("%d pods of %d on quota for %d: %+v", w.active, left, w.held(), w.job)
	}
}

// userResizes does what the policies make of a user's write of parallelism, or of completions with it.
func (w *world) userResizes(pods int32, completions *int32) {
	isRunning := childjob.IsRunning(w.job)
	if _, isSized := w.job.Annotations[apis.SizeAnnotation]; !isRunning && isSized {
		return
	}
	w.resizeJob(func(j *batchv1.Job) {
		before := childjob.PodsAtOnce(j)
		after := j.DeepCopy()
		after.Spec.Parallelism, after.Spec.Completions = &pods, completions
		delete(after.Annotations, apis.SizeAnnotation)
		delete(after.Annotations, apis.CompletionsAnnotation)
		if isRunning && childjob.PodsAtOnce(after) > before {
			metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.SizeAnnotation, strconv.Itoa(int(pods)))
			if *after.Spec.Completions != *j.Spec.Completions {
				metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.CompletionsAnnotation, strconv.Itoa(int(pods)))
			}
			after.Spec.Parallelism, after.Spec.Completions = j.Spec.Parallelism, j.Spec.Completions
		}
		*j = *after
	})
}

// resizeJob changes the size of a Job.
func (w *world) resizeJob(change func(*batchv1.Job)) {
	before := w.job.Spec
	w.putJob(change)
	if completions := *w.job.Spec.Completions; completions != *before.Completions && (!childjob.IsIndexed(&before) || completions != *w.job.Spec.Parallelism) {
		w.Fatalf("completions change from %d to %d, with parallelism %d", *before.Completions, completions, *w.job.Spec.Parallelism)
	}
}

// cached returns what the manager reads with the given state of the Job.
func (w *world) cached(job *batchv1.Job) *queuedjob.Snapshot {
	s := snapshot(job.DeepCopy(), w.workload)
	for _, growth := range w.growths {
		s.Owned.Workloads = append(s.Owned.Workloads, growth)
		s.Charged[growth.UID] = growth.Status.Admission != nil
	}
	return s
}

// held returns for how many pods the quota Workloads hold quota.
func (w *world) held() int32 {
	var held int32
	for _, workload := range append(slices.Clone(w.growths), w.workload) {
		if workload != nil && quotaworkload.HoldsQuota(workload) {
			held += elastic.Held(workload, "main")
		}
	}
	return held
}

// replace writes a quota Workload, unless it has disappeared.
func (w *world) replace(read *kueue.Workload, change func(current *kueue.Workload) *kueue.Workload) {
	if w.workload != nil && w.workload.UID == read.UID {
		w.workload = change(w.workload)
	}
	for k, growth := range w.growths {
		if growth.UID == read.UID {
			w.growths[k] = change(growth)
		}
	}
}

func (w *world) delete(gone *kueue.Workload) {
	if w.workload != nil && w.workload.UID == gone.UID {
		w.workload = nil
	}
	w.growths = slices.DeleteFunc(slices.Clone(w.growths), func(g *kueue.Workload) bool { return g.UID == gone.UID })
}

// admitGrowths plays the engine.
func (w *world) admitGrowths() {
	for k, growth := range w.growths {
		if growth.DeletionTimestamp == nil && !quotaworkload.HoldsQuota(growth) {
			w.growths[k] = workloadstatus.Merge(growth, new(workloadstatus.Admitted(growth, admission(growth), start)))
		}
	}
}

// grown returns an elastic Job of two pods that runs, and wants four, with its quota Workload and an admitted growth.
func grown() *queuedjob.Snapshot {
	job, workload := running()
	job.Annotations = map[string]string{apis.ElasticJobAnnotation: "true", apis.SizeAnnotation: "4"}
	job.Spec.Completions = new(int32(8))
	growth := queuedjob.Next(snapshot(job, workload)).Workloads(quotastep.Create)[0]
	growth.UID, growth.CreationTimestamp = "g1", metav1.NewTime(start)
	growth = workloadstatus.Merge(growth, new(workloadstatus.Admitted(growth, admission(growth), start)))
	s := snapshot(job, workload)
	s.Owned.Workloads = append(s.Owned.Workloads, growth)
	s.Charged[growth.UID] = true
	return s
}

func TestGrowWhenLostPodsHaveTerminated(t *testing.T) {
	s := grown()
	if got := s.Owned.Workloads[1].Spec.PodSets[0].Count; got != 2 {
		t.Fatalf("the growth asks for %d pods, want 2", got)
	}
	s.Job.Status.Terminating = new(int32(1))
	if step := queuedjob.Next(s); step.Job != nil || step.RequeueAfter == 0 {
		t.Errorf("the Job grows while a pod that it has lost terminates: %+v", step)
	}
	s.Job.Status.Terminating = nil
	step := queuedjob.Next(s)
	if after := afterOf(step, queuedjob.Resize); after == nil || *after.Spec.Parallelism != 4 || after.Annotations[apis.SizeAnnotation] != "" {
		t.Errorf("the Job does not grow to 4 pods: %+v", step.Job)
	}
}

func TestGrowthsEndBeforeTheJobReleasesQuota(t *testing.T) {
	s := grown()
	s.Owned.Workloads[0] = evicted(s.Owned.Workloads[0])
	if step := queuedjob.Next(s); afterOf(step, queuedjob.Hold) == nil || step.Has(quotastep.Delete) {
		t.Errorf("an evicted Job that runs: %+v", step)
	}
	held, _ := stopped()
	s.Job.Spec.Suspend, s.Job.Status = held.Spec.Suspend, held.Status
	s.Job = queuedjob.Restored(s.Job)
	s.Job.Status.StartTime = nil
	s.Owned.Pods = []*corev1.Pod{{}}
	if step := queuedjob.Next(s); step.Has(quotastep.Delete) || step.Has(quotastep.Release) {
		t.Errorf("a pod still uses the quota: %+v", step)
	}
	s.Owned.Pods = nil
	if step := queuedjob.Next(s); len(step.Of(quotastep.Delete)) != 1 || step.Workloads(quotastep.Delete)[0].UID != "g1" || step.Has(quotastep.Release) {
		t.Errorf("the growth does not end first: %+v", step)
	}
	s.Owned.Workloads = s.Owned.Workloads[:1]
	if step := queuedjob.Next(s); !step.Has(quotastep.Release) {
		t.Errorf("the Job keeps its quota: %+v", step)
	}
}
