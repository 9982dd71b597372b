package admission_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

func TestMessagesOfThePolicies(t *testing.T) {
	for policy, want := range map[string]struct{ quota, check, part string }{
		admission.Safe:    {"9", "StageUnsafe", "this JobSet and ns/a could wait for ever for quota of later stages: 5 of 9 nvidia.com/gpu of flavor a100 would stay free, and up to 6"},
		admission.Reserve: {"11", "PeakFits", "8 nvidia.com/gpu of flavor a100: 3 of 11 free (6 kept for stages to come)"},
	} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, admission.Config{StageAdmission: admission.Greedy})
			w.queue("q", "a100: gpu="+want.quota, func(q *kueue.ClusterQueue) {
				q.Annotations = map[string]string{apis.StageAdmissionAnnotation: policy}
			})
			w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=6")...)
			w.submit("q", "b", twoStages("gpu=2", "Ready", "gpu=6")...)
			w.wantAdmitted("a-first")
			w.wantRefusal("b-first", want.check, kueue.WorkloadQuotaReservedReasonWaitingForQuota, want.part)
		})
	}
}

// TestAfterAQuotaCut admits what makes nothing worse, though the state is unsafe, and nothing that does.
func TestAfterAQuotaCut(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=20")
	w.submit("q", "stuck", twoStages("gpu=4", "Ready", "gpu=14")...)
	w.submit("q", "fine", append(twoStages("gpu=2", "Ready", "gpu=2"), job{name: "third", requests: "gpu=2", after: []string{"second Ready"}})...)
	w.wantAdmitted("stuck-first", "fine-first")
	w.queue("q", "a100: gpu=10")
	w.reach("stuck", "first", stageplan.Ready)
	w.submit("q", "worse", twoStages("gpu=1", "Ready", "gpu=6")...)
	w.wantAdmitted()
	w.wantRefusal("worse-first", "StageUnsafe", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "")
	w.reach("fine", "first", stageplan.Ready)
	w.wantAdmitted("fine-second")
	w.reach("fine", "second", stageplan.Ready)
	w.wantAdmitted("fine-third")
}
