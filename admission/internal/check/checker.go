package check

import (
	"github.com/tranche-dev/tranche/admission/internal/backfill"
	"github.com/tranche-dev/tranche/admission/internal/lookahead"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/wording"
)

// A Checker checks stages.
type Checker struct {
	wording.Wording
	m *model.Model
	// Ahead has the JobSets that are prepared ahead.
	Ahead *lookahead.Board
}

// New returns a Checker of the stages of a Model.
func New(m *model.Model) *Checker {
	backfill.Follow(m)
	return &Checker{Wording: wording.Wording{Model: m}, m: m, Ahead: lookahead.New(m)}
}
