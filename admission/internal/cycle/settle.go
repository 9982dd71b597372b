package cycle

import (
	"time"

	"github.com/tranche-dev/tranche/admission/internal/decision"
)

// Settle ends a decision: either it was written, and the answer applied, or the write failed. From then on the observed state counts: a stage
// whose reservation has not been observed is released and waits again, and a stage that has not been observed as evicted may be evicted again. It
// is a no-op if its stage no longer exists.
func (cy *Cycle) Settle(id decision.ID) {
	key, ok := cy.m.InFlight[id]
	if !ok {
		return
	}
	delete(cy.m.InFlight, id)
	switch s := cy.m.Stages[key]; {
	case s == nil:
	case s.Assumed != nil && s.Assumed.Decision == id:
		s.Assumed = nil
		cy.m.Refresh(s)
	case s.Notice.Decision() == id:
		s.Notice.Settle()
		cy.m.Refresh(s)
		cy.m.Schedule.WakeQueueAndPreemptors(s.Entry.ClusterQueue)
	case s.Evicting == id:
		s.Evicting = 0
		cy.m.Refresh(s)
		cy.m.Schedule.WakeQueueAndPreemptors(s.Entry.ClusterQueue)
	}
}

// InFlight reports whether a decision has been neither settled nor superseded by an observation. A superseded decision must no longer be written.
func (cy *Cycle) InFlight(id decision.ID) bool {
	_, waits := cy.m.InFlight[id]
	return waits
}

// Advance sets the time of the Engine without a decision: stages whose back-off has expired by now wait again.
func (cy *Cycle) Advance(now time.Time) {
	if now.After(cy.m.Now) {
		cy.m.Now = now
		fireTimers(cy.m)
	}
}

// NextTime returns the time at which Decide has to be called again even if nothing is observed before.
func (cy *Cycle) NextTime() (at time.Time, ok bool) {
	at, _, ok = cy.m.Timers.First()
	if cy.m.Decay != nil && (!ok || cy.nextSample.Before(at)) {
		at, ok = cy.nextSample, true
	}
	if ends, isNoticed := cy.m.Notices.First(cy.m.Now); isNoticed && (!ok || ends.Before(at)) {
		at, ok = ends, true
	}
	return at, ok
}
