package podgang_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
)

// refuse takes all steps, but the API server rejects ungating pods.
func (w *world) refuse() {
	w.t.Helper()
	for range 40 {
		step := podgang.Next(w.seen(), w.now)
		step.Ungate = nil
		w.last = step
		if !w.apply(step) {
			return
		}
	}
	w.t.Fatalf("the steps did not come to an end, the last: %+v", w.last)
}

func (w *world) expectNothingHeld() {
	w.t.Helper()
	for _, x := range w.workloads {
		if quotaworkload.HoldsQuota(x) && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
			w.t.Errorf("%s holds quota that no pod uses: %s, %+v", x.Name, w.last.Message.Text, x.Status)
		}
	}
}

// TestQuotaOfGatedPodsIsReleased: quota of a started gang is not kept for pods that cannot be ungated.
func TestQuotaOfGatedPodsIsReleased(t *testing.T) {
	const grace = 2 * time.Minute
	t.Run("the API server rejects the pods", func(t *testing.T) {
		w := newGroup(t, 2)
		w.add(1)
		w.add(1)
		w.settle()
		w.admit(w.workloads[0])
		w.refuse()
		w.now = w.now.Add(grace)
		w.refuse()
		w.expectNothingHeld()
		w.expect("gg", 1, "waits for quota")
		w.admitAll()
		w.expect("rr", 1, "has started")
	})
	t.Run("the pods are misconfigured", func(t *testing.T) {
		w := newStarted(t, 2)
		w.pods = nil
		w.add(1)
		w.add(1).Annotations["kueue.x-k8s.io/podset-required-topology"] = "rack"
		w.settle()
		w.expect("gg", 1, "requests a topology")
		w.now = w.now.Add(grace)
		w.settle()
		w.expectNothingHeld()
	})
	t.Run("an extra quota Workload", func(t *testing.T) {
		w := newStarted(t, 2)
		w.add(1)
		w.settle()
		w.admit(w.workloads[1])
		w.refuse()
		w.expect("rrg", 2, "")
		for range 2 {
			if w.last.RequeueAfter != grace {
				t.Fatalf("requeues after %s, want in %s", w.last.RequeueAfter, grace)
			}
			w.now = w.now.Add(grace)
			w.refuse()
		}
		if x := w.workloads[1]; quotaworkload.HoldsQuota(x) || x.Status.RequeueState == nil {
			t.Errorf("%s holds quota that no pod uses: %+v", x.Name, x.Status)
		}
		w.now = w.now.Add(time.Hour)
		w.admitAll()
		w.expect("rrr", 2, "has started")
	})
	t.Run("not while a pod is new", func(t *testing.T) {
		w := newStarted(t, 2)
		w.pods[0].Status.Phase, w.pods[1].Status.Phase = corev1.PodFailed, corev1.PodFailed
		w.settle()
		w.now = w.now.Add(grace - time.Second)
		w.add(1)
		w.refuse()
		w.now = w.now.Add(time.Second)
		w.settle()
		w.expect("ffr", 1, "has started")
	})
	t.Run("not if the pods were created while the manager did not run", func(t *testing.T) {
		w := newStarted(t, 2)
		w.pods[0].Status.Phase, w.pods[1].Status.Phase = corev1.PodFailed, corev1.PodFailed
		w.settle()
		w.now = w.now.Add(time.Minute)
		w.add(1)
		w.add(1)
		// No manager runs, or none is the leader.
		w.now = w.now.Add(grace)
		w.settle()
		w.expect("ffrr", 1, "has started")
	})
}
