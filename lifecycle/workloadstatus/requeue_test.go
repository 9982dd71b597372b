package workloadstatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// TestPastRequeueTime: no write keeps a requeue time that has passed, nor one of a quota Workload that gets quota. The count of retries stays.
func TestPastRequeueTime(t *testing.T) {
	past, future := metav1.NewTime(now().Add(-time.Minute)), metav1.NewTime(now().Add(time.Minute))
	writes := map[string]func(*kueue.Workload) kueue.WorkloadStatus{
		"admitted": func(w *kueue.Workload) kueue.WorkloadStatus {
			return workloadstatus.Admitted(w, &kueue.Admission{}, now())
		},
		"reserved": func(w *kueue.Workload) kueue.WorkloadStatus {
			return workloadstatus.Reserved(w, &kueue.Admission{}, nil, now())
		},
		"refused": func(w *kueue.Workload) kueue.WorkloadStatus {
			return workloadstatus.Pending(w, quotaworkload.Wait{Reason: "Pending"}, now())
		},
		"released": func(w *kueue.Workload) kueue.WorkloadStatus { return workloadstatus.QuotaReleased(w, now()) },
		"evicted": func(w *kueue.Workload) kueue.WorkloadStatus {
			return workloadstatus.Evicted(w, workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption}, now())
		},
	}
	for name, write := range writes {
		t.Run(name, func(t *testing.T) {
			w := workload()
			w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2)), RequeueAt: &past}
			status := write(w)
			if diff := cmp.Diff(&kueue.RequeueState{Count: new(int32(2))}, status.RequeueState); diff != "" {
				t.Errorf("after a time that has passed (-want +got):\n%s", diff)
			}
			w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &past}
			if status := write(w); status.RequeueState != nil {
				t.Errorf("without a count there is %+v", status.RequeueState)
			}
			w.Status.RequeueState = &kueue.RequeueState{RequeueAt: &future}
			getsQuota := name == "admitted" || name == "reserved"
			if status := write(w); (status.RequeueState == nil) != getsQuota {
				t.Errorf("with a time in the future there is %+v", status.RequeueState)
			}
		})
	}
}
