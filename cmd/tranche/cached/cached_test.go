package cached_test

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
		"not hashed": {func(p *kueue.PodSet) { p.Template.Spec.Containers[0].Args[0] = "--steps=2" }, false},
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
