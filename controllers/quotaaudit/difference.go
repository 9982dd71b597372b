package quotaaudit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
)

// An Account identifies an amount that the engine charges.
type Account struct {
	ClusterQueue string
	LocalQueue   types.NamespacedName
	quota.FlavorResource
}

// Compare orders accounts.
func (a Account) Compare(o Account) int {
	return cmp.Or(cmp.Compare(a.ClusterQueue, o.ClusterQueue), a.FlavorResource.Compare(o.FlavorResource),
		cmp.Compare(a.LocalQueue.Namespace, o.LocalQueue.Namespace), cmp.Compare(a.LocalQueue.Name, o.LocalQueue.Name))
}

// A Line has the amount that the engine charges to an account, and the amount that it should charge.
type Line struct {
	Account
	Booked, Counted quota.Amount
}

// A Difference is a quota Workload that the engine charges differently than its object says.
type Difference struct {
	Key types.NamespacedName
	// Object is the state according to the object. It has no UID if the object does not exist.
	Object Holding
	// Booked is what the engine charges. It has no UID if that is nothing.
	Booked admission.StageCharge
}

// Differences compares objects, which are all existing quota Workloads, with the charges of the engine. It skips stages with a decision in
// flight.
func Differences(objects []Holding, chargeSnapshot *admission.ChargeSnapshot) []Difference {
	booked := make(map[types.NamespacedName]*admission.StageCharge, len(chargeSnapshot.Stages))
	for i := range chargeSnapshot.Stages {
		booked[chargeSnapshot.Stages[i].Key] = &chargeSnapshot.Stages[i]
	}
	var all []Difference
	note := func(d Difference) {
		if !d.Booked.IsUnderWay && len(d.Lines()) > 0 {
			all = append(all, d)
		}
	}
	for i := range objects {
		d := Difference{Key: objects[i].Key, Object: objects[i]}
		if book := booked[d.Key]; book != nil {
			d.Booked = *book
			delete(booked, d.Key)
		}
		note(d)
	}
	for key, book := range booked {
		note(Difference{Key: key, Booked: *book})
	}
	slices.SortFunc(all, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
	})
	return all
}

// Lines returns the accounts to which the engine charges a wrong amount for the quota Workload.
func (d *Difference) Lines() []Line {
	all := lines{}
	for _, a := range d.Booked.Amounts {
		all.book(Account{d.Booked.ClusterQueue, d.Booked.LocalQueue, a.FlavorResource}, a.Amount)
	}
	for name, amount := range d.Object.Amounts {
		all.count(Account{d.Object.ClusterQueue, d.Object.LocalQueue, name}, amount)
	}
	return all.wrong()
}

// fingerprint is the same for two differences only if neither the object nor the charges have changed in between.
func (d *Difference) fingerprint() string {
	return fmt.Sprintf("%s@%s %s@%d %v", d.Object.UID, d.Object.ResourceVersion, d.Booked.UID, d.Booked.ResourceVersion, d.Lines())
}

// Imbalances returns the accounts of queues whose total is not the sum of the charges of their stages. The charges are a consistent
// snapshot, so no second check is needed.
func Imbalances(chargeSnapshot *admission.ChargeSnapshot) []Line {
	reserved, charged, local := lines{}, lines{}, lines{}
	for i := range chargeSnapshot.Stages {
		s := &chargeSnapshot.Stages[i]
		for _, a := range s.Amounts {
			reserved.count(Account{ClusterQueue: s.ClusterQueue, FlavorResource: a.FlavorResource}, a.Amount)
			charged.count(Account{ClusterQueue: s.ClusterQueue, FlavorResource: a.FlavorResource}, a.Amount)
			local.count(Account{LocalQueue: s.LocalQueue, FlavorResource: a.FlavorResource}, a.Amount)
		}
	}
	for _, q := range chargeSnapshot.ClusterQueues {
		for _, a := range q.Reserved {
			reserved.book(Account{ClusterQueue: q.Name, FlavorResource: a.FlavorResource}, a.Amount)
		}
		for _, a := range q.Charged {
			charged.book(Account{ClusterQueue: q.Name, FlavorResource: a.FlavorResource}, a.Amount)
		}
	}
	for _, q := range chargeSnapshot.LocalQueues {
		for _, a := range q.Reserved {
			local.book(Account{LocalQueue: q.Key, FlavorResource: a.FlavorResource}, a.Amount)
		}
	}
	return slices.Concat(charged.wrong(), reserved.wrong(), local.wrong())
}

// lines are the Lines of some accounts.
type lines map[Account]Line

// book adds to the amount that the engine charges to an account.
func (l lines) book(account Account, amount quota.Amount) {
	l[account] = Line{account, l[account].Booked + amount, l[account].Counted}
}

// count adds to the amount that the engine should charge to an account.
func (l lines) count(account Account, amount quota.Amount) {
	l[account] = Line{account, l[account].Booked, l[account].Counted + amount}
}

// wrong returns the lines with a mismatch, in order.
func (l lines) wrong() []Line {
	all := slices.SortedFunc(maps.Values(l), func(a, b Line) int { return a.Compare(b.Account) })
	return slices.DeleteFunc(all, func(l Line) bool { return l.Booked == l.Counted })
}
