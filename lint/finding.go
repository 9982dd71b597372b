package lint

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/lint/internal/policy"
	"github.com/tranche-dev/tranche/manifest"
)

// A Severity is how much a finding matters.
type Severity string

const (
	// Error is a finding that makes an object useless or unacceptable.
	Error Severity = "error"
	// Warning is a finding about an object that is accepted, but a part of it has no effect.
	Warning Severity = "warning"
)

// A Finding is one problem of an object.
type Finding struct {
	Severity Severity `json:"severity"`
	// Rule is the ID of the rule that the object breaks.
	Rule string `json:"rule"`
	File string `json:"file"`
	// Line and Column are those of the field, or of the deepest field above it that the file has. They count from 1.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Object is its kind and its name. It is empty if the text is not readable.
	Object string `json:"object,omitempty"`
	// Field is a path such as spec.resourceGroups[0].flavors[1].name. It is empty if the finding is about the whole object.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	// Cure is what to do.
	Cure string `json:"cure,omitempty"`
	// Edits remove the problem from the text.
	Edits []Edit `json:"edits,omitempty"`
}

// findings collects findings.
type findings struct{ all []Finding }

// A problem is a finding without its place.
type problem struct {
	rule                 rule
	field, message, cure string
	edits                []Edit
}

// add adds a finding about a field of an object, unless only the cluster has the object.
func (f *findings) add(s *source, p problem) {
	if s.isOfCluster {
		return
	}
	if p.field != "" {
		p.field = s.under + p.field
	}
	line, column := s.Place(p.field)
	f.addAt(s, line, column, p)
}

// addAt adds a finding with its place.
func (f *findings) addAt(s *source, line, column int, p problem) {
	f.all = append(f.all, Finding{
		Severity: p.rule.severity, Rule: p.rule.id, File: s.File, Line: line, Column: column, Object: s.String(), Field: p.field,
		Message: p.message, Cure: p.cure, Edits: p.edits,
	})
}

// addUnreadable adds a finding about a part of a file that has no readable object.
func (f *findings) addUnreadable(err *manifest.Error) {
	message, cure, _ := strings.Cut(err.Problem, "; ")
	rule := ruleUnreadable()
	f.all = append(f.all, Finding{Severity: rule.severity, Rule: rule.id, File: err.File, Line: err.Line, Column: err.Column, Message: message, Cure: cure})
}

// objectionOf converts the message of a policy, which begins with a field and ends with the cure.
func objectionOf(o policy.Objection) problem {
	p := problem{rule: rulePolicy(), message: o.Message}
	if first, rest, _ := strings.Cut(o.Message, " "); strings.HasPrefix(first, "spec.") || strings.HasPrefix(first, "metadata.") {
		var isPrefix bool
		if p.field, isPrefix = strings.CutSuffix(first, ":"); isPrefix {
			p.message = rest
		}
	}
	if i := strings.LastIndex(p.message, "; "); i >= 0 {
		p.message, p.cure = p.message[:i], p.message[i+2:]
	}
	p.message += " (policy " + o.Policy + ")"
	return p
}

// sorted returns the findings in the order of files and lines, without duplicates.
func (f *findings) sorted() []Finding {
	slices.SortStableFunc(f.all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.CompactFunc(f.all, func(a, b Finding) bool {
		return a.File == b.File && a.Line == b.Line && a.Object == b.Object && a.Field == b.Field && a.Rule == b.Rule && a.Message == b.Message
	})
}

// Count returns the number of findings of a severity.
func Count(findings []Finding, severity Severity) int {
	n := 0
	for i := range findings {
		if findings[i].Severity == severity {
			n++
		}
	}
	return n
}
