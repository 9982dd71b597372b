package podgang_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// newGroup creates a gang with a PodGroup, of which least pods start together.
func newGroup(t failer, least int) *world {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Coscheduling, Namespace: "ml", Name: "train"})
	w.object = &podgroup.Object{
		APIVersion: "scheduling.x-k8s.io/v1alpha1", Name: "train", UID: "group-1", MinMember: int64(least), Labels: map[string]string{apis.QueueLabel: "main"},
	}
	return w
}

func newStarted(t failer, least int) *world {
	w := newGroup(t, least)
	for range least {
		w.add(1)
	}
	w.settle()
	w.admitAll()
	w.expect(strings.Repeat("r", least), 1, "has started")
	return w
}

// TestRemoveFinalizerNeedsLiveRead: the finalizer of a quota Workload that is being deleted stays until the API server shows that none of its pods runs.
func TestRemoveFinalizerNeedsLiveRead(t *testing.T) {
	w := newGroup(t, 2)
	w.add(1)
	w.add(1)
	w.settle()
	gated := []*corev1.Pod{w.pods[0].DeepCopy(), w.pods[1].DeepCopy()}
	w.admitAll()
	w.workloads[0].DeletionTimestamp = new(metav1.NewTime(w.now))
	w.pods = gated // a stale cache
	step := podgang.Next(w.seen(), w.now)
	if len(step.Of(quotastep.RemoveFinalizer)) != 1 || !step.NeedsLive() {
		t.Errorf("removes the finalizers of %d quota Workloads, NeedsLive is %t; want 1, true", len(step.Of(quotastep.RemoveFinalizer)), step.NeedsLive())
	}
}

// TestReservedNotFinishedUnderPods: no step ungates a pod on a quota Workload that it finishes.
func TestReservedNotFinishedUnderPods(t *testing.T) {
	w := newGroup(t, 1)
	w.object.MinResources = corev1.ResourceList{"cpu": resource.MustParse("1")}
	w.settle()
	w.admitAll()
	w.add(1)
	w.add(1)
	w.settle()
	w.expect("rg", 2, "has started")
	w.pods[0].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.expect("sr", 1, "has started")
	if quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) || !quotaworkload.HoldsQuota(w.workloads[0]) {
		t.Errorf("a pod runs on quota that is free for others: %+v", w.workloads[0].Status)
	}
	w.pods[1].Status.Phase = corev1.PodSucceeded
	w.settle()
	if !quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) {
		t.Errorf("all have succeeded, and the gang has not finished: %+v", w.workloads[0].Status)
	}
}

// TestEvictionDeletesPodsOfUnneededWorkloads: pods are deleted when their quota Workload is evicted, also if it is about to be deleted itself.
func TestEvictionDeletesPodsOfUnneededWorkloads(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"the PodGroup is deleted": func(w *world) {
			w.object = nil
			w.workloads[0].DeletionTimestamp = new(metav1.NewTime(w.now))
		},
		"the PodGroup is recreated": func(w *world) {
			object := *w.object
			object.UID = "group-2"
			w.object = &object
		},
		"the quota Workload is deleted": func(w *world) { w.workloads[0].DeletionTimestamp = new(metav1.NewTime(w.now)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newStarted(t, 2)
			uid := w.workloads[0].UID
			lose(w)
			w.settle()
			w.preempt(w.workloads[0])
			w.settle()
			if got := w.standing(); got != "RR" {
				t.Errorf("pods of an evicted gang are %q, want them deleted", got)
			}
			w.pods = nil
			w.settle()
			if slices.ContainsFunc(w.workloads, func(x *kueue.Workload) bool { return x.UID == uid }) {
				t.Error("the quota Workload is kept, and its quota with it")
			}
		})
	}
}

// TestOneInitialWorkloadIsKept: if stale caches have led to two quota Workloads of a gang, one is kept.
func TestOneInitialWorkloadIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		admitted     int
		wantStanding string
	}{
		"none holds quota": {0, "gg"},
		"one holds quota":  {1, "rr"},
		"both hold quota":  {2, "rr"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "train"})
			w.settings[apis.KoordinatorPrefix+"name"] = "train"
			w.settings[apis.KoordinatorPrefix+"min-available"] = "2"
			first := w.add(1)
			w.add(1)
			w.now = w.now.Add(time.Second)
			w.add(1)
			before := podgang.Next(w.seen(), w.now)
			if !before.NeedsLive() {
				t.Error("the initial quota Workload is created from cached objects")
			}
			w.vanish(first)
			stale := podgang.Next(w.seen(), w.now)
			w.apply(before)
			w.apply(stale)
			slices.SortFunc(w.workloads, func(a, b *kueue.Workload) int { return cmp.Compare(b.Name, a.Name) })
			for i := range tc.admitted {
				w.admit(w.workloads[i])
			}
			w.settle()
			w.expect(tc.wantStanding, 1, "")
			w.admitAll()
			w.expect("rr", 1, "has started")
		})
	}
}

func owned(pods []*corev1.Pod, uid types.UID) {
	for _, pod := range pods {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: uid, Controller: new(true)}}
	}
}

// TestRunsApart: pods of an earlier run that have succeeded, or still run, do not count for the next one.
func TestRunsApart(t *testing.T) {
	t.Run("the next run", func(t *testing.T) {
		w := newStarted(t, 4)
		for _, pod := range w.pods {
			pod.Status.Phase = corev1.PodSucceeded
		}
		owned(w.pods, "first")
		w.settle()
		owned([]*corev1.Pod{w.add(1)}, "second")
		w.settle()
		w.expect("ssssg", 0, "fewer than the 4 pods")
		for range 3 {
			w.add(1)
		}
		w.settle()
		w.admitAll()
		w.expect("ssssrrrr", 1, "has started")
	})
	t.Run("the rest of the same Job", func(t *testing.T) {
		w := newStarted(t, 4)
		for _, pod := range w.pods {
			pod.Status.Phase = corev1.PodSucceeded
		}
		w.settle()
		w.add(1)
		owned(w.pods, "first")
		w.settle()
		w.admitAll()
		w.expect("ssssr", 1, "has started")
	})
	t.Run("after the PodGroup was recreated", func(t *testing.T) {
		w := newStarted(t, 2)
		object := *w.object
		object.UID = "group-2"
		w.object = &object
		owned(w.pods, "first")
		owned([]*corev1.Pod{w.add(1)}, "second")
		w.settle()
		w.expect("rrg", 1, "fewer than the 2 pods")
	})
	t.Run("what was paid for before an eviction, and by an extra", func(t *testing.T) {
		w := newStarted(t, 3)
		w.now = w.now.Add(time.Minute)
		w.add(1)
		w.settle()
		w.admitAll()
		w.pods[0].Status.Phase, w.pods[3].Status.Phase = corev1.PodSucceeded, corev1.PodSucceeded
		w.settle()
		w.preempt(w.workloads[0])
		w.settle()
		w.vanish(w.pods[1])
		w.vanish(w.pods[1])
		w.add(1)
		w.settle()
		w.admitAll()
		w.expect("ssr", 1, "has started")
	})
	t.Run("a surplus pod waits when the rest has ended", func(t *testing.T) {
		w := newStarted(t, 2)
		w.add(1)
		for _, pod := range w.pods[:2] {
			pod.Status.Phase = corev1.PodSucceeded
		}
		w.settle()
		w.admitAll()
		w.expect("ssr", 2, "has started")
	})
}
