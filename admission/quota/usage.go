package quota

import (
	"cmp"
	"iter"
	"slices"
)

// A Charge is an amount of one FlavorResource.
type Charge struct {
	ID     ID
	Amount Amount
}

// A Usage is a list of charges: in ascending order of the IDs, without repetition, and all amounts above zero. A shared Usage must not be
// changed.
type Usage []Charge //nolint:recvcheck // what changes it needs a pointer, what reads it does not

func (u Usage) find(id ID) (int, bool) {
	return slices.BinarySearchFunc(u, id, func(c Charge, id ID) int { return cmp.Compare(c.ID, id) })
}

// Of returns the amount of an ID.
func (u Usage) Of(id ID) Amount {
	if i, ok := u.find(id); ok {
		return u[i].Amount
	}
	return 0
}

// Add adds an amount, which must not be negative.
func (u *Usage) Add(id ID, a Amount) {
	if a <= 0 {
		return
	}
	i, ok := u.find(id)
	if ok {
		(*u)[i].Amount = (*u)[i].Amount.Plus(a)
		return
	}
	*u = slices.Insert(*u, i, Charge{id, a})
}

// AddAll adds every amount of another usage.
func (u *Usage) AddAll(other Usage) {
	for _, c := range other {
		u.Add(c.ID, c.Amount)
	}
}

// Plus returns the sum of two usages, which is the other one itself if one of them is empty.
func (u Usage) Plus(other Usage) Usage {
	if len(u) == 0 {
		return other
	}
	sum := u.Clone()
	sum.AddAll(other)
	return sum
}

// Without returns how much each amount is above that of another usage, and leaves out those that are not.
func (u Usage) Without(other Usage) Usage {
	var rest Usage
	for _, c := range u {
		if o := other.Of(c.ID); c.Amount > o {
			rest = append(rest, Charge{c.ID, c.Amount.Minus(o)})
		}
	}
	return rest
}

// Equal reports whether two usages are the same.
func (u Usage) Equal(other Usage) bool { return slices.Equal(u, other) }

// Clone returns a copy that may be changed.
func (u Usage) Clone() Usage { return slices.Clone(u) }

// ByName yields the amounts ordered by name, for messages.
func (x *Index) ByName(u Usage) iter.Seq2[FlavorResource, Amount] {
	return func(yield func(FlavorResource, Amount) bool) {
		for _, c := range slices.SortedFunc(slices.Values(u), func(a, b Charge) int { return x.Compare(a.ID, b.ID) }) {
			if !yield(x.Name(c.ID), c.Amount) {
				return
			}
		}
	}
}

// A Sum is a sum of usages from which each can be subtracted again. The zero Sum is empty.
type Sum struct{ amounts []Amount }

// Add adds a usage.
func (s *Sum) Add(u Usage) {
	for _, c := range u {
		*s.at(c.ID) += c.Amount
	}
}

// Take subtracts a usage that was added before.
func (s *Sum) Take(u Usage) {
	for _, c := range u {
		*s.at(c.ID) -= c.Amount
	}
}

// Of returns the amount of an ID.
func (s *Sum) Of(id ID) Amount {
	if int(id) < len(s.amounts) {
		return s.amounts[id]
	}
	return 0
}

// Usage returns the sum.
func (s *Sum) Usage() Usage {
	var u Usage
	for id, a := range s.amounts {
		if a != 0 {
			u = append(u, Charge{ID(id), a})
		}
	}
	return u
}

func (s *Sum) at(id ID) *Amount {
	if more := int(id) + 1 - len(s.amounts); more > 0 {
		s.amounts = append(s.amounts, make([]Amount, more)...)
	}
	return &s.amounts[id]
}
