package admission_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestPartialAdmission has 8 GPUs, of which the first stage takes some.
func TestPartialAdmission(t *testing.T) {
	for name, tc := range map[string]struct {
		taken           string
		count, minCount int32
		wantCount       int32
		wantRefusal     string
	}{
		"all fit":               {"gpu=0", 8, 2, 8, ""},
		"a part fits":           {"gpu=3", 8, 2, 5, ""},
		"the least fits":        {"gpu=6", 8, 2, 2, ""},
		"not even the least":    {"gpu=7", 8, 2, 0, "8 nvidia.com/gpu of flavor a100: 1 of 8 free"},
		"all would never fit":   {"gpu=0", 20, 2, 8, ""},
		"a part may fit later":  {"gpu=7", 20, 2, 0, "2 nvidia.com/gpu of flavor a100: 1 of 8 free"},
		"least would never fit": {"gpu=0", 20, 9, 0, "can never fit"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=8")
			w.lone("q", "taken", tc.taken)
			w.wantAdmitted("taken")
			w.lone("q", "elastic", "gpu=1", func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Count, wl.Spec.PodSets[0].MinCount = tc.count, &tc.minCount
			})
			if tc.wantRefusal != "" {
				w.wantAdmitted()
				r := w.refusals[keyOf("elastic")]
				w.wantRefusal("elastic", r.Check, r.Reason, tc.wantRefusal)
				w.change("taken", finish)
				w.decide()
				if got := w.engine.Charged(keyOf("elastic"), "wl-elastic"); got != (tc.minCount <= 8) {
					t.Errorf("charged %v when all is free", got)
				}
				return
			}
			w.wantAdmitted("elastic")
			a := w.workloads[keyOf("elastic")].Status.Admission.PodSetAssignments[0]
			if usage := a.ResourceUsage[gpu]; *a.Count != tc.wantCount || usage.Value() != int64(tc.wantCount) {
				t.Errorf("%d pods admitted with %s GPUs, want %d", *a.Count, usage.String(), tc.wantCount)
			}
		})
	}
}

// TestChargedAsOlderVersion shows that a version of a quota Workload from before pods became reclaimable is not charged as it shows: other stages
// may use the quota of these pods.
func TestChargedAsOlderVersion(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.lone("q", "wide", "gpu=1", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 4 })
	w.wantAdmitted("wide")
	before := w.workloads[keyOf("wide")].DeepCopy()
	w.change("wide", func(wl *kueue.Workload) { wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} })
	now := w.workloads[keyOf("wide")]
	if latest, older := w.engine.ChargedAs(now), w.engine.ChargedAs(before); !latest || older {
		t.Errorf("want only the latest version charged as it shows: latest %t, older %t", latest, older)
	}
}

// TestReclaimablePods: quota that pods no longer need is free for others, and counts again after a restart.
func TestReclaimablePods(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=8")
	w.lone("q", "wide", "gpu=2", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 4 })
	w.lone("q", "next", "gpu=4")
	w.wantAdmitted("wide")
	w.change("wide", func(wl *kueue.Workload) { wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} })
	w.wantAdmitted()
	w.change("wide", func(wl *kueue.Workload) { wl.Status.ReclaimablePods[0].Count = 2 })
	w.wantAdmitted("next")
	w.change("wide", func(wl *kueue.Workload) { wl.Status.ReclaimablePods = nil })
	if got := w.used("q"); got != "a100/nvidia.com/gpu=12" {
		t.Errorf("used %s", got)
	}
}

// TestPartTakesFlavorsThatAllCannot: the flavor b is too small for all pods of the first pod set, and has enough for one.
func TestPartTakesFlavorsThatAllCannot(t *testing.T) {
	for name, taken := range map[string]string{"at once": "gpu=0", "when it is free again": "gpu=2"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a: gpu=7; b: gpu=2")
			w.lone("q", "taken", taken, func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"flavor": "b"}
			})
			w.wantAdmitted("taken")
			minCount := int32(1)
			w.lone("q", "elastic", "gpu=2", func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Count, wl.Spec.PodSets[0].MinCount = 3, &minCount
				wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: "fixed", Count: 3, Template: template("gpu=2")})
			})
			if taken != "gpu=0" {
				w.wantAdmitted()
				w.wantRefusal("elastic", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "2 nvidia.com/gpu of flavor b: 0 of 2 free")
				w.change("taken", finish)
			}
			w.wantAdmitted("elastic")
			if got, want := w.used("q"), "a/nvidia.com/gpu=6 b/nvidia.com/gpu=2"; got != want {
				t.Errorf("used %s, want %s", got, want)
			}
		})
	}
}

// TestPartWaitsForFlavorsThatAllCannotTake: all pods would have to wait for the flavor a.
func TestPartWaitsForFlavorsThatAllCannotTake(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a: gpu=8; b: gpu=4")
	for flavor, requests := range map[string]string{"a": "gpu=5", "b": "gpu=4"} {
		w.lone("q", flavor, requests, func(wl *kueue.Workload) {
			wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"flavor": flavor}
		})
		w.wantAdmitted(flavor)
	}
	minCount := int32(4)
	w.lone("q", "elastic", "gpu=1", func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Count, wl.Spec.PodSets[0].MinCount = 8, &minCount
	})
	w.wantAdmitted()
	w.change("b", finish)
	w.wantAdmitted("elastic")
}

// TestReclaimedBeforeAdmission: an admission leaves out pods that are reclaimable, and they are not subtracted again.
func TestReclaimedBeforeAdmission(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=8")
	w.lone("q", "wide", "gpu=2", func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Count = 4
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
	})
	w.wantAdmitted("wide")
	if got := w.used("q"); got != "a100/nvidia.com/gpu=6" {
		t.Errorf("used %s", got)
	}
	w.change("wide", func(wl *kueue.Workload) { wl.Status.ReclaimablePods[0].Count = 3 })
	if got := w.used("q"); got != "a100/nvidia.com/gpu=2" {
		t.Errorf("used %s when only one pod is left", got)
	}
}
