package quota

import (
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// An Amount is a quantity of one resource: thousandths of a CPU, whole units of all else. Arithmetic on it saturates and never wraps.
type Amount int64

// MaxAmount stands for no limit.
const MaxAmount Amount = math.MaxInt64

// MaxCharge is the maximum of one charge. Many such charges can be added up exactly.
const MaxCharge Amount = 1 << 56

// Of converts a quantity, rounded up. A quantity below zero becomes zero, and one above MaxCharge becomes MaxAmount; in both cases
// the result is not exact and ok is false.
func Of(name corev1.ResourceName, q resource.Quantity) (amount Amount, ok bool) {
	if q.Sign() < 0 {
		return 0, false
	}
	if name == corev1.ResourceCPU {
		if q.Cmp(*resource.NewMilliQuantity(int64(MaxCharge), resource.DecimalSI)) > 0 {
			return MaxAmount, false
		}
		return Amount(q.MilliValue()), true
	}
	if q.Cmp(*resource.NewQuantity(int64(MaxCharge), resource.DecimalSI)) > 0 {
		return MaxAmount, false
	}
	return Amount(q.Value()), true
}

// Plus adds, and stops at the limits.
func (a Amount) Plus(b Amount) Amount {
	switch {
	case b > 0 && a > MaxAmount-b:
		return MaxAmount
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}

// Minus subtracts, and stops at the limits.
func (a Amount) Minus(b Amount) Amount {
	if b == math.MinInt64 {
		return a.Plus(MaxAmount).Plus(1)
	}
	return a.Plus(-b)
}

// Times multiplies two amounts that are not negative, and stops at MaxAmount.
func (a Amount) Times(n int32) Amount {
	if n > 0 && a > MaxAmount/Amount(n) {
		return MaxAmount
	}
	return a * Amount(n)
}

// Quantity converts an amount back to the usual form of this resource.
func (a Amount) Quantity(name corev1.ResourceName) resource.Quantity {
	switch {
	case name == corev1.ResourceCPU:
		return *resource.NewMilliQuantity(int64(a), resource.DecimalSI)
	case name == corev1.ResourceMemory, name == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(int64(a), resource.BinarySI)
	default:
		return *resource.NewQuantity(int64(a), resource.DecimalSI)
	}
}

// Format formats an amount for readers in the usual form of this resource.
func (a Amount) Format(name corev1.ResourceName) string {
	if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
		q := a.Quantity(name)
		return q.String()
	}
	return strconv.FormatInt(int64(a), 10)
}
