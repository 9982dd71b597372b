package queue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A Standing tells JobSets that are under way from those that have not begun.
type Standing int

const (
	// New is the standing of a stage whose JobSet has neither held quota nor finished a stage.
	New Standing = iota
	// Continuing is the standing of a stage whose JobSet holds quota or has finished stages.
	Continuing
)

// A Position is a place in line. Before all others comes the higher priority; among equals the JobSet that is under way, so that it
// can come to its end and give back what it holds; then who has waited longer; the UID makes the order total.
type Position struct {
	Priority int32
	Standing Standing
	Since    time.Time
	UID      types.UID
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
