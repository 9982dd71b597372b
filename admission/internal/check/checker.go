package check

import (
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// A Checker checks stages.
type Checker struct {
	wording
	// Suspects are the JobSets that may have come to wait for each other.
	Suspects map[*model.JobSet]struct{}
}

// New returns a Checker of the stages of a Model.
func New(m *model.Model) *Checker {
	return &Checker{wording: wording{m}, Suspects: map[*model.JobSet]struct{}{}}
}

// A wording has the amounts and the names of messages.
type wording struct{ m *model.Model }
