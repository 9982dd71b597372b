package queuedjob_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

var start = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// newJob returns a held Job of two pods that has never run.
func newJob() *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: "train", UID: "u1", Labels: map[string]string{apis.QueueLabel: "queue", apis.HoldLabel: apis.HoldQueued},
		},
		Spec: batchv1.JobSpec{
			Suspend: new(true), Parallelism: new(int32(2)), Completions: new(int32(2)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
			}}}},
		},
	}
}

// snapshot returns what the manager reads of a Job and its quota Workload, which may be nil.
func snapshot(job *batchv1.Job, w *kueue.Workload) *queuedjob.Snapshot {
	s := &queuedjob.Snapshot{
		Key: types.NamespacedName{Namespace: "ml", Name: "train"}, Job: job, Template: &childjob.Restored(job).Spec.Template,
		Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{"a100": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"gpu": "a100"}}}},
		Orphans: map[types.UID]queuedjob.Objects{}, Charged: map[types.UID]bool{}, Now: start.Add(time.Hour),
	}
	if w != nil {
		s.Owned.Workloads = []*kueue.Workload{w}
		s.Charged[w.UID] = w.Status.Admission != nil
	}
	return s
}

// waiting returns the quota Workload that Next creates for a Job.
func waiting(job *batchv1.Job) *kueue.Workload {
	w := queuedjob.Next(snapshot(job, nil)).Workloads(quotastep.Create)[0]
	w.UID, w.CreationTimestamp = "w1", metav1.NewTime(start)
	return w
}

func admitted(job *batchv1.Job) *kueue.Workload {
	w := waiting(job)
	return workloadstatus.Merge(w, new(workloadstatus.Admitted(w, admission(w), start)))
}

func admission(w *kueue.Workload) *kueue.Admission {
	return &kueue.Admission{ClusterQueue: "cq", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(w.Spec.PodSets[0].Count), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "a100"},
	}}}
}

// running returns a Job that runs with what a quota Workload is admitted to.
func running() (*batchv1.Job, *kueue.Workload) {
	w := admitted(newJob())
	job := queuedjob.Next(snapshot(newJob(), w)).Job.After
	job.Status = batchv1.JobStatus{StartTime: new(metav1.NewTime(start)), Active: 2}
	return job, w
}

// stopped returns a Job that was held again and has no pods.
func stopped() (*batchv1.Job, *kueue.Workload) {
	job, w := running()
	job.Spec.Suspend, job.Status.Active = new(true), 0
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
	return job, w
}

func evicted(w *kueue.Workload) *kueue.Workload {
	e := workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "Preempted"}
	return workloadstatus.Merge(w, new(workloadstatus.Evicted(w, e, start)))
}

func TestCreate(t *testing.T) {
	job := newJob()
	job.Labels[apis.MaxExecTimeLabel] = "60"
	job.Spec.Completions = new(int32(1))
	s := snapshot(job, nil)
	s.Priority.Value, s.Priority.Class = 7, kueue.NewWorkloadPriorityClassRef("high")
	w := queuedjob.Next(s).Workloads(quotastep.Create)[0]
	// The hash is that of Kueue: sha1 of "Job\nbatch\ntrain\nu1".
	if w.Name != "job-train-e4af4" {
		t.Errorf("name %q", w.Name)
	}
	if !metav1.IsControlledBy(w, job) || w.Labels[apis.JobUIDLabel] != "u1" || w.Labels[apis.JobLabel] != "train" {
		t.Errorf("owners %v, labels %v", w.OwnerReferences, w.Labels)
	}
	if got := w.Spec.PodSets[0].Count; got != 1 {
		t.Errorf("%d pods, want the completions", got)
	}
	if w.Spec.QueueName != "queue" || *w.Spec.Priority != 7 || w.Spec.PriorityClassRef.Name != "high" || *w.Spec.MaximumExecutionTimeSeconds != 60 {
		t.Errorf("spec %+v", w.Spec)
	}
}

func TestRelease(t *testing.T) {
	job, _ := running()
	if *job.Spec.Suspend || job.Spec.Template.Spec.NodeSelector["gpu"] != "a100" {
		t.Errorf("released Job: %+v", job.Spec)
	}
	want := map[string]string{apis.PodSetLabel: "main", apis.LocalQueueLabel: "queue", apis.ClusterQueueLabel: "cq"}
	if diff := cmp.Diff(want, job.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of pods (-want +got):\n%s", diff)
	}
}

// A Workload that the manager has not made is named to the user, with the cure; the manager's own is not.
func TestTaken(t *testing.T) {
	w := waiting(newJob())
	if got := queuedjob.Taken(newJob(), w); got != "" {
		t.Errorf("its own quota Workload: %q", got)
	}
	for _, label := range []string{apis.JobLabel, apis.JobUIDLabel} {
		other := w.DeepCopy()
		delete(other.Labels, label)
		if got := queuedjob.Taken(newJob(), other); !strings.Contains(got, `"job-train-e4af4"`) || !strings.Contains(got, "delete it") {
			t.Errorf("a Workload without the label %s: %q", label, got)
		}
	}
}

// The outcome of a write, such as that the API server rejects a release, is reported in the same Step.
func TestWriteReports(t *testing.T) {
	reported := ""
	err := queuedjob.Next(snapshot(newJob(), admitted(newJob()))).Write(&queuedjob.Writer{
		Job:    func(w *queuedjob.Step) error { w.Complaint = "rejected"; return nil },
		Report: func(w *queuedjob.Step) error { reported = w.Complaint; return nil },
	})
	if err != nil || reported != "rejected" {
		t.Errorf("reported %q, error %v", reported, err)
	}
}

// claimed makes a quota Workload one that is charged for the devices of a ResourceClaimTemplate, by its UID.
func claimed(w *kueue.Workload, template string) *kueue.Workload {
	w.Spec.PodSets[0].Template.Annotations = map[string]string{apis.ClaimTemplatesAnnotation: "devices=" + template}
	return w
}

// claiming makes the pods of a Job claim the devices of a ResourceClaimTemplate.
func claiming(s *queuedjob.Snapshot, template string) *queuedjob.Snapshot {
	s.Template = s.Template.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.Template.ObjectMeta, apis.ClaimTemplatesAnnotation, "devices="+template)
	return s
}

func TestNext(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train-x"}}
	cases := map[string]struct {
		make func() *queuedjob.Snapshot
		want string
	}{
		"it waits": {func() *queuedjob.Snapshot { return snapshot(newJob(), waiting(newJob())) }, ""},
		"it is admitted, and the engine has not observed it": {func() *queuedjob.Snapshot {
			s := snapshot(newJob(), admitted(newJob()))
			s.Charged = nil
			return s
		}, ""},
		"it is admitted": {func() *queuedjob.Snapshot { return snapshot(newJob(), admitted(newJob())) }, "release"},
		"it is admitted, and was not restored": {func() *queuedjob.Snapshot {
			job, w := stopped()
			return snapshot(job, w)
		}, "clear-start"},
		"it runs": {func() *queuedjob.Snapshot {
			job, w := running()
			return snapshot(job, w)
		}, ""},
		"its pods are ready": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Status.Ready = new(int32(2))
			return snapshot(job, w)
		}, "progress"},
		"one of its pods has succeeded": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Status.Succeeded = 1
			return snapshot(job, w)
		}, "reclaim"},
		"one of its pods has succeeded, and one terminates": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Status.Succeeded, job.Status.Terminating = 1, new(int32(1))
			return snapshot(job, w)
		}, ""},
		"it runs, and lost its quota Workload": {func() *queuedjob.Snapshot {
			job, _ := running()
			return snapshot(job, nil)
		}, "create hold"},
		"it runs without quota": {func() *queuedjob.Snapshot {
			job, _ := running()
			return snapshot(job, waiting(newJob()))
		}, "hold"},
		"it is evicted": {func() *queuedjob.Snapshot {
			job, w := running()
			return snapshot(job, evicted(w))
		}, "hold"},
		"it is evicted, and the Job controller has not noticed its release": {func() *queuedjob.Snapshot {
			job, w := stopped()
			job.Spec.Suspend = new(false)
			return snapshot(job, evicted(w))
		}, ""},
		"it is evicted, and its pods terminate": {func() *queuedjob.Snapshot {
			job, w := stopped()
			job.Status.Terminating = new(int32(1))
			return snapshot(job, evicted(w))
		}, ""},
		"it is evicted, and a pod is left that the Job does not count": {func() *queuedjob.Snapshot {
			job, w := stopped()
			s := snapshot(job, evicted(w))
			s.Owned.Pods = []*corev1.Pod{pod}
			return s
		}, ""},
		"it is evicted and stopped": {func() *queuedjob.Snapshot {
			job, w := stopped()
			return snapshot(job, evicted(w))
		}, "clear-start"},
		"it is evicted, stopped, and may be restored": {func() *queuedjob.Snapshot {
			job, w := stopped()
			job.Status.StartTime = nil
			return snapshot(job, evicted(w))
		}, "restore"},
		"it is evicted and restored": {func() *queuedjob.Snapshot {
			job, w := stopped()
			job.Status.StartTime = nil
			return snapshot(childjob.Restored(job), evicted(w))
		}, "release-quota"},
		"it is evicted, and about to end": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
			return snapshot(job, evicted(w))
		}, ""},
		"it is held, about to end, and cannot": {func() *queuedjob.Snapshot {
			job, w := stopped()
			job.Status.StartTime = nil
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue})
			return snapshot(job, evicted(w))
		}, "conclude"},
		"its user suspends it": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Annotations[apis.SuspendedAnnotation] = "true"
			return snapshot(job, w)
		}, "change hold"},
		"its user suspends it, and the Job controller has not noticed its release": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Spec.Suspend, job.Status = new(true), batchv1.JobStatus{}
			job.Annotations[apis.SuspendedAnnotation] = "true"
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.SuspendedGate}
			return snapshot(job, w)
		}, ""},
		"its user suspends it, and the condition Suspended is older than its release": {func() *queuedjob.Snapshot {
			job, w := stopped()
			job.Status.StartTime = nil
			job.Annotations[apis.SuspendedAnnotation], job.Annotations[apis.UnnoticedAnnotation] = "true", "true"
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.SuspendedGate}
			return snapshot(job, w)
		}, "clear-suspended"},
		"its user has suspended it": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Annotations = map[string]string{apis.SuspendedAnnotation: "true"}
			w := admitted(newJob())
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.SuspendedGate}
			return snapshot(job, w)
		}, "release-quota"},
		"its user resumes it": {func() *queuedjob.Snapshot {
			w := waiting(newJob())
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.SuspendedGate}
			return snapshot(newJob(), w)
		}, "change"},
		"its user enlarges it while it waits": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Spec.Parallelism, job.Spec.Completions = new(int32(3)), new(int32(3))
			return snapshot(job, waiting(newJob()))
		}, "change"},
		"its user enlarges it after its admission": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Spec.Parallelism, job.Spec.Completions = new(int32(3)), new(int32(3))
			return snapshot(job, admitted(newJob()))
		}, "reopen"},
		"its user makes it smaller after its admission": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Spec.Parallelism, job.Spec.Completions = new(int32(1)), new(int32(1))
			return snapshot(job, admitted(newJob()))
		}, "release reclaim"},
		"its user moves it to another queue": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Labels[apis.QueueLabel] = "other"
			return snapshot(job, waiting(newJob()))
		}, "change"},
		"its user moves it to another queue after its reservation": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Labels[apis.QueueLabel] = "other"
			return snapshot(job, admitted(newJob()))
		}, "reopen"},
		"its ResourceClaimTemplate is replaced while it waits": {func() *queuedjob.Snapshot {
			return claiming(snapshot(newJob(), claimed(waiting(newJob()), "old")), "new")
		}, "change"},
		"its ResourceClaimTemplate is replaced after its admission": {func() *queuedjob.Snapshot {
			return claiming(snapshot(newJob(), claimed(admitted(newJob()), "old")), "new")
		}, "reopen"},
		"its ResourceClaimTemplate is replaced while it runs": {func() *queuedjob.Snapshot {
			job, w := running()
			return claiming(snapshot(job, claimed(w, "old")), "new")
		}, "reopen"},
		"its ResourceClaimTemplate is the one that it is charged for": {func() *queuedjob.Snapshot {
			job, w := running()
			return claiming(snapshot(job, claimed(w, "new")), "new")
		}, ""},
		"its ResourceClaimTemplate is replaced by one that cannot be charged": {func() *queuedjob.Snapshot {
			job, w := running()
			s := snapshot(job, claimed(w, "old"))
			s.Refusal = "claims devices for which no quota is charged"
			return s
		}, "reopen"},
		"its user limits its time after its reservation": {func() *queuedjob.Snapshot {
			job := newJob()
			job.Labels[apis.MaxExecTimeLabel] = "60"
			return snapshot(job, admitted(newJob()))
		}, "reopen"},
		"its quota Workload was deleted": {func() *queuedjob.Snapshot {
			job, w := running()
			w.DeletionTimestamp = new(metav1.NewTime(start))
			return snapshot(job, w)
		}, "hold"},
		"its quota Workload was deleted, and it does not run": {func() *queuedjob.Snapshot {
			w := waiting(newJob())
			w.DeletionTimestamp = new(metav1.NewTime(start))
			return snapshot(newJob(), w)
		}, "remove-finalizer"},
		"its quota Workload was finished by another user": {func() *queuedjob.Snapshot {
			job, w := running()
			w.Status.Conditions = append(w.Status.Conditions, *workloadstatus.Succeeded("forged"))
			return snapshot(job, w)
		}, "reopen"},
		"it cannot be queued": {func() *queuedjob.Snapshot {
			s := snapshot(newJob(), nil)
			s.Refusal = "no"
			return s
		}, "report"},
		"it has failed": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Status = batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: "too often"}}}
			return snapshot(job, w)
		}, "progress"},
		"it has failed, and a pod is left": {func() *queuedjob.Snapshot {
			job, w := running()
			job.Status = batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}
			s := snapshot(job, w)
			s.Owned.Pods = []*corev1.Pod{pod}
			return s
		}, ""},
		"it was deleted": {func() *queuedjob.Snapshot {
			s := snapshot(newJob(), nil)
			s.Orphans["u1"], s.Job = queuedjob.Objects{Workloads: []*kueue.Workload{admitted(newJob())}}, nil
			return s
		}, "delete"},
		"it was deleted, and a pod is left": {func() *queuedjob.Snapshot {
			s := snapshot(newJob(), nil)
			s.Orphans["u1"], s.Job = queuedjob.Objects{Workloads: []*kueue.Workload{admitted(newJob())}, Pods: []*corev1.Pod{pod}}, nil
			return s
		}, ""},
		"it is being deleted, and its finalizers keep it running": {func() *queuedjob.Snapshot {
			job, w := running()
			job.DeletionTimestamp, job.Finalizers = new(metav1.NewTime(start)), []string{"example.com/keep"}
			s := snapshot(job, nil)
			s.Orphans["u1"], s.Job, s.Leaving = queuedjob.Objects{Workloads: []*kueue.Workload{w}, Pods: []*corev1.Pod{pod}}, nil, job
			return s
		}, "end-pods"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := parts(queuedjob.Next(c.make())); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A finished quota Workload is deleted when its retention has expired, and a Job when that of its deactivated quota Workload has.
func TestRetention(t *testing.T) {
	job, w := running()
	job.Status = batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
	w.Finalizers = nil
	finished := *workloadstatus.Succeeded("done")
	finished.LastTransitionTime = metav1.NewTime(start)
	w.Status.Conditions = append(w.Status.Conditions, finished)
	e := workloadstatus.Eviction{Reason: kueue.WorkloadDeactivated, Cause: kueue.WorkloadMaximumExecutionTimeExceeded}
	deactivated := waiting(newJob())
	deactivated.Spec.Active = new(false)
	deactivated = workloadstatus.Merge(deactivated, new(workloadstatus.Evicted(deactivated, e, start)))
	for kept, want := range map[time.Duration][2]string{30 * time.Minute: {"delete", "delete-expired"}, 2 * time.Hour: {"", ""}} {
		for i, s := range []*queuedjob.Snapshot{snapshot(job, w), snapshot(newJob(), deactivated)} {
			s.Retention = configapi.WorkloadRetentionPolicy{
				AfterFinished: &metav1.Duration{Duration: kept}, AfterDeactivatedByKueue: &metav1.Duration{Duration: kept},
			}
			step := queuedjob.Next(s)
			if got := parts(step); got != want[i] {
				t.Errorf("kept for %s: %q, want %q", kept, got, want[i])
			}
			if want[i] == "" && step.RequeueAfter != time.Hour {
				t.Errorf("kept for %s: requeued after %s", kept, step.RequeueAfter)
			}
		}
	}
}

// The reclaimable pods of an Indexed Job are counted by index: failed indexes do not run again, and none counts twice.
func TestReclaimIndexed(t *testing.T) {
	for name, c := range map[string]struct {
		completed, failed string
		want              int32
	}{
		"none":        {"", "", 0},
		"some":        {"0,3-4", "", 1},
		"failed":      {"0", "1-4", 3},
		"overlapping": {"0-3", "2-4", 3},
		"no numbers":  {"x,-3,4-", "", 0},
		"too many":    {"0-4000000000", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			job.Spec.CompletionMode, job.Spec.Parallelism, job.Spec.Completions = new(batchv1.IndexedCompletion), new(int32(4)), new(int32(6))
			w := admitted(job)
			job.Status.CompletedIndexes, job.Status.FailedIndexes = c.completed, &c.failed
			got := int32(0)
			if reclaim := queuedjob.Next(snapshot(job, w)).Of(quotastep.Reclaim); len(reclaim) > 0 {
				got = reclaim[0].Reclaimable[0].Count
			}
			if got != c.want {
				t.Errorf("%d reclaimable pods, want %d", got, c.want)
			}
		})
	}
}

// The end of a Job that was admitted with fewer pods takes one write for each change of the pods that it needs.
func TestReclaimPartial(t *testing.T) {
	job := newJob()
	job.Spec.Parallelism, job.Spec.Completions = new(int32(100)), new(int32(1000))
	job.Annotations = map[string]string{apis.MinParallelismAnnotation: "1"}
	w := waiting(job)
	smaller := admission(w)
	smaller.PodSetAssignments[0].Count = new(int32(50))
	w = workloadstatus.Merge(w, new(workloadstatus.Admitted(w, smaller, start)))
	job = queuedjob.Next(snapshot(job, w)).Job.After
	for _, c := range []struct{ succeeded, writes, held int32 }{{0, 0, 50}, {950, 0, 50}, {951, 1, 49}, {990, 1, 10}, {999, 1, 1}, {1000, 0, 1}} {
		job.Status = batchv1.JobStatus{StartTime: new(metav1.NewTime(start)), Succeeded: c.succeeded}
		writes := int32(0)
		for step := queuedjob.Next(snapshot(job, w)); step.Has(quotastep.Reclaim) && writes < 100; step = queuedjob.Next(snapshot(job, w)) {
			w = w.DeepCopy()
			w.Status.ReclaimablePods = step.Of(quotastep.Reclaim)[0].Reclaimable
			writes++
		}
		if held := elastic.Held(w, "main"); writes != c.writes || held != c.held {
			t.Errorf("%d pods have succeeded: %d writes, and quota for %d pods is held, want %d and %d", c.succeeded, writes, held, c.writes, c.held)
		}
	}
}

// A Job that its user lets run with fewer pods is admitted with fewer, and has its own size again when it has released its quota.
func TestPartial(t *testing.T) {
	for name, c := range map[string]struct {
		min, equal      string
		wantMin         *int32
		wantCompletions int32
	}{
		"with a minimum":             {"2", "", new(int32(2)), 6},
		"with equal completions":     {"2", "true", new(int32(2)), 3},
		"without":                    {"", "", nil, 0},
		"with a minimum of all pods": {"4", "", nil, 0},
		"with no number":             {"few", "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			job := newJob()
			job.Spec.Parallelism, job.Spec.Completions = new(int32(4)), new(int32(6))
			job.Annotations = map[string]string{apis.MinParallelismAnnotation: c.min, apis.CompletionsEqualAnnotation: c.equal}
			w := waiting(job)
			if diff := cmp.Diff(c.wantMin, w.Spec.PodSets[0].MinCount); diff != "" {
				t.Fatalf("minCount (-want +got):\n%s", diff)
			}
			if c.wantMin == nil {
				return
			}
			smaller := admission(w)
			smaller.PodSetAssignments[0].Count = new(int32(3))
			w = workloadstatus.Merge(w, new(workloadstatus.Admitted(w, smaller, start)))
			step := queuedjob.Next(snapshot(job, w))
			if got := parts(step); got != "release" {
				t.Fatalf("%q, want a release", got)
			}
			released := step.Job.After
			if *released.Spec.Parallelism != 3 || *released.Spec.Completions != c.wantCompletions || released.Annotations[apis.SizeAnnotation] != "4" {
				t.Errorf("released with %d pods, %d completions, %v", *released.Spec.Parallelism, *released.Spec.Completions, released.Annotations)
			}
			released.Status.StartTime = new(metav1.NewTime(start))
			if got := parts(queuedjob.Next(snapshot(released, w))); got != "" {
				t.Errorf("running: %q, want nothing", got)
			}
			restored := queuedjob.Restored(released)
			if *restored.Spec.Parallelism != 4 || c.equal == "" && *restored.Spec.Completions != 6 {
				t.Errorf("restored with %d pods, %d completions", *restored.Spec.Parallelism, *restored.Spec.Completions)
			}
		})
	}
}
