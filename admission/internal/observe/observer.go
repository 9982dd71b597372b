package observe

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/version"
)

// An Observer applies observed facts to a Model.
type Observer struct {
	m          *model.Model
	flavors    map[kueue.ResourceFlavorReference]*version.Observed[*flavor.Flavor]
	tombstones version.Tombstones
}

// New returns an Observer that applies Events to a Model.
func New(m *model.Model) *Observer {
	return &Observer{
		m:          m,
		flavors:    map[kueue.ResourceFlavorReference]*version.Observed[*flavor.Flavor]{},
		tombstones: version.NewGraves(),
	}
}

// Apply records one observed fact.
func (o *Observer) Apply(event Event) {
	event.apply(o)
}
