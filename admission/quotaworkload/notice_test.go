package quotaworkload_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// A message that the manager has not written is no notice: the engine decides again, and replaces it.
func TestNoticeOf(t *testing.T) {
	since := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	ends := since.Add(2 * time.Minute)
	for name, test := range map[string]struct {
		status  metav1.ConditionStatus
		message string
		want    *quotaworkload.Notice
		// reserved is when the quota was reserved, counted from the notice.
		reserved time.Duration
	}{
		"as written":      {metav1.ConditionTrue, quotaworkload.NoticeMessage(ends, "u1") + " JobUID: j) due to reclamation", &quotaworkload.Notice{Ends: ends, Preemptor: "u1", Reason: "InClusterQueue"}, -time.Hour},
		"withdrawn":       {metav1.ConditionFalse, quotaworkload.NoticeMessage(ends, "u1"), nil, 0},
		"nothing":         {metav1.ConditionTrue, "", nil, 0},
		"no time":         {metav1.ConditionTrue, "The pods end at noon, to accommodate a workload (UID: u1,", nil, 0},
		"no preemptor":    {metav1.ConditionTrue, quotaworkload.NoticeMessage(ends, ""), nil, 0},
		"cut off":         {metav1.ConditionTrue, "The pods end at 2026-01-02T15:02:00Z, to accommodate a workload (UID: u1", nil, 0},
		"of other quota":  {metav1.ConditionTrue, quotaworkload.NoticeMessage(ends, "u1"), nil, time.Second},
		"an absurd time":  {metav1.ConditionTrue, quotaworkload.NoticeMessage(since.AddDate(10, 0, 0), "u1"), nil, 0},
		"the longest one": {metav1.ConditionTrue, quotaworkload.NoticeMessage(since.Add(apis.LongestSpan), "u1"), &quotaworkload.Notice{Ends: since.Add(apis.LongestSpan), Preemptor: "u1", Reason: "InClusterQueue"}, -time.Hour},
	} {
		w := &kueue.Workload{}
		reserved := metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(since.Add(test.reserved))}
		w.Status.Conditions = []metav1.Condition{reserved, {
			Type: apis.PreemptionPendingCondition, Status: test.status, Reason: "InClusterQueue", Message: test.message, LastTransitionTime: metav1.NewTime(since),
		}}
		if diff := cmp.Diff(test.want, quotaworkload.NoticeOf(w)); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}
