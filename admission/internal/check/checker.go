package check

import (
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/wording"
)

// A Checker checks stages.
type Checker struct {
	wording.Wording
	m *model.Model
	// Suspects are the JobSets that may have come to wait for each other.
	Suspects map[*model.JobSet]struct{}
}

// New returns a Checker of the stages of a Model.
func New(m *model.Model) *Checker {
	return &Checker{Wording: wording.Wording{Model: m}, m: m, Suspects: map[*model.JobSet]struct{}{}}
}
