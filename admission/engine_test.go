package admission_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

func twoStages(first, status, second string) []job {
	return []job{{name: "first", requests: first}, {name: "second", requests: second, after: []string{"first " + status}}}
}

func TestAdmitsInOrderWhatFits(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=8")
	w.lone("q", "one", "gpu=5")
	w.lone("q", "two", "gpu=5")
	w.lone("q", "three", "gpu=3")
	w.wantAdmitted("one", "three")
	w.wantRefusal("two", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "5 nvidia.com/gpu of flavor a100: 3 of 8 free")
	w.wantAdmitted()
	w.change("one", finish)
	w.wantAdmitted("two")
	if got, want := w.used("q"), "a100/nvidia.com/gpu=8"; got != want {
		t.Errorf("used %s, want %s", got, want)
	}
	w.remove("two")
	w.remove("three")
	if got, want := w.used("q"), "a100/nvidia.com/gpu=0"; got != want {
		t.Errorf("used %s, want %s", got, want)
	}
}

func TestStrictFIFO(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Greedy})
	w.queue("q", "a100: gpu=8", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
	w.submit("q", "running", twoStages("gpu=4", "Ready", "gpu=2")...)
	w.wantAdmitted("running-first")
	w.lone("q", "never", "gpu=9")
	w.lone("q", "big", "gpu=5")
	w.lone("q", "small", "gpu=1")
	w.wantAdmitted()
	w.wantRefusal("never", "WithinLimits", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, "quota is 8")
	w.wantRefusal("big", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "4 of 8 free")
	w.wantRefusal("small", "StrictFIFO", kueue.WorkloadQuotaReservedReasonWaitingForQuota, `waits behind quota Workload "big"`)
	w.reach("running", "first", stageplan.Ready)
	w.wantAdmitted("running-second")
	w.remove("big")
	w.wantAdmitted("small")
}

func TestSafeKeepsTwoFromWaitingForEachOther(t *testing.T) {
	for policy, want := range map[string]struct {
		first, second []string
	}{
		admission.Safe:    {[]string{"a-first"}, []string{"a-second"}},
		admission.Reserve: {[]string{"a-first"}, []string{"a-second"}},
		admission.Greedy:  {[]string{"a-first", "b-first"}, nil},
	} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, admission.Config{StageAdmission: policy})
			w.queue("q", "a100: gpu=9")
			w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=6")...)
			w.submit("q", "b", twoStages("gpu=2", "Ready", "gpu=6")...)
			w.wantAdmitted(want.first...)
			for _, name := range []string{"a", "b"} {
				if len(want.first) > 1 || name == "a" {
					w.reach(name, "first", stageplan.Ready)
				}
			}
			if policy == admission.Greedy {
				// 5 are free and both need 6: this is the deadlock that the other policies prevent.
				w.wantAdmitted()
				return
			}
			w.wantAdmitted(want.second...)
			w.reach("a", "first", stageplan.Succeeded)
			w.reach("a", "second", stageplan.Succeeded)
			w.wantAdmitted("b-first")
		})
	}
}

func TestReserveKeepsThePeakFree(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Reserve})
	w.queue("q", "a100: gpu=8")
	w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=4")...)
	w.wantAdmitted("a-first")
	w.lone("q", "big", "gpu=3")
	w.lone("q", "small", "gpu=2")
	w.wantAdmitted("small")
	w.wantRefusal("big", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "2 of 8 free (4 reserved")
	w.reach("a", "first", stageplan.Ready)
	w.wantAdmitted("a-second")
	if got, want := w.used("q"), "a100/nvidia.com/gpu=8"; got != want {
		t.Errorf("used %s, want %s", got, want)
	}
}

func TestFailedWriteIsTakenBack(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=8")
	w.lone("q", "one", "gpu=8")
	decisions := w.engine.Decide(w.now())
	admit, ok := decisions[0].(admission.Admit)
	if !ok || w.engine.Charged(keyOf("one"), "wl-one") || w.used("q") != "a100/nvidia.com/gpu=8" {
		t.Fatalf("decided %v", decisions)
	}
	// A change by another client, observed while the write is in flight, does not revoke the admission.
	w.change("one", func(wl *kueue.Workload) { wl.Labels = map[string]string{"a": "b"} })
	if w.used("q") != "a100/nvidia.com/gpu=8" {
		t.Errorf("used %s while in flight", w.used("q"))
	}
	w.engine.Settle(admit.ID)
	if w.used("q") != "a100/nvidia.com/gpu=0" || w.engine.Charged(keyOf("one"), "wl-one") {
		t.Errorf("used %s after the write has failed", w.used("q"))
	}
	w.wantAdmitted("one")
	if !w.engine.Charged(keyOf("one"), "wl-one") || w.engine.Charged(keyOf("one"), "another") {
		t.Error("want Charged to be true of this object only")
	}
}

// TestStrictFIFOAfterTheFirstHasLeft: the next stage blocks the others, whether or not it asks for the same.
func TestStrictFIFOAfterTheFirstHasLeft(t *testing.T) {
	for name, requests := range map[string]string{"the same": "gpu=5", "another": "gpu=6"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=8", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
			w.lone("q", "running", "gpu=4")
			w.lone("q", "second", "gpu=5")
			w.lone("q", "third", "gpu=1")
			w.wantAdmitted("running")
			priority := int32(1)
			w.lone("q", "first", requests, func(wl *kueue.Workload) { wl.Spec.Priority = &priority })
			w.wantAdmitted()
			w.remove("first")
			w.wantAdmitted()
			w.wantRefusal("third", "StrictFIFO", kueue.WorkloadQuotaReservedReasonWaitingForQuota, `waits behind quota Workload "second"`)
			w.remove("second")
			w.wantAdmitted("third")
		})
	}
}
