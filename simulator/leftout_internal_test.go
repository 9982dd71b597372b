package simulator

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
)

// tampered returns the snapshot of a scenario after 5 minutes, with a changed JobSet.
func tampered(t *testing.T, text string, change func(*snapshot.Snapshot, *jobsetapi.JobSet)) *snapshot.Snapshot {
	t.Helper()
	s := started(t, "# story\n"+text)
	if err := s.runUntil(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
	taken := snapshotOf(s)
	js := taken.JobSets[0].DeepCopy()
	taken.JobSets[0] = js
	change(taken, js)
	return taken
}

// TestLeftOut loads JobSets that the manager does not manage, or refuses.
func TestLeftOut(t *testing.T) {
	withoutWorkloads := func(s *snapshot.Snapshot) { s.Workloads, s.Jobs = nil, nil }
	for name, c := range map[string]struct {
		change func(*snapshot.Snapshot, *jobsetapi.JobSet)
		want   string
	}{
		"without a queue":      {func(_ *snapshot.Snapshot, js *jobsetapi.JobSet) { delete(js.Labels, apis.QueueLabel) }, "it names no LocalQueue"},
		"not held":             {func(_ *snapshot.Snapshot, js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[0].Template.Labels = nil }, "the JobSet is not held"},
		"in another namespace": {func(_ *snapshot.Snapshot, js *jobsetapi.JobSet) { js.Namespace = "kube-system" }, "managedNamespaceSelector"},
		"without a valid order": {func(_ *snapshot.Snapshot, js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[1].DependsOn[0].Name = "other"
		}, "dependsOn"},
		"of an unknown priority": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			withoutWorkloads(s)
			js.Labels[apis.PriorityClassLabel] = "high"
		}, `the WorkloadPriorityClass "high" that its label`},
		"of a priority of pods": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			withoutWorkloads(s)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.PriorityClassName = "high"
		}, `the PriorityClass "high" of its ReplicatedJob "data" does not exist`},
		"that claims devices": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			withoutWorkloads(s)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		}, "spec.replicatedJobs[0].template.spec.template.spec.resourceClaims: "},
	} {
		t.Run(name, func(t *testing.T) {
			taken := tampered(t, "queue ml gpu=4\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2)\n", c.change)
			p, err := Forecast(taken, &Durations{}, taken.TakenAt.Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if len(p.LeftOut) != 1 || p.LeftOut[0].Kind != "JobSet" || p.LeftOut[0].Key.Name != "a" || !strings.Contains(p.LeftOut[0].Why, c.want) {
				t.Errorf("left out: %v, want JobSet a: %s", p.LeftOut, c.want)
			}
		})
	}
}

// TestLoadedDefaults loads JobSets without quota Workloads, whose priority and devices other objects determine.
func TestLoadedDefaults(t *testing.T) {
	const gpus = "example.com/gpus"
	addClass := func(s *snapshot.Snapshot, name string, isDefault bool) {
		s.PodPriorityClasses = append(s.PodPriorityClasses, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 7, GlobalDefault: isDefault})
	}
	type facts struct {
		Priority int32
		Class    string
		Devices  string
	}
	for name, c := range map[string]struct {
		change func(*snapshot.Snapshot, *jobsetapi.JobSet)
		want   facts
	}{
		"nothing": {func(s *snapshot.Snapshot, _ *jobsetapi.JobSet) { addClass(s, "other", false) }, facts{Devices: "0"}},
		"the PriorityClass of its pods": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			addClass(s, "high", false)
			js.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.PriorityClassName = "high"
		}, facts{7, "high", "0"}},
		"the default PriorityClass": {func(s *snapshot.Snapshot, _ *jobsetapi.JobSet) { addClass(s, "usual", true) }, facts{7, "usual", "0"}},
		"a PriorityClass above the limit": {func(s *snapshot.Snapshot, _ *jobsetapi.JobSet) {
			addClass(s, "usual", true)
			s.Configuration = snapshot.ReduceConfiguration(&configapi.Configuration{MaxPodPriority: new(int32(6))})
		}, facts{Devices: "0"}},
		"a ResourceClaimTemplate": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			s.Configuration = &configapi.Configuration{}
			s.Configuration.Resources.DeviceClassMappings = []configapi.DeviceClassMapping{{Name: gpus, DeviceClassNames: []corev1.ResourceName{"gpu.example.com"}}}
			claims := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: "gpus", UID: "u"}}
			claims.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: "gpu.example.com", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3,
			}}}
			s.ResourceClaimTemplates = append(s.ResourceClaimTemplates, claims)
			js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: new("gpus")}}
		}, facts{Devices: "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			taken := tampered(t, "queue ml gpu=4\nsubmit a queue=ml stages=data(gpu=1)=Succeeded=>train(gpu=2)\n", func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
				s.Workloads, s.Jobs = nil, nil
				c.change(s, js)
			})
			s, leftOut, err := fromSnapshot(taken, 0)
			if err != nil || len(leftOut) > 0 {
				t.Fatalf("left out %v, error %v", leftOut, err)
			}
			j := s.UserJobs[types.NamespacedName{Namespace: taken.JobSets[0].Namespace, Name: "a"}]
			devices := j.Submission.Plan.Stages[0].PodSets[0].Requests[gpus]
			got := facts{Priority: j.Priority, Devices: devices.String()}
			if j.PriorityClass != nil {
				got.Class = j.PriorityClass.Name
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLoadedPods loads Jobs and pods in states that scenarios do not have.
func TestLoadedPods(t *testing.T) {
	const text = "queue ml gpu=4 cpu=8\nsubmit a queue=ml stages=train(2*gpu=2) max-time=1h\nsubmit b queue=ml pods=gpu:4 at=1m\n"
	for name, c := range map[string]struct {
		change func(*snapshot.Snapshot, *jobsetapi.JobSet)
		want   time.Duration
	}{
		"as they are": {func(*snapshot.Snapshot, *jobsetapi.JobSet) {}, time.Hour},
		"in several rounds": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			job := s.Jobs[0].DeepCopy()
			for _, spec := range []*batchv1.JobSpec{&job.Spec, &js.Spec.ReplicatedJobs[0].Template.Spec} {
				spec.Completions, spec.CompletionMode = new(int32(9)), new(batchv1.NonIndexedCompletion)
			}
			job.Status.Succeeded = 3
			s.Jobs[0] = job
		}, time.Hour},
		"of a deleted JobSet": {func(s *snapshot.Snapshot, _ *jobsetapi.JobSet) {
			s.JobSets = nil
			s.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "a-train-0-x", DeletionTimestamp: new(metav1.NewTime(s.TakenAt.Add(time.Minute))),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Jobs[0], batchv1.SchemeGroupVersion.WithKind("Job"))},
			}}}
			s.Jobs[0] = s.Jobs[0].DeepCopy()
			s.Jobs[0].Status.Active, s.Jobs[0].Status.Ready = 0, nil
		}, 6 * time.Minute},
		"of a JobSet that is being deleted": {func(s *snapshot.Snapshot, js *jobsetapi.JobSet) {
			js.DeletionTimestamp, js.Finalizers = new(metav1.NewTime(s.TakenAt)), []string{metav1.FinalizerDeleteDependents}
		}, 5 * time.Minute},
		"whose resources have defaults": {func(s *snapshot.Snapshot, _ *jobsetapi.JobSet) {
			limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "limits"}}
			limits.Spec.Limits = []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": resource.MustParse("1")}, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("1")},
			}}
			s.LimitRanges = append(s.LimitRanges, limits)
		}, time.Hour},
		"whose owners are in another order": {func(s *snapshot.Snapshot, _ *jobsetapi.JobSet) {
			job := s.Jobs[0].DeepCopy()
			job.OwnerReferences = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}}, job.OwnerReferences...)
			s.Jobs[0] = job
		}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			taken := tampered(t, text, c.change)
			begin := taken.TakenAt.Add(-5 * time.Minute)
			p, err := Forecast(taken, &Durations{}, taken.TakenAt.Add(100*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Starts) != 1 || p.Starts[0].By.Sub(begin) != c.want {
				t.Errorf("predicted %+v, want a start after %s", p.Starts, c.want)
			}
		})
	}
}

// TestForecastIsDeterministic predicts several times from the same snapshot.
func TestForecastIsDeterministic(t *testing.T) {
	text := "queue ml gpu=4\n"
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		text += "submit " + name + " queue=ml stages=data(gpu=1)=Ready=>train(2*gpu=1) max-time=1h at=1m\n"
	}
	taken := tampered(t, text, func(_ *snapshot.Snapshot, js *jobsetapi.JobSet) {
		js.Status.ReplicatedJobsStatus = []jobset.ReplicatedJobStatus{{Name: "data", Active: 1}}
	})
	var first *Prediction
	for range 5 {
		p, err := Forecast(taken, &Durations{}, taken.TakenAt.Add(100*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = p
		}
		if diff := gocmp.Diff(first, p); diff != "" {
			t.Fatalf("-first +now\n%s", diff)
		}
	}
}
