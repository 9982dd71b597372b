package stageplan

import (
	"fmt"
	"strings"
)

// A Problem is one reason why a JobSet has no plan.
type Problem struct {
	// Field is the path of the field in the JobSet, such as spec.startupPolicy.rules[1].targetReplicatedJobs[0].
	Field string
	// Message describes the problem, and what to change unless that is obvious.
	Message string
}

func (p Problem) String() string { return p.Field + ": " + p.Message }

// Problems is the error that New returns: all problems of a JobSet, in the order of its fields.
type Problems []Problem

// maxProblemsShown keeps messages in conditions and Events within what the API allows.
const maxProblemsShown = 8

// Error lists the problems on one line, and counts those beyond the limit.
func (p Problems) Error() string {
	var b strings.Builder
	for i, problem := range p {
		if i == maxProblemsShown {
			fmt.Fprintf(&b, "; and %d more", len(p)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(problem.String())
	}
	return b.String()
}

func (p Problems) addf(field, format string, args ...any) Problems {
	return append(p, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

const (
	replicatedJobsField = "spec.replicatedJobs"
	rulesField          = "spec.startupPolicy.rules"
)

func jobField(i int) string { return fmt.Sprintf("%s[%d]", replicatedJobsField, i) }

func dependencyField(job, i int) string { return fmt.Sprintf("%s.dependsOn[%d]", jobField(job), i) }

func ruleField(i int) string { return fmt.Sprintf("%s[%d]", rulesField, i) }

func targetField(rule, i int) string {
	return fmt.Sprintf("%s.targetReplicatedJobs[%d]", ruleField(rule), i)
}
