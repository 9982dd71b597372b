package podgang_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// newPreemptedEarly creates a gang that is admitted with the gang ml/b, and is preempted before its pod is ungated.
func newPreemptedEarly(t *testing.T, b *podgang.Peer) *world {
	t.Helper()
	w := newGang(t, 1, "min-available", "1", "groups", `["ml/b","ml/train"]`)
	b.GangGroup, b.IsWhole = []string{"ml/b", "ml/train"}, true
	w.peers = []podgang.Peer{*b}
	w.settle()
	w.admitAll()
	w.expect("g", 1, `waits for the admission of peer gang "ml/b"`)
	w.preempt(w.workloads[0])
	w.settle()
	return w
}

// newEndedEarly creates the gang ml/b of two pods, which is preempted after it has started. Both succeed before they are deleted.
func newEndedEarly(t *testing.T) *world {
	t.Helper()
	b := newWorld(t, podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "b"})
	b.settings = newGang(t, 0, "min-available", "2").settings
	b.add(1)
	b.add(1)
	b.settle()
	b.admitAll()
	b.expect("rr", 1, "has started")
	b.preempt(b.workloads[0])
	b.pods[0].Status.Phase, b.pods[1].Status.Phase = corev1.PodSucceeded, corev1.PodSucceeded
	return b
}

// TestStartsAfterOneThatHasStarted: a gang that was preempted before its pods were ungated does not wait for the pods of a gang that was admitted
// together with it, has started, and was preempted or has succeeded since.
func TestStartsAfterOneThatHasStarted(t *testing.T) {
	tests := map[string]func(*world){
		"and was preempted, and lost a pod": func(b *world) {
			b.pods[1].Status.Phase = corev1.PodFailed
			b.settle()
			b.vanish(b.pods[1])
		},
		"and has succeeded": func(*world) {},
	}
	for name, happens := range tests {
		t.Run(name, func(t *testing.T) {
			peer := newEndedEarly(t)
			w := newPreemptedEarly(t, &podgang.Peer{Ref: peer.ref, Exists: true})
			peer.now = w.now.Add(time.Second)
			happens(peer)
			peer.settle()
			w.peers = []podgang.Peer{podgang.PeerOf(peer.seen())}
			w.settle()
			w.admitAll()
			w.expect("r", 1, "has started")
		})
	}
}

// TestWaitsForAnotherRun: a gang that is created after another of its group has succeeded waits until the pods of that are created again.
func TestWaitsForAnotherRun(t *testing.T) {
	peer := newEndedEarly(t)
	peer.settle()
	w := newGang(t, 1, "min-available", "1", "groups", `["ml/b","ml/train"]`)
	w.now = peer.now.Add(time.Minute)
	w.peers = []podgang.Peer{podgang.PeerOf(peer.seen())}
	w.settle()
	w.expect("g", 0, "lists other gangs")
}

// TestSucceedsWhilePreempted: a gang whose pods have all succeeded is finished, also if it was preempted meanwhile.
func TestSucceedsWhilePreempted(t *testing.T) {
	w := newEndedEarly(t)
	w.settle()
	if x := w.workloads[0]; !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
		t.Errorf("%s has not finished: %+v", x.Name, x.Status)
	}
	w.expectNothingHeld()
}

// TestRemembersOneThatIsGone: a gang that was preempted before its pods were ungated starts without a gang that has started meanwhile, also when
// neither pods nor quota Workloads of that gang are left. Another run of that gang starts together with it.
func TestRemembersOneThatIsGone(t *testing.T) {
	for name, gone := range map[string][]podgang.Peer{
		"without an object": nil,
		"with its PodGroup": {{Exists: true, GangGroup: []string{"ml/b", "ml/train"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := podgang.Peer{Ref: podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "b"}, Exists: true}
			w := newPreemptedEarly(t, &b)
			b.HasStarted, b.IsAdmitted = true, true
			w.peers = []podgang.Peer{b}
			w.settle()

			again := b
			again.HasStarted, again.IsAdmitted = false, false
			w.peers = []podgang.Peer{again}
			w.settle()
			if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] == "" || x.Annotations[apis.StartedTogetherAnnotation] != "" {
				t.Errorf("the other gang waits for quota again, and the quota Workload has %v, %v", x.Labels, x.Annotations)
			}

			w.peers = []podgang.Peer{b}
			w.settle()
			for i := range gone {
				gone[i].Ref = b.Ref
			}
			w.peers = gone
			w.settle()
			if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] != "" {
				t.Errorf("the quota Workload is still admitted together with others: %v", x.Labels)
			}
			w.admitAll()
			w.expect("r", 1, "has started")
		})
	}
}

// TestRemembersWhileItHoldsQuota: a gang that holds quota and waits for another of its group, which was preempted, starts without a third one that has
// started and is gone by then.
func TestRemembersWhileItHoldsQuota(t *testing.T) {
	w := newGang(t, 1, "min-available", "1", "groups", `["ml/b","ml/c","ml/train"]`)
	gang := func(name string) podgang.Peer {
		ref := podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: name}
		return podgang.Peer{Ref: ref, Exists: true, IsWhole: true, GangGroup: []string{"ml/b", "ml/c", "ml/train"}}
	}
	b, c := gang("b"), gang("c")
	w.peers = []podgang.Peer{b, c}
	w.settle()
	w.admitAll()
	b.HasStarted, b.IsAdmitted = true, true
	w.peers = []podgang.Peer{b, c}
	w.settle()
	w.expect("g", 1, `waits for the admission of peer gang "ml/c"`)

	w.peers = []podgang.Peer{c}
	w.settle()
	c.IsAdmitted = true
	w.peers = []podgang.Peer{c}
	w.settle()
	w.expect("r", 1, "has started")
}
