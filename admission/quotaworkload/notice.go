package quotaworkload

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// A Notice is what the condition PreemptionPending of a quota Workload reports: the time at which its pods end, for which other quota Workload, and by
// which rule, which is the reason of the condition.
type Notice struct {
	Ends      time.Time
	Preemptor types.UID
	Reason    string
}

// The message of the condition begins with these words, the time between them and the UID of the preemptor and a comma behind them.
const (
	noticeEnds = "The pods end at "
	noticeFor  = ", to accommodate a workload (UID: "
)

// NoticeMessage returns the beginning of the message of the condition PreemptionPending.
func NoticeMessage(ends time.Time, preemptor string) string {
	return noticeEnds + ends.UTC().Format(time.RFC3339) + noticeFor + preemptor + ","
}

// NoticeOf returns the notice that a quota Workload has, or nil. The condition counts only as the manager writes it, and only for the quota that it was
// written for: another manager that evicts leaves it there.
func NoticeOf(workload *kueue.Workload) *Notice {
	c := FindTrue(workload, apis.PreemptionPendingCondition)
	if c == nil {
		return nil
	}
	if reserved := FindTrue(workload, kueue.WorkloadQuotaReserved); reserved == nil || c.LastTransitionTime.Before(&reserved.LastTransitionTime) {
		return nil
	}
	text, rest, isComplete := strings.Cut(strings.TrimPrefix(c.Message, noticeEnds), noticeFor)
	uid, _, hasUID := strings.Cut(rest, ",")
	ends, err := time.Parse(time.RFC3339, text)
	if !isComplete || !hasUID || uid == "" || err != nil || ends.Sub(c.LastTransitionTime.Time) > apis.LongestSpan+time.Second {
		return nil
	}
	return &Notice{Ends: ends.UTC(), Preemptor: types.UID(uid), Reason: c.Reason}
}
