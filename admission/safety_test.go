package admission_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

func TestMessagesOfThePolicies(t *testing.T) {
	for policy, want := range map[string]struct{ quota, check, part string }{
		admission.Safe:    {"9", "StageUnsafe", "admitting it could deadlock this JobSet and ns/a on quota for later stages: 5 of 9 nvidia.com/gpu of flavor a100 would stay free, and up to 6"},
		admission.Reserve: {"11", "PeakFits", "8 nvidia.com/gpu of flavor a100: 3 of 11 free (6 reserved for other stages)"},
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
