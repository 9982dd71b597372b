package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	accelerator "github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// An attention is a group of JobSets in the order of the list, in which those that need attention come first.
type attention int8

const (
	attentionProblem attention = iota
	attentionNotice
	attentionWaiting
	attentionRunning
	attentionUnqueued
	attentionSuspended
	attentionEnded
)

// attentionOf returns the group of a JobSet with a state and a reason.
func attentionOf(state JobSetState, reason string) attention {
	switch {
	case (state == JobSetWaiting || state == JobSetUnqueued) && needsChange(reason):
		return attentionProblem
	case state == JobSetAdmitted && reason == apis.PreemptionPendingCondition:
		return attentionNotice
	case state == JobSetWaiting:
		return attentionWaiting
	case state == JobSetAdmitted:
		return attentionRunning
	case state == JobSetUnqueued:
		return attentionUnqueued
	case state == JobSetSuspended:
		return attentionSuspended
	}
	return attentionEnded
}

// needsChange reports whether a JobSet that waits for this reason is not admitted before a user or an administrator changes something, or may be evicted
// for the same reason again.
func needsChange(reason string) bool {
	reason = strings.TrimPrefix(reason, kueue.WorkloadEvicted+"DueTo")
	return workloadstatus.IsDeactivated(reason) || slices.Contains([]string{
		kueue.WorkloadQuotaReservedReasonMisconfigured, kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
		kueue.WorkloadEvictedByPodsReadyTimeout, apis.DeadlockedReason,
	}, reason)
}

// sinceOf returns since when a JobSet has its state, or its notice.
func sinceOf(object *jobsetapi.JobSet, state JobSetState, a attention) time.Time {
	conditionType := jobsetstatus.StageAdmitted
	switch {
	case a == attentionNotice:
		conditionType = apis.PreemptionPendingCondition
	case state == JobSetFinished:
		conditionType = string(jobset.JobSetCompleted)
	case state == JobSetFailed:
		conditionType = string(jobset.JobSetFailed)
	}
	if c := apimeta.FindStatusCondition(object.Status.Conditions, conditionType); c != nil {
		return c.LastTransitionTime.Time
	}
	return object.CreationTimestamp.Time
}

// compareJobSets orders JobSets by their groups. Of those that wait or have notice the longest is first, of the others the latest.
func compareJobSets(a, b *jobSet) int {
	switch since := a.since.Compare(b.since); {
	case a.attention != b.attention:
		return cmp.Compare(a.attention, b.attention)
	case since == 0:
		return compareKeys(a.key, b.key)
	case a.attention == attentionWaiting || a.attention == attentionNotice:
		return since
	default:
		return -since
	}
}

// JobSetSorts returns the values of JobSetFilter.Sort: the columns of the list, each also with a minus sign for the opposite order.
func JobSetSorts() (all []string) {
	for _, column := range []string{"namespace", "name", "clusterQueue", "state", "age", "restarts", "stages", "holds", "asks", "start", "reason"} {
		all = append(all, column, "-"+column)
	}
	return all
}

// A sortKey is what a JobSet has in a column.
type sortKey struct {
	key types.NamespacedName
	// isMissing is true if the JobSet has nothing in the column. It comes last in both orders.
	isMissing bool
	text      string
	// number is compared before less.
	number, less float64
}

// compare orders the keys of one column, and equal ones by name, so that pages never overlap.
func (k *sortKey) compare(other *sortKey, isReversed bool) int {
	values := cmp.Or(strings.Compare(k.text, other.text), cmp.Compare(k.number, other.number), cmp.Compare(k.less, other.less))
	switch {
	case k.isMissing && !other.isMissing:
		return 1
	case other.isMissing && !k.isMissing:
		return -1
	case values == 0:
		return compareKeys(k.key, other.key)
	case isReversed:
		return -values
	}
	return values
}

func (m *Model) sortKeyOf(v *Viewer, js *jobSet, column string) sortKey {
	k := sortKey{key: js.key}
	switch column {
	case "namespace":
		k.text = js.key.Namespace
	case "name":
		k.text = js.key.Name
	case "clusterQueue":
		k.text = v.clusterQueueFor(m.clusterQueueOf(js))
	case "state":
		k.text = string(js.state)
	case "stages":
		k.text = js.progress
	case "reason":
		k.text = js.reason
	case "age":
		k.number = -float64(js.created.Unix())
		return k
	case "restarts":
		k.number = float64(js.restarts)
		return k
	default:
		k.addAmounts(js, column)
		return k
	}
	k.isMissing = k.text == ""
	return k
}

// addAmounts adds the accelerators and CPUs that a JobSet holds or asks for, or its expected start.
func (k *sortKey) addAmounts(js *jobSet, column string) {
	k.isMissing = true
	add := func(name corev1.ResourceName, amount float64) {
		k.isMissing = false
		switch {
		case accelerator.IsAccelerator(name):
			k.number += amount
		case name == corev1.ResourceCPU:
			k.less += amount
		}
	}
	o := js.owner
	switch column {
	case "holds":
		for name, amount := range o.held {
			add(name, units(name, amount))
		}
	case "asks":
		if w := o.firstPending(); w != nil {
			for _, a := range w.requests {
				q, _ := resource.ParseQuantity(a.Amount) // it was formatted by amountsOf
				add(a.Resource, q.AsApproximateFloat64())
			}
		}
	case "start":
		if o.expected != nil && js.state == JobSetWaiting {
			k.number = float64(cmp.Or(o.expected.about, o.expected.by))
			k.isMissing = k.number == 0
		}
	}
}
