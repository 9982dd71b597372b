package apply_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/internal/apply"
)

// A countingReader has every object but the one named gone, and counts how often each name is read.
type countingReader struct {
	client.Reader
	reads map[string]int
}

func (r countingReader) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	r.reads[key.Name]++
	if key.Name == "gone" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "resourceflavors"}, key.Name)
	}
	object.SetName(key.Name)
	return nil
}

// TestFlavors: every resource of every pod set names a flavor, usually the same one. Each reconcile reads it once.
func TestFlavors(t *testing.T) {
	var workloads []*kueue.Workload
	for range 3 {
		w := &kueue.Workload{}
		w.Status.Admission = &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
			{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot", "memory": "spot", "gpu": "h100"}},
			{Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"}},
		}}
		workloads = append(workloads, w)
	}
	workloads[2].Status.Admission.PodSetAssignments[1].Flavors["cpu"] = "gone"
	r := countingReader{reads: map[string]int{}}
	flavors, err := apply.Flavors(t.Context(), r, append(workloads, &kueue.Workload{}))
	if err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(flavors)); !slices.Equal(names, []kueue.ResourceFlavorReference{"h100", "spot"}) || flavors["spot"].Name != "spot" {
		t.Errorf("flavors %v, want h100 and spot", names)
	}
	if r.reads["spot"] != 1 || r.reads["h100"] != 1 {
		t.Errorf("reads %v, want one of each flavor", r.reads)
	}
}
