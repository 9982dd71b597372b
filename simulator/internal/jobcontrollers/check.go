package jobcontrollers

import (
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// AnswerChecks plays the controllers of AdmissionChecks: it lets AdmissionChecks be Ready some time after a quota Workload has begun to wait for them.
func AnswerChecks(cl *cluster.Cluster, after time.Duration) {
	observe := cl.Observe
	cl.Observe = func(event admission.Event) {
		if observed, is := event.(admission.WorkloadObserved); is {
			answerChecksOf(cl, observed.Workload, after)
		}
		observe(event)
	}
	var waiting []admission.StageKey
	for key, w := range cl.Workloads {
		if awaitsCheck(w) {
			waiting = append(waiting, key)
		}
	}
	slices.SortFunc(waiting, cluster.CompareKeys)
	for _, key := range waiting {
		answerChecksOf(cl, cl.Workloads[key], after)
	}
}

// awaitsCheck reports whether a quota Workload that holds quota waits for an AdmissionCheck.
func awaitsCheck(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.Status.AdmissionChecks, isPending) && quotaworkload.HoldsQuota(w)
}

func isPending(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStatePending }

func answerChecksOf(cl *cluster.Cluster, w *kueue.Workload, after time.Duration) {
	if !awaitsCheck(w) || quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) {
		return
	}
	key := cluster.KeyOf(w)
	reserved := reservedAt(w)
	cl.Events.Add(max(cl.Now, reserved.Sub(cl.Beginning())+after), func() {
		now := cl.Workloads[key]
		if now == nil || now.UID != w.UID || !awaitsCheck(now) || cluster.IsFinished(now) || !reservedAt(now).Equal(reserved) {
			return // a later reservation has an event of its own
		}
		ready := now.DeepCopy()
		for i := range ready.Status.AdmissionChecks {
			if c := &ready.Status.AdmissionChecks[i]; isPending(*c) {
				c.State, c.LastTransitionTime = kueue.CheckStateReady, cl.Timestamp()
			}
		}
		cl.PutWorkload(ready)
	})
}

func reservedAt(w *kueue.Workload) time.Time {
	return apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
}
