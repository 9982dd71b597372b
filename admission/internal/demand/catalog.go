package demand

import (
	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/podresources"
)

// A Catalog has one Shape for each demand, and the objects that determine what pods are charged.
type Catalog struct {
	// draft is memory for a demand under construction, and draftKey for its key. Most demands turn out to be known.
	draft    Demand
	draftKey []byte
	// pods is memory for the pod specs of a demand under construction.
	pods []podresources.PodSet
	podRules
	Demands map[string]*Demand
}

// NewCatalog returns a Catalog without any Shape.
func NewCatalog(charges charge.Rules, devices device.Mapping) *Catalog {
	return &Catalog{podRules: newPodRules(charges, devices), Demands: map[string]*Demand{}}
}
