package snapshot_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/snapshot"
)

// TestChangeOfOneObject replaces, adds and removes objects of a snapshot. The snapshot itself stays as it is.
func TestChangeOfOneObject(t *testing.T) {
	queue := func(name, strategy string) *kueue.ClusterQueue {
		return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{QueueingStrategy: kueue.QueueingStrategy(strategy)}}
	}
	before := &snapshot.Snapshot{ClusterQueues: []*kueue.ClusterQueue{queue("a", ""), queue("c", "")}, Namespaces: []*corev1.Namespace{{}}}
	kind := snapshot.KindOf(&kueue.ClusterQueue{})
	after := kind.With(kind.With(before, queue("b", "")), queue("a", "StrictFIFO"))
	after = kind.Without(after, "", "c")
	strategies := func(s *snapshot.Snapshot) map[string]string {
		all := map[string]string{}
		for o := range kind.Objects(s) {
			all[o.GetName()] = string(kind.Find(s, "", o.GetName()).(*kueue.ClusterQueue).Spec.QueueingStrategy)
		}
		return all
	}
	if diff := cmp.Diff(map[string]string{"a": "StrictFIFO", "b": ""}, strategies(after)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "", "c": ""}, strategies(before)); diff != "" || len(after.Namespaces) != 1 {
		t.Errorf("the first snapshot has changed: -want +got\n%s", diff)
	}
	if kind.Find(after, "", "c") != nil || kind.Find(after, "team", "a") != nil {
		t.Error("objects are found that do not exist")
	}
}

// TestKinds finds each kind by an object and by its resource, and keeps only the fields that decide admission.
func TestKinds(t *testing.T) {
	for _, kind := range snapshot.Kinds() {
		object := snapshot.NewObject(kind)
		if found := snapshot.KindOf(object); found == nil || found.GVK != kind.GVK {
			t.Errorf("%T is of kind %v, want %v", object, found, kind.GVK)
		}
		if found := snapshot.KindNamed(schema.GroupResource{Group: kind.GVK.Group, Resource: kind.Resource}); found == nil || found.GVK != kind.GVK {
			t.Errorf("%s is the resource of %v, want %v", kind.FullResource(), found, kind.GVK)
		}
	}
	if kind := snapshot.KindNamed(schema.GroupResource{Resource: "secrets"}); kind != nil {
		t.Errorf("secrets are of kind %v", kind.GVK)
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if reduced := snapshot.Reduced(pod); reduced.Spec.Containers[0].Image != "" || pod.Spec.Containers[0].Image == "" {
		t.Errorf("reduced to %v of %v", reduced.Spec, pod.Spec)
	}
	if reduced := snapshot.ReducedObject(snapshot.KindOf(pod), pod).(*corev1.Pod); !slices.EqualFunc(reduced.Spec.Containers, pod.Spec.Containers, func(a, b corev1.Container) bool { return a.Name == b.Name }) {
		t.Errorf("reduced to %v", reduced.Spec)
	}
}
