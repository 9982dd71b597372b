package queue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Standing distinguishes JobSets that have begun from those that have not.
type Standing int

const (
	// New is the standing of a stage whose JobSet has neither held quota nor finished a stage.
	New Standing = iota
	// Continuing is the standing of a stage whose JobSet holds quota or has finished stages.
	Continuing
)

// A Position orders pending stages. A higher priority comes first; at equal priority a JobSet that has begun, so that it can finish and
// release its quota; then the stage that has waited longer. The UID makes the order total.
type Position struct {
	Priority int32
	Standing Standing
	Since    time.Time
	UID      types.UID
}

// WithoutStanding returns the position as if its JobSet had not begun.
func (p Position) WithoutStanding() Position {
	p.Standing = New
	return p
}

// Compare returns a negative number if p comes before other.
func (p Position) Compare(other Position) int {
	return cmp.Or(
		cmp.Compare(other.Priority, p.Priority),
		cmp.Compare(other.Standing, p.Standing),
		p.Since.Compare(other.Since),
		cmp.Compare(p.UID, other.UID),
	)
}
