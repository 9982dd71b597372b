package podgang_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
)

// TestOwners: the number of owner references does not grow with the pods, and a quota Workload never loses its last owner while there are pods.
func TestOwners(t *testing.T) {
	w := newGang(t, 200, "min-available", "40")
	w.admitAll()
	initial := w.workloads[0]
	if n := len(initial.OwnerReferences); n != 16 {
		t.Errorf("%d of 200 pods own the initial quota Workload, want 16", n)
	}
	for _, x := range w.workloads {
		if uid := x.Labels[apis.ExtraLabel]; uid != "" && (len(x.OwnerReferences) != 1 || string(x.OwnerReferences[0].UID) != uid) {
			t.Fatalf("the quota Workload of pod %s is owned by %v", uid, x.OwnerReferences)
		}
	}
	for len(w.pods) > 1 {
		gone := w.pods[0].UID
		w.vanish(w.pods[0])
		there := w.find(initial)
		there.OwnerReferences = deleteOwner(there.OwnerReferences, gone)
		w.settle()
		if n := len(w.find(initial).OwnerReferences); n < min(len(w.pods), 8) || n > 24 {
			t.Fatalf("%d of %d pods own the initial quota Workload", n, len(w.pods))
		}
	}
}

func deleteOwner(owners []metav1.OwnerReference, uid types.UID) []metav1.OwnerReference {
	var all []metav1.OwnerReference
	for _, o := range owners {
		if o.UID != uid {
			all = append(all, o)
		}
	}
	return all
}

// TestOwnedByController: the controller of the pods owns the initial quota Workload in their place.
func TestOwnedByController(t *testing.T) {
	w := newGang(t, 0, "min-available", "3")
	for range 3 {
		w.add(1)
	}
	for _, pod := range w.pods[:2] {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "job", Controller: new(true)}}
	}
	w.settle()
	var owners []string
	for _, o := range w.workloads[0].OwnerReferences {
		owners = append(owners, o.Kind+" "+o.Name)
	}
	if got := strings.Join(owners, ", "); got != "Job train, Pod pod-03" {
		t.Errorf("owned by %s", got)
	}
}

// TestManyExtras: of the pods of one shape that wait for quota of their own only the first ask for it, and the others follow.
func TestManyExtras(t *testing.T) {
	w := newGang(t, 1, "min-available", "1")
	w.admitAll()
	for range 70 {
		w.add(1)
	}
	peer := w.add(2)
	w.settle()
	asks := func(uid types.UID) bool {
		for _, x := range w.workloads {
			if x.Labels[apis.ExtraLabel] == string(uid) {
				return true
			}
		}
		return false
	}
	w.expect("r"+strings.Repeat("g", 71), 1+64+1, "has started")
	if !asks(peer.UID) || asks(w.pods[65].UID) {
		t.Error("the pod of another shape does not ask, or the 65th of the same does")
	}
	w.admitAll()
	w.expect("r"+strings.Repeat("r", 64)+strings.Repeat("g", 6)+"r", 1+71, "has started")
	w.admitAll()
	w.expect(strings.Repeat("r", 72), 72, "has started")
}

// BenchmarkFill is one step of a gang that has started with one pod, and has others of as many shapes that wait for quota of their own.
func BenchmarkFill(b *testing.B) {
	w := newGang(b, 1, "min-available", "1")
	w.admitAll()
	for i := range 5000 {
		w.add(i + 1)
	}
	w.settle()
	s := w.seen()
	for b.Loop() {
		podgang.Next(s, w.now)
	}
}
