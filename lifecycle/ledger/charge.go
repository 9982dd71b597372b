package ledger

import (
	"iter"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// A Charge is what a quota Workload holds of one resource of a flavor for one pod set. It may be zero.
type Charge struct {
	ClusterQueue string
	PodSet       kueue.PodSetReference
	quota.FlavorResource
	// usage is for as many pods as are charged. needed of them count.
	usage           resource.Quantity
	charged, needed int64
}

// ChargesOf returns what a quota Workload holds: what status.admission says from QuotaReserved on until it is Finished, less its reclaimable pods.
func ChargesOf(w *kueue.Workload) []*Charge {
	if !quotaworkload.IsCharged(w) {
		return nil
	}
	var all []*Charge
	for i := range w.Status.Admission.PodSetAssignments {
		podSet := &w.Status.Admission.PodSetAssignments[i]
		charged, needed := podsOf(w, podSet)
		for name, usage := range podSet.ResourceUsage {
			if flavor, isAssigned := podSet.Flavors[name]; isAssigned {
				fr := quota.FlavorResource{Flavor: flavor, Resource: name}
				all = append(all, &Charge{string(w.Status.Admission.ClusterQueue), podSet.Name, fr, usage, charged, needed})
			}
		}
	}
	return all
}

// podsOf returns for how many pods an assignment is charged, and how many of them can still be needed: the pods in the spec less the
// reclaimed ones. Both are zero if the assignment has no count.
func podsOf(w *kueue.Workload, podSet *kueue.PodSetAssignment) (charged, needed int64) {
	if podSet.Count == nil || *podSet.Count <= 0 {
		return 0, 0
	}
	charged, needed = int64(*podSet.Count), int64(*podSet.Count)
	for i := range w.Status.ReclaimablePods {
		if w.Status.ReclaimablePods[i].Name != podSet.Name {
			continue
		}
		for j := range w.Spec.PodSets {
			if w.Spec.PodSets[j].Name == podSet.Name {
				left := int64(w.Spec.PodSets[j].Count) - int64(max(0, w.Status.ReclaimablePods[i].Count))
				needed = min(needed, max(0, left))
			}
		}
	}
	return charged, needed
}

// Milli returns the charge in thousandths.
func (c *Charge) Milli() int64 { return c.left(max(0, Milli(c.usage))) }

// Milli returns thousandths, and the largest number if there are more: Quantity.MilliValue overflows.
func Milli(q resource.Quantity) int64 {
	if q.Cmp(*resource.NewMilliQuantity(math.MaxInt64, resource.DecimalSI)) > 0 {
		return math.MaxInt64
	}
	return q.MilliValue()
}

// Quantity returns the charge in the format of the admission.
func (c *Charge) Quantity() resource.Quantity {
	if c.needed == c.charged {
		return c.usage
	}
	return *resource.NewMilliQuantity(c.Milli(), c.usage.Format)
}

// Amount returns the charge as quota is counted: in thousandths of a CPU and whole units of other resources, rounded up and limited to the largest amount that can
// be charged.
func (c *Charge) Amount() quota.Amount {
	scale := resource.Scale(0)
	if c.Resource == corev1.ResourceCPU {
		scale = resource.Milli
	}
	switch {
	case c.usage.Sign() <= 0:
		return 0
	case c.usage.Cmp(*resource.NewScaledQuantity(int64(quota.MaxCharge), scale)) > 0:
		return quota.Amount(c.left(int64(quota.MaxCharge)))
	}
	return quota.Amount(c.left(c.usage.ScaledValue(scale)))
}

// left returns the part of an amount for the pods that count.
func (c *Charge) left(amount int64) int64 {
	if c.needed == c.charged {
		return amount
	}
	return amount / c.charged * c.needed
}

// A Sum adds up charges, in thousandths.
type Sum map[quota.FlavorResource]int64

// Add adds what a quota Workload holds.
func (s Sum) Add(w *kueue.Workload) {
	for _, c := range ChargesOf(w) {
		s.add(c)
	}
}

func (s Sum) add(c *Charge) { s[c.FlavorResource] = plus(s[c.FlavorResource], c.Milli()) }

// TotalsOf adds up what quota Workloads hold in each ClusterQueue.
func TotalsOf(workloads iter.Seq[*kueue.Workload]) Totals {
	all := Totals{}
	for w := range workloads {
		for _, c := range ChargesOf(w) {
			if all[c.ClusterQueue] == nil {
				all[c.ClusterQueue] = Sum{}
			}
			all[c.ClusterQueue].add(c)
		}
	}
	return all
}

// Totals are the sums of ClusterQueues, by name.
type Totals map[string]Sum

// Of returns what each ClusterQueue holds of one resource of a flavor.
func (t Totals) Of(fr quota.FlavorResource) map[string]int64 {
	used := make(map[string]int64, len(t))
	for queue, sum := range t {
		used[queue] = sum[fr]
	}
	return used
}

// plus adds amounts that are not negative. It stops at the largest: a quota may stand for no limit.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
