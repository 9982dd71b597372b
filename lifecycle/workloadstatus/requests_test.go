package workloadstatus_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestResourceRequests checks that the requests of a refused quota Workload stay in its status until it is admitted, as in Kueue, and change only
// with a refusal that has others.
func TestResourceRequests(t *testing.T) {
	requests := func(podSet kueue.PodSetReference) []kueue.PodSetRequest { return []kueue.PodSetRequest{{Name: podSet}} }
	refused := &kueue.Workload{Status: kueue.WorkloadStatus{ResourceRequests: requests("refused")}}
	admission := &kueue.Admission{ClusterQueue: "q"}
	for name, c := range map[string]struct {
		status kueue.WorkloadStatus
		want   []kueue.PodSetRequest
	}{
		"refused again":             {workloadstatus.Pending(refused, quotaworkload.Wait{Requests: requests("again")}, now()), requests("again")},
		"refused by another writer": {workloadstatus.Pending(refused, quotaworkload.Wait{Reason: "Misconfigured"}, now()), requests("refused")},
		"requeued":                  {workloadstatus.Requeued(refused, "Reactivated", "", now()), requests("refused")},
		"its back-off has expired":  {workloadstatus.BackedOff(refused, now()), requests("refused")},
		"deactivated":               {workloadstatus.DeactivationTarget(refused, "Deactivated", "", now()), requests("refused")},
		"quota reserved":            {workloadstatus.Reserved(refused, admission, nil, now()), nil},
		"admitted":                  {workloadstatus.Admitted(refused, admission, now()), nil},
	} {
		if diff := cmp.Diff(c.want, c.status.ResourceRequests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
	same := workloadstatus.BackedOff(refused, now())
	if workloadstatus.Differs(refused, &same) {
		t.Error("a status with the same requests is written again")
	}
	if other := workloadstatus.Pending(refused, quotaworkload.Wait{Requests: requests("again")}, now()); !workloadstatus.Differs(refused, &other) {
		t.Error("a status with other requests is not written")
	}
}
