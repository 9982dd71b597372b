package fairshare

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A UsagePolicy is how the past usage of LocalQueues determines their order in a ClusterQueue (KEP-4136).
type UsagePolicy struct {
	// UsageHalfLifeTime is the time after which usage counts half. If it is zero, past usage does not count.
	UsageHalfLifeTime time.Duration
	// UsageSamplingInterval is how often the usage in the status of a LocalQueue is updated, and for how long an admission counts in advance, so
	// that each of several admissions of one LocalQueue affects the order at once. In a Config, zero means 5 minutes.
	UsageSamplingInterval time.Duration
	// ResourceWeights are 1 unless set.
	ResourceWeights map[corev1.ResourceName]float64
}

// A Decay applies a UsagePolicy to Accounts.
type Decay struct {
	index  *quota.Index
	policy UsagePolicy
}

// An Account has the past usage of one LocalQueue, up to some time. The zero Account has no usage.
type Account struct {
	// consumed is by resource, in the usual unit of the resource. Between two changes it moves towards the running usage, half of the way in each
	// half-life.
	consumed []float64
	running  quota.Sum
	// entered is the usage that has a reservation and is not admitted yet.
	entered quota.Sum
	at      time.Time
}

// NewDecay returns a Decay for usages with the numbers of an Index.
func NewDecay(index *quota.Index, policy UsagePolicy) *Decay { return &Decay{index, policy} }

// Enter adds the penalty for a reservation.
func (d *Decay) Enter(a *Account, u quota.Usage) { a.entered.Add(u) }

// Withdraw removes the penalty for a reservation that was released before the admission.
func (d *Decay) Withdraw(a *Account, u quota.Usage) { a.entered.Take(u) }

// Admit starts the usage of a reservation that was entered. The penalty stays, as usage.
func (d *Decay) Admit(a *Account, u quota.Usage, now time.Time) {
	a.entered.Take(u)
	d.advance(a, now)
	penalty := d.weight(d.policy.UsageSamplingInterval)
	for _, c := range u {
		*a.amount(d.index.Resource(c.ID)) += penalty * d.units(c)
	}
	a.running.Add(u)
}

// Resume starts usage that was admitted before a restart of the manager: at the time of its admission, or that of the restored status if that is
// later.
func (d *Decay) Resume(a *Account, u quota.Usage, at time.Time) {
	d.advance(a, at)
	a.running.Add(u)
}

// Release ends running usage.
func (d *Decay) Release(a *Account, u quota.Usage, now time.Time) {
	d.advance(a, now)
	a.running.Take(u)
}

// Level returns one number for the past and imminent usage of a LocalQueue. The lower one is served first. A LocalQueue without weight comes
// after all that have one. It does not change the Account: what is asked in between must not change how numbers are rounded.
func (d *Decay) Level(a *Account, weight float64, now time.Time) float64 {
	if weight <= 0 {
		return math.Inf(1)
	}
	penalty, w := d.weight(d.policy.UsageSamplingInterval), 0.0
	if elapsed := now.Sub(a.at); elapsed > 0 && !a.at.IsZero() {
		w = d.weight(elapsed)
	}
	var level float64
	if d.policy.UsageHalfLifeTime > 0 {
		for r, used := range a.consumed {
			level += d.resourceWeight(r) * (1 - w) * used
		}
	}
	for _, c := range a.running.Usage() {
		level += d.resourceWeight(d.index.Resource(c.ID)) * w * d.units(c)
	}
	for _, c := range a.entered.Usage() {
		level += d.resourceWeight(d.index.Resource(c.ID)) * penalty * d.units(c)
	}
	return level / weight
}

// Status returns the values that must survive a restart. The Account continues from these values, so that it is the same as one that is restored from
// them. They are so exact that what is rounded off is little of what is consumed between two samples.
func (d *Decay) Status(a *Account, now time.Time) *kueue.LocalQueueAdmissionFairSharingStatus {
	d.advance(a, now)
	s := &kueue.LocalQueueAdmissionFairSharingStatus{ConsumedResources: corev1.ResourceList{}, LastUpdate: metav1.NewTime(a.at)}
	for r, used := range a.consumed {
		if q := exactly(used); !q.IsZero() {
			s.ConsumedResources[d.index.ResourceName(r)] = *q
		}
	}
	a.consumed = d.Restore(s).consumed
	return s
}

// Restore returns the account for a status. Resources that the Index does not know are left out.
func (d *Decay) Restore(s *kueue.LocalQueueAdmissionFairSharingStatus) Account {
	a := Account{at: s.LastUpdate.Time}
	for r := range d.index.Resources() {
		if q, ok := s.ConsumedResources[d.index.ResourceName(r)]; ok && q.Sign() > 0 {
			*a.amount(r) = q.AsApproximateFloat64()
		}
	}
	return a
}

// exactly returns a Quantity in the smallest unit that can hold a value.
func exactly(x float64) *resource.Quantity {
	for _, scale := range []resource.Scale{resource.Nano, resource.Micro, resource.Milli} {
		if scaled := x * math.Pow10(-int(scale)); scaled < math.MaxInt64 {
			return resource.NewScaledQuantity(quantity(scaled), scale)
		}
	}
	return resource.NewQuantity(quantity(x), resource.DecimalSI)
}

// quantity rounds, and saturates.
func quantity(x float64) int64 {
	if x = math.Round(x); x < math.MaxInt64 {
		return int64(x)
	}
	return math.MaxInt64
}

// weight returns which part of the way to the running usage the consumed usage moves in some time.
func (d *Decay) weight(elapsed time.Duration) float64 {
	if d.policy.UsageHalfLifeTime <= 0 {
		return 0
	}
	return 1 - math.Exp2(-elapsed.Seconds()/d.policy.UsageHalfLifeTime.Seconds())
}

// advance updates the account to a time. Time does not go backwards.
func (d *Decay) advance(a *Account, now time.Time) {
	if a.at.IsZero() {
		a.at = now
	}
	if d.policy.UsageHalfLifeTime <= 0 {
		clear(a.consumed)
	}
	elapsed := now.Sub(a.at)
	if elapsed <= 0 {
		return
	}
	a.at = now
	w := d.weight(elapsed)
	for r := range a.consumed {
		a.consumed[r] *= 1 - w
	}
	for _, c := range a.running.Usage() {
		*a.amount(d.index.Resource(c.ID)) += w * d.units(c)
	}
}

func (a *Account) amount(r int) *float64 {
	if missing := r + 1 - len(a.consumed); missing > 0 {
		a.consumed = append(a.consumed, make([]float64, missing)...)
	}
	return &a.consumed[r]
}

func (d *Decay) resourceWeight(r int) float64 {
	if w, ok := d.policy.ResourceWeights[d.index.ResourceName(r)]; ok {
		return w
	}
	return 1
}

// units converts to the usual unit of the resource.
func (d *Decay) units(c quota.Charge) float64 {
	if d.index.Name(c.ID).Resource == corev1.ResourceCPU {
		return float64(c.Amount) / 1000
	}
	return float64(c.Amount)
}
