package durations

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/snapshot"
)

// IsQuiet reports whether nothing in a snapshot changes at its time, other than by the manager and by pods that become ready. It is false where that is
// not easy to see.
func (d *Durations) IsQuiet(s *snapshot.Snapshot) bool {
	if d.Validate() != nil {
		return false
	}
	if c := s.Configuration; c != nil && (ptr.Deref(c.WaitForPodsReady.Enable, false) || c.AdmissionFairSharing != nil) {
		return false
	}
	return !slices.ContainsFunc(s.Workloads, func(w *kueue.Workload) bool { return d.changes(w, s) }) &&
		!slices.ContainsFunc(s.ClusterQueues, func(q *kueue.ClusterQueue) bool { return isDeleted(q) }) &&
		!slices.ContainsFunc(s.ResourceFlavors, func(f *kueue.ResourceFlavor) bool { return isDeleted(f) }) &&
		!slices.ContainsFunc(s.AdmissionChecks, func(c *kueue.AdmissionCheck) bool { return isDeleted(c) })
}

// changes reports whether a quota Workload is about to be admitted by AdmissionChecks, to stop or to end.
func (d *Durations) changes(w *kueue.Workload, s *snapshot.Snapshot) bool {
	switch {
	case isDeleted(w):
		return true
	case cluster.IsFinished(w):
		return false
	case quotaworkload.IsTrue(w, kueue.WorkloadEvicted):
		return true
	case !quotaworkload.HoldsQuota(w):
		return false
	}
	return !quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) || len(quotaworkload.Gates(w)) > 0 || d.HasReachedLimit(w, s.TakenAt)
}

func isDeleted(o metav1.Object) bool { return o.GetDeletionTimestamp() != nil }
