package cached_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/cmd/tranche/cached"
)

// workload returns a quota Workload with a pod set, changed by some functions.
func workload(name string, changes ...func(*kueue.PodSet)) *kueue.Workload {
	p := kueue.PodSet{Name: "main", Count: 2}
	p.Template.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "example.com/train", Args: []string{"--steps=1"},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("1Gi")}},
	}}
	for _, change := range changes {
		change(&p)
	}
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	w.Spec.PodSets = []kueue.PodSet{p}
	return w
}

func transform(t *testing.T, s *cached.Sharer, w *kueue.Workload) *kueue.Workload {
	t.Helper()
	want := w.DeepCopy()
	want.ManagedFields = nil
	object, err := s.Transform(w)
	got, isWorkload := object.(*kueue.Workload)
	if err != nil || !isWorkload {
		t.Fatalf("Transform() = %T, %v", object, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Transform() changes the object: -want +got\n%s", diff)
	}
	return got
}

func TestTransform(t *testing.T) {
	tests := map[string]struct {
		change     func(*kueue.PodSet)
		wantShared bool
	}{
		"equal": {func(*kueue.PodSet) {}, true},
		"count": {func(p *kueue.PodSet) { p.Count = 3 }, false},
		"name":  {func(p *kueue.PodSet) { p.Name = "workers" }, false},
		"requests": {func(p *kueue.PodSet) {
			p.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("5")
		}, false},
		"arguments":  {func(p *kueue.PodSet) { p.Template.Spec.Containers[0].Args[0] = "--steps=2" }, false},
		"not hashed": {func(p *kueue.PodSet) { p.Template.Spec.Containers[0].WorkingDir = "/data" }, false},
		"toleration": {func(p *kueue.PodSet) { p.Template.Spec.Tolerations = []corev1.Toleration{{Key: "spot"}} }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := cached.NewSharer()
			first, second := transform(t, s, workload("a")), transform(t, s, workload("b", test.change))
			isShared := unsafe.SliceData(first.Spec.PodSets) == unsafe.SliceData(second.Spec.PodSets)
			if isShared != test.wantShared {
				t.Errorf("the pod sets are shared: %v, want %v", isShared, test.wantShared)
			}
			again := transform(t, s, workload("c", test.change))
			if unsafe.SliceData(again.Spec.PodSets) != unsafe.SliceData(second.Spec.PodSets) {
				t.Error("the pod sets of two equal ones are not shared")
			}
		})
	}
}

// TestPods: the Jobs of a ReplicatedJob share their containers with each other, and a JobSet with itself before a change of its status, also if both change in
// turn. The API server sets more fields of a Job.
func TestPods(t *testing.T) {
	pod := func(steps string) corev1.PodTemplateSpec {
		template := workload("").Spec.PodSets[0].Template
		template.Spec.Containers[0].Args[0] = steps
		return template
	}
	s := cached.NewSharer()
	jobSet := func(steps string, restarts int32) []corev1.Container {
		js := &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: make([]jobsetapi.ReplicatedJob, 1)}}
		js.Spec.ReplicatedJobs[0].Template.Spec.Template = pod(steps)
		js.Status.Restarts = restarts
		want := js.DeepCopy()
		if _, err := s.Transform(js); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, js); diff != "" {
			t.Errorf("Transform() changes a JobSet: -want +got\n%s", diff)
		}
		return js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers
	}
	job := func(name, steps string) []corev1.Container {
		labels := func() map[string]string {
			return map[string]string{"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/job-key": name}
		}
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels()}, Spec: batchv1.JobSpec{Template: pod(steps)}}
		j.Spec.Template.Labels = labels()
		j.Spec.Template.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		want := j.DeepCopy()
		if _, err := s.Transform(j); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, j); diff != "" {
			t.Errorf("Transform() changes a Job: -want +got\n%s", diff)
		}
		return j.Spec.Template.Spec.Containers
	}
	js, first, other := jobSet("--steps=1", 0), job("js-train-0", "--steps=1"), jobSet("--steps=2", 0)
	again, second := jobSet("--steps=1", 1), job("js-train-1", "--steps=1")
	if unsafe.SliceData(js) != unsafe.SliceData(again) {
		t.Error("a JobSet does not share its containers with itself before a restart")
	}
	if unsafe.SliceData(first) != unsafe.SliceData(second) {
		t.Error("the Jobs of a ReplicatedJob do not share their containers")
	}
	if unsafe.SliceData(js) == unsafe.SliceData(other) {
		t.Error("JobSets with other arguments share their containers")
	}
}

// waiting returns a quota Workload as the API server stores it, with texts of its own.
func waiting(t *testing.T, name string) *kueue.Workload {
	t.Helper()
	w := workload(name)
	w.Labels = map[string]string{"tranche.dev/stage": name}
	w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: name}}
	w.Finalizers = []string{"tranche.dev/quota"}
	w.Spec.QueueName, w.Spec.PriorityClassRef = "main", &kueue.PriorityClassRef{Group: "kueue.x-k8s.io", Kind: "WorkloadPriorityClass", Name: "low"}
	w.Status.Conditions = []metav1.Condition{{Type: "QuotaReserved", Status: "False", Reason: "WaitingForQuota", Message: "waits for quota: 0 of 8 free"}}
	w.Status.ResourceRequests = []kueue.PodSetRequest{{Name: "main", Resources: corev1.ResourceList{"cpu": resource.MustParse("8")}}}
	data, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	stored := &kueue.Workload{}
	if err := json.Unmarshal(data, stored); err != nil {
		t.Fatal(err)
	}
	return stored
}

func TestTexts(t *testing.T) {
	texts := func(w *kueue.Workload) map[string]*byte {
		c, owner, class := &w.Status.Conditions[0], &w.OwnerReferences[0], w.Spec.PriorityClassRef
		all := []string{
			w.Namespace, string(w.Spec.QueueName), owner.APIVersion, owner.Kind, w.Finalizers[0], string(class.Group), string(class.Kind), class.Name,
			c.Type, string(c.Status), c.Reason, c.Message,
		}
		for key := range w.Labels {
			all = append(all, key)
		}
		where := map[string]*byte{}
		for _, text := range all {
			where[text] = unsafe.StringData(text)
		}
		return where
	}
	s := cached.NewSharer()
	first, second := transform(t, s, waiting(t, "a")), transform(t, s, waiting(t, "b"))
	of := texts(second)
	for text, at := range texts(first) {
		if of[text] != at {
			t.Errorf("%q is not shared", text)
		}
	}
	if unsafe.SliceData(first.Status.ResourceRequests) != unsafe.SliceData(second.Status.ResourceRequests) {
		t.Error("the requests are not shared")
	}
	for i := range 1 << 17 { // more than are known at a time
		w := workload("c")
		w.Namespace = strconv.Itoa(i)
		if _, err := s.Transform(w); err != nil {
			t.Fatal(err)
		}
	}
	transform(t, s, waiting(t, "d"))
}

func TestTransformOthers(t *testing.T) {
	s := cached.NewSharer()
	transform(t, s, &kueue.Workload{})
	object, err := s.Transform(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}})
	if err != nil || len(object.(*corev1.Namespace).ManagedFields) > 0 {
		t.Errorf("Transform() = %v, %v", object, err)
	}
	if object, err := s.Transform("no object"); err != nil || object != "no object" {
		t.Errorf("Transform() = %v, %v", object, err)
	}
}
