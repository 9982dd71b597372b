package podgang_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestPastTogether: a gang that has started together with others is independent, also when it has to ask for quota again.
func TestPastTogether(t *testing.T) {
	w := newGang(t, 1, "min-available", "1", "groups", `["ml/train","x/b"]`)
	owned(w.pods, "job")
	b := podgang.Peer{
		Ref: podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "x", Name: "b"}, Exists: true, IsWhole: true, GangGroup: []string{"ml/train", "x/b"}, IsAdmitted: true,
	}
	w.peers = []podgang.Peer{b}
	w.settle()
	w.admitAll()
	w.expect("r", 1, "has started")
	w.pods[0].Status.Phase = corev1.PodFailed
	w.settle()
	w.now = w.now.Add(w.last.RequeueAfter)
	w.settle()
	w.expectNothingHeld()

	// The other has finished meanwhile.
	w.peers = nil
	w.add(1)
	owned(w.pods, "job")
	w.settle()
	w.expect("fg", 1, "waits for quota")
	if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] != "" {
		t.Errorf("the quota Workload is still admitted together with others: %v", x.Labels)
	}
	w.admitAll()
	w.expect("fr", 1, "has started")

	// A new run of both has not started yet.
	w.pods[1].Status.Phase = corev1.PodSucceeded
	w.settle()
	owned([]*corev1.Pod{w.add(1)}, "another")
	w.settle()
	w.expect("fsg", 0, "does not exist")
}

// TestEvictedTogether: a gang that has started together with others stays independent when it is evicted, and for a moment has no pods.
func TestEvictedTogether(t *testing.T) {
	for name, c := range map[string]struct{ isEarly, hasObject bool }{
		"waits for its pods": {}, "is admitted before its pods exist": {isEarly: true}, "has a PodGroup": {isEarly: true, hasObject: true},
	} {
		t.Run(name, func(t *testing.T) {
			together := map[string]string{apis.KoordinatorPrefix + "groups": `["ml/train","x/b"]`}
			w := newGang(t, 2, "min-available", "2", "groups", `["ml/train","x/b"]`)
			if c.hasObject {
				w = newWorld(t, podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "train"})
				w.object = &podgroup.Object{Name: "train", UID: "group", MinMember: 2, Annotations: together, Labels: map[string]string{apis.QueueLabel: "main"}}
				w.add(1)
				w.add(1)
			}
			owned(w.pods, "job")
			b := podgang.Peer{
				Ref: podgroup.Ref{Kind: w.ref.Kind, Namespace: "x", Name: "b"}, Exists: true, IsWhole: true, GangGroup: []string{"ml/train", "x/b"}, IsAdmitted: true,
			}
			w.peers = []podgang.Peer{b}
			w.settle()
			w.admitAll()
			w.expect("rr", 1, "has started")
			w.peers = nil // it has finished
			w.preempt(w.workloads[0])
			w.settle()
			w.expect("RR", 1, "evicted")
			w.pods = nil
			if w.settle(); c.isEarly {
				delete(w.workloads[0].Annotations, apis.AdmissionGatedByAnnotation)
				w.admitAll()
				w.now = w.now.Add(backoff)
			}
			w.expectNothingHeld()
			owned([]*corev1.Pod{w.add(1), w.add(1)}, "job")
			w.settle()
			w.admitAll()
			w.expect("rr", 1, "has started")
		})
	}
}

// TestScaledDown: a gang whose pods are deleted, and not because it is evicted, releases its quota at once.
func TestScaledDown(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	owned(w.pods, "job")
	w.settle()
	w.admitAll()
	w.expect("rr", 1, "has started")
	w.pods = nil
	w.settle()
	w.expect("", 0, "")
}

// TestRolledOut: pods of a started gang need not agree with those that replace them.
func TestRolledOut(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	w.settings[apis.KoordinatorPrefix+"min-available"] = "3"
	for range 3 {
		w.add(1)
		w.settle()
		w.admitAll()
	}
	w.expect("rrrrr", 4, "has started")
	w.vanish(w.pods[0])
	w.vanish(w.pods[0])
	w.settle()
	w.expect("rrr", 4, "has started")

	w.settings[apis.KoordinatorPrefix+"min-available"] = "4"
	w.add(1)
	w.settings[apis.KoordinatorPrefix+"min-available"] = "5"
	w.add(1)
	w.settle()
	w.expect("rrrgg", 4, "different values")
}

// TestMoved: a pod of another queue does not take the slot of a pod that is gone.
func TestMoved(t *testing.T) {
	w := newStarted(t, 2)
	w.vanish(w.pods[0])
	w.add(1).Labels[apis.QueueLabel] = "other"
	w.settle()
	w.expect("rg", 2, "has started")
	if queue := w.workloads[1].Spec.QueueName; queue != "other" {
		t.Errorf("quota for the pod is asked for in queue %q", queue)
	}
	w.admitAll()
	w.expect("rr", 2, "has started")
}

// TestEndsInParts: a gang whose parts have finished differently has not succeeded.
func TestEndsInParts(t *testing.T) {
	for name, failed := range map[string]int{"the first": 0, "the last": 1} {
		t.Run(name, func(t *testing.T) {
			w := newGang(t, 2, "min-available", "2", "mode", "NonStrict")
			w.admitAll()
			w.expect("rr", 2, "has started")
			w.pods[failed].Status.Phase = corev1.PodFailed
			w.pods[1-failed].Status.Phase = corev1.PodSucceeded
			w.settle()
			w.now = w.now.Add(w.last.RequeueAfter)
			w.settle()
			w.expectNothingHeld()
			if want := "not all of them succeeded"; !strings.Contains(w.last.Message.Text, want) {
				t.Errorf("message is %q, want %q", w.last.Message.Text, want)
			}
		})
	}
}
