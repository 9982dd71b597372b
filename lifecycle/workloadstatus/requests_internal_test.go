package workloadstatus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// TestResourceRequests checks that the requests of a refused quota Workload stay in its status until it is admitted, as in Kueue, and change only
// with a refusal that has others.
func TestResourceRequests(t *testing.T) {
	requests := func(podSet kueue.PodSetReference) []kueue.PodSetRequest { return []kueue.PodSetRequest{{Name: podSet}} }
	refused := &kueue.Workload{Status: kueue.WorkloadStatus{ResourceRequests: requests("refused")}}
	admission := &kueue.Admission{ClusterQueue: "q"}
	now := time.Unix(0, 0)
	for name, c := range map[string]struct {
		status kueue.WorkloadStatus
		want   []kueue.PodSetRequest
	}{
		"refused again":             {Pending(refused, quotaworkload.Wait{Requests: requests("again")}, now), requests("again")},
		"refused by another writer": {Pending(refused, quotaworkload.Wait{Reason: "Misconfigured"}, now), requests("refused")},
		"requeued":                  {*requeued(refused, kueue.WorkloadReactivated, "", now).Status, requests("refused")},
		"its checks are reset":      {*postponed(refused, "", now).Status, requests("refused")},
		"quota reserved":            {Reserved(refused, admission, nil, now), nil},
		"admitted":                  {Admitted(refused, admission, now), nil},
	} {
		if diff := cmp.Diff(c.want, c.status.ResourceRequests); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
	same := *postponed(refused, "", now).Status
	if Differs(refused, &same) {
		t.Error("a status with the same requests is written again")
	}
	if other := Pending(refused, quotaworkload.Wait{Requests: requests("again")}, now); !Differs(refused, &other) {
		t.Error("a status with other requests is not written")
	}
}
