package admission

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/observe"
)

// Unsupported returns what a quota Workload asks for and the Engine does not support, and what to do, or nothing. Such a quota Workload is not admitted.
func Unsupported(workload *kueue.Workload) string { return observe.Unsupported(workload) }
