package podgang_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

// backoff is longer than a gang backs off that has released its quota once.
const backoff = 2 * time.Minute

// newHalfDone returns a gang in parts that was evicted while its first pod was running. The other two have succeeded, and belong to another Job.
func newHalfDone(t *testing.T) *world {
	t.Helper()
	w := newGang(t, 3, "min-available", "3", "mode", "NonStrict", "waiting-time", "20s")
	owned(w.pods[:1], "a")
	owned(w.pods[1:], "b")
	w.admitAll()
	w.expect("rrr", 3, "has started")
	w.pods[1].Status.Phase, w.pods[2].Status.Phase = corev1.PodSucceeded, corev1.PodSucceeded
	w.settle()
	w.preempt(w.workloads[2])
	w.settle()
	w.expect("Rss", 3, "evicted")
	w.vanish(w.pods[0])
	w.settle()
	return w
}

// expectRestart recreates the pod of a gang that newHalfDone returns, and lets it succeed.
func (w *world) expectRestart() {
	w.t.Helper()
	owned([]*corev1.Pod{w.add(1)}, "a")
	w.settle()
	w.admitAll()
	w.expect("ssr", 3, "has started")
	w.pods[2].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.expect("sss", 3, "All pods of the gang have succeeded")
	w.expectNothingHeld()
}

// TestEvictedInParts: if a gang in parts is evicted when all pods of a Job have succeeded, which are not recreated, it starts again with the pods of its
// other Jobs.
func TestEvictedInParts(t *testing.T) {
	t.Run("admitted when the pod is recreated", func(t *testing.T) { newHalfDone(t).expectRestart() })
	t.Run("admitted before the pod is recreated", func(t *testing.T) {
		w := newHalfDone(t)
		for _, x := range w.workloads {
			delete(x.Annotations, apis.AdmissionGatedByAnnotation)
		}
		w.admitAll()
		w.expectRestart()
	})
	t.Run("the recreated pod is deleted before it starts", func(t *testing.T) {
		w := newHalfDone(t)
		owned([]*corev1.Pod{w.add(1)}, "a")
		w.settle()
		for _, x := range w.workloads {
			w.admit(x)
		}
		w.vanish(w.pods[2])
		w.settle()
		w.now = w.now.Add(w.last.RequeueAfter)
		w.settle()
		w.expectNothingHeld()
		w.now = w.now.Add(backoff)
		w.expectRestart()
	})
}

// TestEvictedPart: a part of a gang asks for no more pods than are recreated after its eviction.
func TestEvictedPart(t *testing.T) {
	w := newGang(t, 17, "min-available", "17", "mode", "NonStrict")
	owned(w.pods, "a")
	w.admitAll()
	w.expect(strings.Repeat("r", 17), 16, "has started")
	last := len(w.workloads) - 1
	if n := w.workloads[last].Spec.PodSets[0].Count; n != 2 {
		t.Fatalf("the last part is for %d pods, want 2", n)
	}
	w.pods[len(w.pods)-1].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.preempt(w.workloads[0])
	w.settle()
	for range 16 {
		w.vanish(w.pods[0])
		owned([]*corev1.Pod{w.add(1)}, "a")
	}
	w.settle()
	w.admitAll()
	w.expect("s"+strings.Repeat("r", 16), 16, "has started")
	if n := w.workloads[last].Spec.PodSets[0].Count; n != 1 {
		t.Errorf("the last part asks again for %d pods, want the one that has not succeeded", n)
	}
	for _, pod := range w.pods {
		pod.Status.Phase = corev1.PodSucceeded
	}
	w.settle()
	w.expect(strings.Repeat("s", 17), 16, "All pods of the gang have succeeded")
	w.expectNothingHeld()
}

// TestEvictedWhole: the pods of one Job that have succeeded still count when the recreated pod of another Job disappears before it starts.
func TestEvictedWhole(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	owned(w.pods[:1], "a")
	owned(w.pods[1:], "b")
	w.admitAll()
	w.pods[1].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.preempt(w.workloads[0])
	w.settle()
	w.vanish(w.pods[0])
	owned([]*corev1.Pod{w.add(1)}, "a")
	w.settle()
	w.admit(w.workloads[0])
	w.vanish(w.pods[1])
	w.settle()
	w.expectNothingHeld()
	owned([]*corev1.Pod{w.add(1)}, "a")
	w.now = w.now.Add(backoff)
	w.settle()
	w.admitAll()
	w.expect("sr", 1, "has started")
}

// TestStartInterrupted: a gang in parts starts as a whole also if the manager dies when the first part is recorded as started.
func TestStartInterrupted(t *testing.T) {
	l := &lab{world: newGang(t, 2, "min-available", "2", "mode", "NonStrict")}
	for _, x := range slices.Clone(l.workloads) {
		l.admit(x)
	}
	l.syncPods()
	l.syncWorkloads()
	l.pass(1)
	l.expect("gg", 2, "has started")
	l.settle()
	l.expect("rr", 2, "has started")
	l.preempt(l.workloads[0])
	l.settle()
	l.expect("RR", 2, "evicted")
	l.vanish(l.pods[1])
	l.vanish(l.pods[0])
	l.settle()
	l.expectNothingHeld()
}
