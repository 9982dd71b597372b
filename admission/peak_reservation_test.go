package admission_test

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestVictimWithBorrowedPeak reclaims GPUs from a JobSet that has also reserved CPUs of the preemptor's ClusterQueue for its next stage. There
// are enough CPUs for both, so that only the eviction ends that reservation.
func TestVictimWithBorrowedPeak(t *testing.T) {
	w := newWorld(t, admission.Config{StageAdmission: admission.Reserve})
	w.queue("owner", "a: gpu=4 cpu=8", inCohort("c"), reclaiming(kueue.PreemptionPolicyAny))
	w.queue("borrower", "a: gpu=2 cpu=0", inCohort("c"))
	w.submit("borrower", "js", job{name: "ps", requests: "gpu=3"}, job{name: "train", requests: "cpu=2", after: []string{"ps Ready"}})
	w.wantAdmitted("js-ps")
	w.lone("owner", "asks", "gpu=4")
	w.wantAdmitted()
	if len(w.evictions) != 1 {
		t.Fatalf("evictions %q, want that of js-ps", w.evictions)
	}
	w.leave("js-ps")
	w.wantAdmitted("asks")
}
