package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Conditions configures when conditions are written. Admissions and evictions are always written at once.
type Conditions struct {
	// SettleAfter is how long a quota Workload has waited for the same reason before its conditions say so. Another reason, or another flavor, is
	// written after the same time, and other amounts at most once a minute. While many quota Workloads are admitted, reasons are written later. It
	// is at most 8760h, and defaults to 1s.
	SettleAfter *metav1.Duration `json:"settleAfter,omitempty"`
}

func (c *Conditions) validate(path *field.Path) field.ErrorList {
	return span(path.Child("settleAfter"), c.SettleAfter)
}
