package quotaworkload

import (
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
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

// HasGate reports whether one of these gates prevents a quota Workload, or those of a JobSet, from asking for quota.
func HasGate(object metav1.Object, gates ...string) bool {
	return slices.ContainsFunc(Gates(object), func(gate string) bool { return slices.Contains(gates, gate) })
}

// GatesOfOthers returns those of the gates that other controllers set and remove.
func GatesOfOthers(object metav1.Object) []string {
	return slices.DeleteFunc(Gates(object), func(gate string) bool { return strings.HasPrefix(gate, gateDomain) })
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

// A Gate is why a quota Workload does not ask for quota.
type Gate struct {
	// Reason is that of its condition QuotaReserved, or of its condition Requeued, or Terminating.
	Reason string
	// Message has no final period.
	Message string
	// Cure is what a user can do, or empty if nothing is needed or possible.
	Cure string
}

// Text returns the message, with the cure if there is one.
func (g *Gate) Text() string {
	if g.Cure == "" {
		return g.Message
	}
	return g.Message + "; " + g.Cure
}

// ClosedBy returns why a quota Workload does not ask for quota, or nil if it does: it is being deleted or is not active, has a gate, or is kept out of its queue
// by the condition Requeued=False.
func ClosedBy(workload *kueue.Workload) *Gate {
	switch {
	case !workload.DeletionTimestamp.IsZero():
		return &Gate{"Terminating", "the quota Workload is being deleted", ""}
	case !ptr.Deref(workload.Spec.Active, true):
		return &Gate{kueue.WorkloadDeactivated, "the quota Workload is not active: spec.active is false", "set spec.active to true to requeue"}
	}
	gate := GateOf(workload)
	if requeued := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadRequeued); gate == nil && requeued != nil && requeued.Status == metav1.ConditionFalse {
		return &Gate{requeued.Reason, requeued.Message, ""}
	}
	return gate
}

// GateOf returns the gate of a quota Workload that counts first for its reader, or nil if it has none. One that a user has closed comes first.
func GateOf(workload *kueue.Workload) *Gate {
	gates := Gates(workload)
	if len(gates) == 0 {
		return nil
	}
	kind := "JobSet"
	if workload.Labels[apis.JobLabel] != "" {
		kind = "Job"
	}
	for _, known := range []struct {
		name string
		gate Gate
	}{
		{apis.SuspendedGate, Gate{kueue.WorkloadOnHold, "the " + kind + " is suspended by its user", "set spec.suspend of the " + kind + " to false to requeue"}},
		{apis.DeactivatedGate, Gate{
			kueue.WorkloadAdmissionGated, "a stage of its JobSet was deactivated", "set spec.active of the quota Workload of that stage to true to requeue",
		}},
		{apis.StageGate, Gate{kueue.WorkloadAdmissionGated, "the stage waits for earlier stages of its JobSet", ""}},
		{apis.GangGate, Gate{kueue.WorkloadAdmissionGated, "the gang is not complete, or does not ask for quota for another reason", ""}},
		{apis.ResizeGate, Gate{kueue.WorkloadAdmissionGated, "the stage is about to ask for its current number of pods", ""}},
		{apis.AdoptionGate, Gate{kueue.WorkloadAdmissionGated, "it ran before Tranche was installed, and is about to be charged for", ""}},
	} {
		if slices.Contains(gates, known.name) {
			return &known.gate
		}
	}
	all := strings.Join(gates, ", ")
	return &Gate{kueue.WorkloadAdmissionGated, "gated by " + all, "the controller that set a gate has to remove it from " + apis.AdmissionGatedByAnnotation}
}
