package podgang_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

func newReserved(t failer) *world {
	w := newGroup(t, 2)
	w.object.MinResources = corev1.ResourceList{"cpu": resource.MustParse("2")}
	w.settle()
	return w
}

// TestUnusedQuotaIsReleased: a gang that holds quota and cannot start releases it, at once or when its waiting time has expired.
func TestUnusedQuotaIsReleased(t *testing.T) {
	for name, tc := range map[string]struct {
		gang func(t failer) *world
		wait time.Duration
	}{
		"strict, and a pod was deleted": {func(t failer) *world {
			w := newGroup(t, 2)
			w.add(1)
			w.add(1)
			w.settle()
			w.admit(w.workloads[0])
			w.vanish(w.pods[1])
			return w
		}, 0},
		"parts of a gang with a problem": {func(t failer) *world {
			w := newGang(t, 4, "min-available", "4", "mode", "NonStrict", "waiting-time", "60s")
			w.admit(w.workloads[0])
			w.admit(w.workloads[1])
			w.settings[apis.KoordinatorPrefix+"mode"] = "Strict"
			w.add(1)
			return w
		}, time.Minute},
		"parts of a gang of which a pod has gone": {func(t failer) *world {
			w := newGang(t, 4, "min-available", "4", "mode", "NonStrict", "waiting-time", "60s")
			for _, x := range w.workloads {
				w.admit(x)
			}
			w.vanish(w.pods[3])
			return w
		}, time.Minute},
		"reserved, and no pods come": {func(t failer) *world {
			w := newReserved(t)
			w.object.TimeoutSeconds = 60
			w.admit(w.workloads[0])
			return w
		}, time.Minute},
		"a gang that starts together with it has a problem": {func(t failer) *world {
			w := newGang(t, 1, "min-available", "1", "groups", `["ml/train","x/b"]`)
			b := podgang.Peer{
				Ref: podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "x", Name: "b"}, Exists: true, IsWhole: true, GangGroup: []string{"ml/train", "x/b"},
			}
			w.peers = []podgang.Peer{b}
			w.settle()
			w.admit(w.workloads[0])
			w.peers[0].Problem = "gone bad"
			return w
		}, 10 * time.Minute},
		"a gang that starts together with it is not admitted": {func(t failer) *world {
			w := newGang(t, 1, "min-available", "1", "groups", `["ml/train","x/b"]`)
			b := podgang.Peer{
				Ref: podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "x", Name: "b"}, Exists: true, IsWhole: true, GangGroup: []string{"ml/train", "x/b"},
			}
			w.peers = []podgang.Peer{b}
			w.settle()
			w.admit(w.workloads[0])
			return w
		}, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.gang(t)
			w.settle()
			if tc.wait > 0 {
				if !slices.ContainsFunc(w.workloads, quotaworkload.HoldsQuota) || w.last.RequeueAfter != tc.wait {
					t.Fatalf("requeues after %s, want in %s: %s", w.last.RequeueAfter, tc.wait, w.last.Message.Text)
				}
				w.now = w.now.Add(tc.wait)
				w.settle()
			}
			for _, x := range w.workloads {
				if quotaworkload.HoldsQuota(x) {
					t.Errorf("%s holds quota: %s, %+v", x.Name, w.last.Message.Text, x.Status)
				}
			}
		})
	}
}

// TestReservedElsewhere: quota that is reserved where the pods cannot run is released, and the gang asks for what they need.
func TestReservedElsewhere(t *testing.T) {
	for name, narrow := range map[string]func(*corev1.PodSpec){
		"by node selector": func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"pool": "on-demand"} },
		"by node affinity": func(spec *corev1.PodSpec) {
			spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "pool", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"spot"}},
				}}},
			}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newReserved(t)
			w.admitAll()
			narrow(&w.add(1).Spec)
			narrow(&w.add(1).Spec)
			w.settle()
			w.expect("gg", 1, "")
			if x := w.workloads[0]; quotaworkload.HoldsQuota(x) || len(x.Spec.PodSets) != 1 || x.Spec.PodSets[0].Count != 2 {
				t.Errorf("want no quota held, and a pod set of the pods: %+v", x)
			}
		})
	}
}

// TestInitialWorkloadReleasesUnusableQuota: an initial quota Workload that no pod uses any longer, and no waiting pod can use, does not keep its quota.
func TestInitialWorkloadReleasesUnusableQuota(t *testing.T) {
	t.Run("while all pods run on extras", func(t *testing.T) {
		w := newStarted(t, 2)
		for range 2 {
			w.add(3)
			w.settle()
			w.admitAll()
			w.vanish(w.pods[0])
			w.settle()
		}
		initial := w.workloads[0].UID
		w.expect("rr", 3, "has started")
		w.now = w.now.Add(w.last.RequeueAfter)
		w.settle()
		if x := w.workloads[0]; x.UID == initial && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
			t.Errorf("the initial quota Workload holds quota that no pod uses: %+v", x.Status)
		}
		w.vanish(w.pods[0])
		w.add(3)
		w.settle()
		w.admitAll()
		w.expect("rr", 2, "has started")
	})
	t.Run("while a pod waits that it keeps the quota from", func(t *testing.T) {
		w := newStarted(t, 2)
		w.pods = nil
		w.add(3)
		w.settle()
		w.expect("g", 2, "has started")
		w.now = w.now.Add(w.last.RequeueAfter)
		w.settle()
		w.expect("g", 0, "fewer than the 2 pods")
		w.add(3)
		w.settle()
		w.admitAll()
		w.expect("rr", 1, "has started")
	})
	t.Run("at once when all pods were recreated with other requests", func(t *testing.T) {
		w := newStarted(t, 2)
		w.vanish(w.pods[1])
		w.add(3)
		w.settle()
		w.expect("rg", 2, "has started")
		w.vanish(w.pods[0])
		w.add(3)
		w.settle()
		w.expect("gg", 1, "waits for quota")
		w.admitAll()
		w.expect("rr", 1, "has started")
	})
	t.Run("not yet when one of the recreated pods still fits", func(t *testing.T) {
		w := newStarted(t, 2)
		w.pods = nil
		w.add(3)
		w.add(1)
		w.settle()
		w.expect("gr", 2, "has started")
	})
}

// TestIdleGrace: the time in which pods can be recreated begins when the last one has terminated.
func TestIdleGrace(t *testing.T) {
	w := newStarted(t, 2)
	w.now = w.now.Add(10 * time.Minute)
	w.pods[0].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.now = w.now.Add(time.Minute)
	w.pods[1].Status.Phase = corev1.PodFailed
	w.settle()
	if quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) || w.last.RequeueAfter != 2*time.Minute {
		t.Fatalf("requeues after %s, and quota is %+v", w.last.RequeueAfter, w.workloads[0].Status)
	}
	if want := "none of its pods runs: its quota is released unless a pod is created within 2m0s"; !strings.Contains(w.last.Message.Text, want) {
		t.Errorf("message is %q, want %q", w.last.Message.Text, want)
	}
	w.now = w.now.Add(time.Minute)
	w.add(1)
	w.settle()
	w.expect("sfr", 1, "has started")
	w.pods[2].Status.Phase = corev1.PodFailed
	w.settle()
	if w.last.RequeueAfter != 2*time.Minute {
		t.Errorf("requeues after %s, want two minutes after the last pod", w.last.RequeueAfter)
	}
	w.now = w.now.Add(2 * time.Minute)
	w.settle()
	if !quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) {
		t.Errorf("a gang without pods keeps its quota: %+v", w.workloads[0].Status)
	}
}

// TestEvictNeedsLiveRead: a cache that does not show yet that all pods exist does not make a gang release its quota.
func TestEvictNeedsLiveRead(t *testing.T) {
	w := newGroup(t, 2)
	w.add(1)
	w.add(1)
	w.settle()
	w.admit(w.workloads[0])
	w.pods = w.pods[:1]
	if step := podgang.Next(w.seen(), w.now); len(step.Of(quotastep.Evict)) != 1 || step.Has(quotastep.Change) || !step.NeedsLive() {
		t.Errorf("evicts %d quota Workloads, NeedsLive is %t; want 1, true", len(step.Of(quotastep.Evict)), step.NeedsLive())
	}
}

// TestSingleHasNoIdleGrace: a gang of one releases the quota of a pod that has failed at once, because no pod of its name can be created.
func TestSingleHasNoIdleGrace(t *testing.T) {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Single, Namespace: "ml", Name: "pod-01"})
	w.add(1)
	w.settle()
	w.admitAll()
	w.expect("r", 1, "has started")
	w.pods[0].Status.Phase = corev1.PodFailed
	w.settle()
	if !quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) {
		t.Errorf("the quota of the failed pod is held, and the gang requeues after %s", w.last.RequeueAfter)
	}

	again := w.add(1)
	again.Name = "pod-01"
	w.pods = w.pods[1:]
	w.settle()
	w.expect("g", 1, "")
	w.admitAll()
	w.expect("r", 1, "has started")
}
