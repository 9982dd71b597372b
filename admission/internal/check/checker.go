package check

import (
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// A Checker checks stages.
type Checker struct {
	m *model.Model
	// deadlocked are the JobSets that wait for each other, and Suspects those that may do so now.
	Suspects map[*model.JobSet]struct{}
}

// New returns a Checker of the stages of a Model.
func New(m *model.Model) *Checker { return &Checker{m: m, Suspects: map[*model.JobSet]struct{}{}} }
