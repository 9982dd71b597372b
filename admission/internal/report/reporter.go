package report

import (
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/model"
)

// A Reporter answers questions about a Model.
type Reporter struct {
	m     *model.Model
	check *check.Checker
}

// New returns a Reporter about a Model.
func New(m *model.Model, checker *check.Checker) *Reporter { return &Reporter{m: m, check: checker} }
