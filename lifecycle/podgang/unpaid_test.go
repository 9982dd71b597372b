package podgang_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// strip removes the admission of a quota Workload, as an administrator may do.
func (w *world) strip(x *kueue.Workload) {
	after := w.find(x).DeepCopy()
	after.Status.Admission = nil
	for _, c := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		apimeta.RemoveStatusCondition(&after.Status.Conditions, c)
	}
	w.put(after)
}

// settleUnpaid takes steps while pods may run that no quota Workload pays for, until these are being deleted.
func (w *world) settleUnpaid() {
	w.t.Helper()
	paid := w.t
	w.t = &quiet{failer: paid}
	w.settle()
	w.t = paid
}

// quiet ignores errors.
type quiet struct{ failer }

func (*quiet) Errorf(string, ...any) {}

// TestPodsEndWithoutAdmission: a gang does not run on when another client removes the admission of its quota Workload. It queues again as a whole, and
// no earlier than its pods have terminated.
func TestPodsEndWithoutAdmission(t *testing.T) {
	for name, remove := range map[string]func(*world){
		"of the gang": func(w *world) { w.strip(w.workloads[0]) },
		"of all":      func(w *world) { w.strip(w.workloads[0]); w.strip(w.workloads[1]) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newGang(t, 2, "min-available", "2")
			w.admitAll()
			w.add(1)
			w.settle()
			w.admitAll()
			w.expect("rrr", 2, "has started")
			remove(w)
			w.settleUnpaid()
			w.expect("RRR", 2, "Another client has removed the admission")
			for _, x := range w.workloads {
				if w.admit(x) && x.Labels[apis.ExtraLabel] == "" {
					t.Error("the gang is admitted while its pods terminate")
				}
			}
			w.pods = nil
			w.add(1)
			w.add(1)
			w.settle()
			w.expect("gg", 1, "waits for quota")
			w.admitAll()
			w.expect("rr", 1, "has started")
		})
	}
}

// TestPartEndsWithoutAdmission: the other parts of a gang are evicted with one that has lost its admission.
func TestPartEndsWithoutAdmission(t *testing.T) {
	w := newGang(t, 2, "min-available", "2", "mode", "NonStrict")
	w.admitAll()
	w.expect("rr", 2, "has started")
	w.strip(w.workloads[0])
	w.settleUnpaid()
	w.expect("RR", 2, "Another client has removed the admission")
	w.vanish(w.pods[1])
	w.vanish(w.pods[0])
	w.settle()
	w.add(1)
	w.add(1)
	w.settle()
	w.admitAll()
	w.expect("rr", 2, "has started")
}

// TestExtraEndsWithoutAdmission: only the pod of an extra quota Workload that has lost its admission ends.
func TestExtraEndsWithoutAdmission(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	w.add(1)
	w.settle()
	w.admitAll()
	for _, x := range w.workloads {
		if x.Labels[apis.ExtraLabel] != "" {
			w.strip(x)
		}
	}
	w.settleUnpaid()
	w.expect("rrR", 2, "has started")
	w.vanish(w.pods[2])
	w.settle()
	w.expect("rr", 1, "has started")
}

// TestSucceededWithoutAdmission: a gang whose pods have all succeeded has finished, also if another client has removed its admission.
func TestSucceededWithoutAdmission(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	w.strip(w.workloads[0])
	for _, pod := range w.pods {
		pod.Status.Phase = corev1.PodSucceeded
	}
	w.settle()
	w.expect("ss", 1, "All pods of the gang have succeeded")
	if !quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) {
		t.Errorf("the gang has not finished: %+v", w.workloads[0].Status)
	}
}

// TestPodsEndWithoutWorkload: pods do not run on when another client deletes their quota Workload with its finalizer, and are not started again besides.
func TestPodsEndWithoutWorkload(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	w.add(1)
	w.settle()
	w.admitAll()
	w.expect("rrr", 2, "has started")
	w.gone = map[types.UID]bool{}
	for _, x := range slices.Clone(w.workloads) {
		if x.Labels[apis.ExtraLabel] != "" {
			w.remove(x)
			w.gone[x.UID] = true
		}
	}
	w.settleUnpaid()
	w.expect("rrR", 1, "has started")
	w.vanish(w.pods[2])
	w.settle()
	w.expect("rr", 1, "has started")

	w.gone[w.workloads[0].UID] = true
	w.remove(w.workloads[0])
	w.settleUnpaid()
	w.expect("RR", 0, "Another client has deleted quota Workload")
	w.vanish(w.pods[1])
	w.add(1)
	w.add(1)
	w.settleUnpaid()
	w.expect("Rgg", 0, "when its pods have terminated")
	w.vanish(w.pods[0])
	w.settle()
	w.admitAll()
	w.expect("rr", 1, "has started")
}
