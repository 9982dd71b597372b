package quotaworkload

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// Gates returns the gates that prevent a quota Workload, or those of a JobSet, from asking for quota, as the annotation
// kueue.x-k8s.io/admission-gated-by lists them.
func Gates(object metav1.Object) []string {
	return strings.FieldsFunc(object.GetAnnotations()[apis.AdmissionGatedByAnnotation], func(r rune) bool { return r == ',' || r == ' ' })
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
