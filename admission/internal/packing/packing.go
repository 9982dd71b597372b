// Package packing searches for choices of flavors with which several demands fit at once.
package packing

import (
	"slices"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

// A Part is the demand in one ClusterQueue. Preferred may be nil.
type Part struct {
	Node      *quota.Node
	Items     []flavor.Item
	Preferred flavor.Choice
	// Choice is the result of Fits.
	Choice flavor.Choice
}

// Fits chooses flavors for each part with which all fit at once and which are accepted, and reports whether there are any. accepts, which may be nil, is called
// while all parts are charged.
func Fits(tree *quota.Tree, parts []Part, accepts func() bool) bool {
	p := search{tree: tree, parts: parts, accepts: accepts, budget: flavor.MaxChoices*4 + len(parts)}
	return p.place(0)
}

type search struct {
	tree    *quota.Tree
	parts   []Part
	accepts func() bool
	// budget is how many more choices may be tried.
	budget int
}

// place searches choices for the parts from the i-th on.
func (p *search) place(i int) bool {
	if i == len(p.parts) {
		return p.accepts == nil || p.accepts()
	}
	part := &p.parts[i]
	if part.Preferred != nil && p.tryChoice(i, part.Preferred) {
		return true
	}
	for choice := range flavor.Choices(part.Items, flavor.MaxChoices) {
		if p.budget <= 0 {
			return false
		}
		if !slices.Equal(choice, part.Preferred) && p.tryChoice(i, choice) {
			return true
		}
	}
	return false
}

func (p *search) tryChoice(i int, choice flavor.Choice) bool {
	p.budget--
	part := &p.parts[i]
	usage := choice.Usage(part.Items)
	if !part.Node.Fits(usage) {
		return false
	}
	part.Choice = slices.Clone(choice)
	return p.tree.WhatIf(func() bool {
		part.Node.Charge(usage)
		return p.place(i + 1)
	})
}
