package backfill

import (
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/queue"
)

// Place returns the position by which a stage competes for reservations, regardless of which JobSet has begun: its own, or the last one of its co-admission
// group. It is the same in all ClusterQueues, so that of some groups that wait for each other's ClusterQueues one comes first in all of its own.
func Place(s *model.Stage) queue.Position {
	last := s.Element.WithoutStanding()
	b := s.CoAdmissionGroup()
	if b == nil {
		return last
	}
	for _, other := range b.Members {
		if other.QueuedIn == nil {
			continue
		}
		if p := other.Element.WithoutStanding(); p.Compare(last) > 0 {
			last = p
		}
	}
	return last
}

// HasPrecedence reports whether a stage comes before the due stage of its own ClusterQueue. Where past usage orders the ClusterQueue, that counts first. No
// co-admission group is due there.
func HasPrecedence(s *model.Stage, d *model.Due) bool {
	if s.CoAdmissionGroup() != nil || len(d.Queues) > 1 {
		return ComesFirst(s, d)
	}
	return s.Element.HasPrecedence(d.Stage.Element)
}

// ComesFirst reports whether a stage comes before a due stage of any ClusterQueue.
func ComesFirst(s *model.Stage, d *model.Due) bool { return Place(s).Compare(d.Place) < 0 }

// IsFor reports whether a stage is due, or is in the same co-admission group as the due stage.
func IsFor(d *model.Due, s *model.Stage) bool {
	return d.Stage == s || d.Stage.IsTogetherWith(s) && s.CoAdmissionGroup() != nil
}
