package queuedjob_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// foreign returns a Job that runs and was there before the admission policies.
func foreign(changes ...func(*batchv1.Job)) *batchv1.Job {
	job := newJob()
	delete(job.Labels, apis.HoldLabel)
	job.Spec.Suspend = new(false)
	for _, change := range changes {
		change(job)
	}
	return job
}

func says(condition batchv1.JobConditionType) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
	}
}

func TestIsForeign(t *testing.T) {
	inGroup := func(j *batchv1.Job) { j.Spec.Template.Annotations = map[string]string{apis.PodGroupNameLabel: "gang"} }
	for name, c := range map[string]struct {
		change []func(*batchv1.Job)
		want   bool
	}{
		"runs":                               {nil, true},
		"suspended":                          {[]func(*batchv1.Job){func(j *batchv1.Job) { j.Spec.Suspend = new(true) }}, true},
		"in no queue":                        {[]func(*batchv1.Job){func(j *batchv1.Job) { delete(j.Labels, apis.QueueLabel) }}, false},
		"held":                               {[]func(*batchv1.Job){func(j *batchv1.Job) { j.Labels[apis.HoldLabel] = apis.HoldQueued }}, false},
		"has succeeded":                      {[]func(*batchv1.Job){says(batchv1.JobComplete)}, false},
		"has failed":                         {[]func(*batchv1.Job){says(batchv1.JobFailed)}, false},
		"its pods name a group and no queue": {[]func(*batchv1.Job){inGroup}, true},
		"its pods wait by themselves": {[]func(*batchv1.Job){inGroup, func(j *batchv1.Job) {
			j.Spec.Template.Labels = map[string]string{apis.QueueLabel: "queue"}
		}}, false},
		"of a JobSet": {[]func(*batchv1.Job){func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "js", UID: "js", Controller: new(true)}}
		}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := queuedjob.IsForeign(foreign(c.change...)); got != c.want {
				t.Errorf("IsForeign = %t, want %t", got, c.want)
			}
		})
	}
}

// TestAdopt takes Jobs that were there before the admission policies through their states. No Job is released or held.
func TestAdopt(t *testing.T) {
	suspended := func(j *batchv1.Job) { j.Spec.Suspend = new(true) }
	made := func() *kueue.Workload { return adoption.Marked(waiting(newJob())) }
	held := func() *kueue.Workload {
		w := made()
		return workloadstatus.Merge(w, new(workloadstatus.Admitted(w, admission(w), start)))
	}
	with := func(w *kueue.Workload, change func(*kueue.Workload)) *kueue.Workload { change(w); return w }
	for name, c := range map[string]struct {
		job      *batchv1.Job
		workload *kueue.Workload
		refusal  string
		want     string
	}{
		"runs, no quota Workload":  {foreign(), nil, "", "create"},
		"runs, that of Kueue":      {foreign(), waiting(newJob()), "", "change"},
		"runs, marked":             {foreign(), made(), "", "admit"},
		"runs, charged":            {foreign(), held(), "", "adopt"},
		"runs, admitted by Kueue":  {foreign(), admitted(newJob()), "", "change"},
		"runs, for other pods":     {foreign(), with(held(), func(w *kueue.Workload) { w.Spec.PodSets[0].Count = 1 }), "", "reopen"},
		"runs, in another queue":   {foreign(), with(held(), func(w *kueue.Workload) { w.Spec.QueueName = "other" }), "", "reopen"},
		"runs, with more pod sets": {foreign(), with(held(), func(w *kueue.Workload) { w.Spec.PodSets = append(w.Spec.PodSets, w.Spec.PodSets[0]) }), "", "reopen"},
		"runs, of an earlier run": {foreign(), with(held(), func(w *kueue.Workload) {
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
		}), "", "reopen"},
		"runs, being deleted":              {foreign(), with(held(), func(w *kueue.Workload) { w.DeletionTimestamp = new(metav1.NewTime(start)) }), "", "remove-finalizer"},
		"suspended":                        {foreign(suspended), nil, "", "adopt"},
		"suspended, of Kueue":              {foreign(suspended), waiting(newJob()), "", "adopt"},
		"ends":                             {foreign(says(batchv1.JobSuccessCriteriaMet)), held(), "", ""},
		"with its own selector":            {foreign(func(j *batchv1.Job) { j.Spec.ManualSelector = new(true) }), nil, "", "refuse"},
		"suspended, with its own selector": {foreign(suspended, func(j *batchv1.Job) { j.Spec.ManualSelector = new(true) }), nil, "", "refuse"},
		"runs, in no LocalQueue":           {foreign(), nil, "LocalQueue is missing", "refuse"},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(c.job, c.workload)
			s.Refusal, s.Target = c.refusal, &adoption.Target{Queue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cq"}}}
			step := queuedjob.Next(s)
			got := parts(step)
			if step.Refusal != "" {
				got = "refuse"
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
			for _, created := range step.Workloads(quotastep.Create) {
				if created.Annotations[apis.AdoptedAnnotation] == "" || len(quotaworkload.Gates(created)) == 0 {
					t.Errorf("created without mark and gate: %+v", created.ObjectMeta)
				}
			}
			if adopted := afterOf(step, queuedjob.Adopt); adopted != nil && (adopted.Labels[apis.HoldLabel] != apis.HoldQueued || *adopted.Spec.Suspend != *c.job.Spec.Suspend) {
				t.Errorf("adopted as %+v", adopted)
			}
		})
	}
}

// TestExemptionEnds: an adopted Job that is evicted or suspended is no longer exempt from preemption when its quota is released.
func TestExemptionEnds(t *testing.T) {
	suspend := func(j *batchv1.Job) { metav1.SetMetaDataAnnotation(&j.ObjectMeta, apis.SuspendedAnnotation, "true") }
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		evict  func(*kueue.Workload) *kueue.Workload
	}{
		"evicted":               {func(*batchv1.Job) {}, evicted},
		"suspended by its user": {suspend, func(w *kueue.Workload) *kueue.Workload { return w }},
	} {
		t.Run(name, func(t *testing.T) {
			job, w := stopped()
			job.Status.StartTime = nil
			job = queuedjob.Restored(job)
			c.change(job)
			w = c.evict(adoption.Marked(w))
			for range 5 {
				step := queuedjob.Next(snapshot(job, w))
				if step.Has(quotastep.Release) {
					if w.Annotations[apis.AdoptedAnnotation] != "" {
						t.Errorf("releases quota while it is exempt: %s", parts(step))
					}
					return
				}
				if !step.Has(quotastep.Change) {
					t.Fatalf("writes %q, want a change or the release of quota", parts(step))
				}
				w = step.Of(quotastep.Change)[0].After
			}
			t.Error("never releases its quota")
		})
	}
}

// TestForeignWorkloads: other Workloads that Kueue has for a Job are deleted when the Job is charged, and before it becomes a queued Job.
func TestForeignWorkloads(t *testing.T) {
	prebuilt := func(j *batchv1.Job) {
		j.Labels[apis.PrebuiltWorkloadKey] = "own"
		j.Annotations = map[string]string{apis.PrebuiltWorkloadKey: "own"}
	}
	own := func(job *batchv1.Job) *kueue.Workload {
		return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
			Name: "own", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		}}
	}
	job := foreign(prebuilt)
	w := own(job)
	if !queuedjob.IsForeignWorkload(job, w) || queuedjob.IsForeignWorkload(job, waiting(newJob())) {
		t.Error("a prebuilt Workload of the Job, and only that, is foreign")
	}
	w.OwnerReferences[0].UID = "other"
	if queuedjob.IsForeignWorkload(job, w) {
		t.Error("a Workload of another Job is not foreign")
	}
	if got := queuedjob.Misuse(job); got != "" {
		t.Errorf("a Job that runs is refused: %s", got)
	}
	job.Spec.Suspend = new(true)
	if queuedjob.Misuse(job) == "" {
		t.Error("a suspended Job with a prebuilt Workload is not refused")
	}
	job.Spec.Suspend = new(false)
	charged := adoption.Marked(waiting(newJob()))
	charged = workloadstatus.Merge(charged, new(workloadstatus.Admitted(charged, admission(charged), start)))
	suspended := foreign(func(j *batchv1.Job) { j.Spec.Suspend = new(true) }, says(batchv1.JobSuspended))
	ending := suspended.DeepCopy()
	ending.Status.Active = 1
	for _, c := range []struct {
		job      *batchv1.Job
		workload *kueue.Workload
		foreign  []*kueue.Workload
		refusal  string
		want     string
	}{
		{job, nil, []*kueue.Workload{own(job)}, "", "create"},
		{job, charged, []*kueue.Workload{own(job)}, "", "delete"},
		{job, charged, nil, "", "adopt"},
		{job, charged, []*kueue.Workload{own(job)}, "no queue", "report"},
		{suspended, nil, []*kueue.Workload{own(job)}, "", "delete"},
		{suspended, nil, []*kueue.Workload{own(job)}, "no queue", "delete report"},
		{ending, nil, []*kueue.Workload{own(job)}, "", ""},
		{suspended, nil, nil, "", "adopt"},
	} {
		s := snapshot(c.job, c.workload)
		s.Foreign, s.Refusal, s.Target = c.foreign, c.refusal, &adoption.Target{Queue: &kueue.ClusterQueue{}}
		step := queuedjob.Next(s)
		if got := parts(step); got != c.want {
			t.Errorf("writes %q, want %q", got, c.want)
		}
		if adopted := afterOf(step, queuedjob.Adopt); adopted != nil && adopted.Labels[apis.PrebuiltWorkloadKey]+adopted.Annotations[apis.PrebuiltWorkloadKey] != "" {
			t.Error("an adopted Job names a prebuilt Workload")
		}
		if len(c.foreign) > 0 && !step.Has(quotastep.Create) && step.RequeueAfter == 0 {
			t.Errorf("%q: is not reconciled when the Workloads are gone", c.want)
		}
	}
}

// TestElasticAdoption: of an elastic Job that Kueue ran, the pods are charged that have quota. The others are asked for by a growth.
func TestElasticAdoption(t *testing.T) {
	gates := []corev1.PodSchedulingGate{{Name: kueue.ElasticJobSchedulingGate}}
	pod := func(gates ...corev1.PodSchedulingGate) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates}}
	}
	job := foreign(func(j *batchv1.Job) {
		j.Annotations = map[string]string{apis.ElasticJobAnnotation: "true"}
		j.Spec.Parallelism, j.Spec.Completions = new(int32(4)), new(int32(8))
		j.Spec.Template.Spec.SchedulingGates = gates
		j.Status.Active, j.Status.Ready = 4, new(int32(2))
	})
	s := snapshot(job, nil)
	s.Target = &adoption.Target{Queue: &kueue.ClusterQueue{}}
	s.Owned.Pods = []*corev1.Pod{pod(), pod(), pod(gates...), pod(gates...)}
	step := queuedjob.Next(s)
	created := step.Workloads(quotastep.Create)
	if len(created) != 1 || created[0].Spec.PodSets[0].Count != 2 || !step.NeedsLive() {
		t.Fatalf("creates %+v, want a quota Workload for 2 pods by a live read", created)
	}
	w := created[0]
	w.UID = "w1"
	w = workloadstatus.Merge(w, new(workloadstatus.Admitted(w, admission(w), start)))
	s.Owned.Workloads = []*kueue.Workload{w}
	s.Owned.Pods = s.Owned.Pods[1:] // one has terminated
	step = queuedjob.Next(s)
	if got := parts(step); got != "adopt" {
		t.Fatalf("writes %q, want adopt", got)
	}
	job = step.Job.After
	if *job.Spec.Parallelism != 2 || job.Annotations[apis.SizeAnnotation] != "4" || len(queuedjob.Restored(job).Spec.Template.Spec.SchedulingGates) > 0 {
		t.Errorf("adopted with parallelism %d, annotations %v, restored to gates %v", *job.Spec.Parallelism, job.Annotations, queuedjob.Restored(job).Spec.Template.Spec.SchedulingGates)
	}

	w = queuedjob.Next(snapshot(job, w)).Of(quotastep.Change)[0].After // it is no longer gated
	s = snapshot(job, w)
	s.Owned.Pods = []*corev1.Pod{pod(), pod(gates...), pod(gates...)}
	step = queuedjob.Next(s)
	if created = step.Workloads(quotastep.Create); len(step.Ungate) > 0 || !step.NeedsLive() || len(created) != 1 || created[0].Spec.PodSets[0].Count != 2 {
		t.Errorf("ungates %d of 3 pods with quota for 2, creates %+v", len(step.Ungate), created)
	}
	s.Owned.Pods = s.Owned.Pods[:2]
	if step = queuedjob.Next(s); len(step.Ungate) != 1 || len(queuedjob.Ungated(step.Ungate[0]).Spec.SchedulingGates) > 0 {
		t.Errorf("ungates %d pods, want the one that is gated", len(step.Ungate))
	}
	job.Status.Ready = new(int32(4))
	if step = queuedjob.Next(s); len(step.Ungate) > 0 {
		t.Error("looks for gated pods although all are ready")
	}
}
