package dashboard

import "github.com/tranche-dev/tranche/dashboard/internal/amounts"

// An Amount is a quantity of a resource for readers.
type Amount = amounts.Amount

// amountsHeld returns charges for readers.
func amountsHeld(charges []charge) []Amount {
	var all []Amount
	for _, c := range charges {
		q := c.amount.Quantity(c.Resource)
		all = append(all, Amount{Resource: c.Resource, Flavor: string(c.Flavor), Amount: q.String()})
	}
	return all
}
