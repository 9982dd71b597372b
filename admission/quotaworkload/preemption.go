package quotaworkload

import (
	"fmt"
	"strconv"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// PreemptedFor begins the message of the condition Preempted. The UID of the preemptor and a comma follow.
	PreemptedFor = "Preempted to accommodate a workload (UID: "
	// earlierPreemptors comes before the UIDs of earlier preemptors in that message, each with the number of its preemptions.
	earlierPreemptors = "; earlier preemptors: "
	// maxPreemptors is how many preemptors are listed, and how many are read.
	maxPreemptors = 50
	// maxTimes is how many preemptions by one of them count. Far fewer end a circle.
	maxTimes = 1000
)

// A Preemptor is a quota Workload for which another one was preempted, and how often.
type Preemptor struct {
	UID   types.UID
	Times int
}

// Preemptors returns for which quota Workloads this one was preempted, the last one first. Entries that no preemption could have written are left out,
// and those after the first ones that the manager lists.
func Preemptors(workload *kueue.Workload) []Preemptor {
	c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPreempted)
	if c == nil {
		return nil
	}
	_, rest, _ := strings.Cut(c.Message, PreemptedFor)
	uid, rest, isComplete := strings.Cut(rest, ",")
	if !isComplete {
		return nil
	}
	all := []Preemptor{{UID: types.UID(uid), Times: 1}}
	_, earlier, _ := strings.Cut(rest, earlierPreemptors)
	for text := range strings.SplitSeq(earlier, ", ") {
		uid, count, _ := strings.Cut(text, "=")
		times, err := strconv.Atoi(count)
		switch {
		case err != nil || times < 1 || times > maxTimes || uid == "" || len(all) > maxPreemptors:
		case types.UID(uid) == all[0].UID:
			all[0].Times += times
		default:
			all = append(all, Preemptor{UID: types.UID(uid), Times: times})
		}
	}
	return all
}

// WithEarlierPreemptors adds to the message of a preemption for which quota Workloads this one was preempted before.
func WithEarlierPreemptors(message string, workload *kueue.Workload) string {
	var texts []string
	for _, p := range Preemptors(workload) {
		if len(texts) < maxPreemptors {
			texts = append(texts, fmt.Sprintf("%s=%d", p.UID, p.Times))
		}
	}
	if len(texts) == 0 {
		return message
	}
	return message + earlierPreemptors + strings.Join(texts, ", ")
}
