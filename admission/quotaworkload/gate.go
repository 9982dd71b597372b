package quotaworkload

import (
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// Gates returns the gates that prevent a quota Workload, or those of a JobSet, from asking for quota: those that the annotation
// kueue.x-k8s.io/admission-gated-by lists, and those of a quota Workload that its condition Requeued names.
func Gates(object metav1.Object) []string {
	gates := listed(object)
	if workload, ok := object.(*kueue.Workload); ok {
		for name := range strings.SplitSeq(barOf(workload), ",") {
			if gate := gateDomain + name; name != "" && !slices.Contains(gates, gate) {
				gates = append(gates, gate)
			}
		}
	}
	return gates
}

func listed(object metav1.Object) []string {
	return strings.FieldsFunc(object.GetAnnotations()[apis.AdmissionGatedByAnnotation], func(r rune) bool { return r == ',' || r == ' ' })
}

// Kueue's webhook lets gates of a Workload only be removed. A gate that a quota Workload needs later, while Kueue admits, is named in its condition
// Requeued=False: Kueue considers no such Workload, and changes only conditions with its own reasons. Such a condition is a bar.
const (
	gateDomain = "tranche.dev/"
	barReason  = "AdmissionGated:"
	// reasonUnbarred is the reason of Requeued=True when the last gate is gone.
	reasonUnbarred = "AdmissionGateCleared"
)

// barOf returns the names of the gates in the bar of a quota Workload, or nothing if it has none.
func barOf(workload *kueue.Workload) string {
	c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadRequeued)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	names, _ := strings.CutPrefix(c.Reason, barReason)
	if names == c.Reason {
		return ""
	}
	return names
}

// IsBarred reports whether a quota Workload has a bar.
func IsBarred(workload *kueue.Workload) bool { return barOf(workload) != "" }

// HasSameBar reports whether the bars of two quota Workloads are equal.
func HasSameBar(a, b *kueue.Workload) bool { return barOf(a) == barOf(b) }

// Bar returns the condition Requeued that names gates, or that says that there are none.
func Bar(gates []string) metav1.Condition {
	var names []string
	for _, gate := range gates {
		if name, ours := strings.CutPrefix(gate, gateDomain); ours {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue, Reason: reasonUnbarred, Message: "No gate keeps the Workload out of the queue"}
	}
	return metav1.Condition{
		Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: barReason + strings.Join(names, ","),
		Message: "Admission is gated by: " + gateDomain + strings.Join(names, ", "+gateDomain),
	}
}

// DropBar removes the bar of a quota Workload, so that SetGates and Gates see only its annotation.
func DropBar(workload *kueue.Workload) {
	if IsBarred(workload) {
		apimeta.RemoveStatusCondition(&workload.Status.Conditions, kueue.WorkloadRequeued)
	}
}

// MoveGates moves the gates in the annotation of a quota Workload that it did not have before into a bar.
func MoveGates(before, after *kueue.Workload) {
	wanted, had := listed(after), listed(before)
	isNew := func(gate string) bool { return !slices.Contains(had, gate) }
	SetGates(after, slices.DeleteFunc(slices.Clone(wanted), isNew))
	var moved []string
	for _, gate := range wanted {
		if isNew(gate) {
			moved = append(moved, gate)
		}
	}
	if len(moved) > 0 || IsBarred(before) {
		apimeta.SetStatusCondition(&after.Status.Conditions, Bar(moved))
	}
}

// SetGates sets the gates of an object.
func SetGates(object metav1.Object, gates []string) {
	annotations := object.GetAnnotations()
	switch {
	case len(gates) == 0:
		delete(annotations, apis.AdmissionGatedByAnnotation)
		return
	case annotations == nil:
		annotations = map[string]string{}
	}
	annotations[apis.AdmissionGatedByAnnotation] = strings.Join(gates, ",")
	object.SetAnnotations(annotations)
}

// GateMessage returns why the first gate of a quota Workload prevents it from asking for quota, or nothing if it has none.
func GateMessage(workload *kueue.Workload) string {
	gates := Gates(workload)
	if len(gates) == 0 {
		return ""
	}
	switch gates[0] {
	case apis.StageGate:
		return "the stage waits for earlier stages of its JobSet"
	case apis.GangGate:
		return "the gang is not complete, or does not ask for quota for another reason"
	case apis.SuspendedGate:
		if workload.Labels[apis.JobLabel] != "" {
			return "the Job is suspended by its user"
		}
		return "the JobSet is suspended by its user"
	default:
		return "gated by " + gates[0]
	}
}
