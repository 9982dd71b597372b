package model

import (
	"time"

	"github.com/tranche-dev/tranche/admission/internal/settings"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// Co-start (policy Safe): stages that are joined by Ready run at the same time. A launcher is a stage that holds accelerators and starts other stages
// when it is ready. Alone it would hold its accelerators only in order to wait, so that it is admitted when there is quota for all of these stages.
// That quota is a peak reservation from then on, until it is used or expires: a launcher that is not ready by then keeps its own quota, and stage
// safety still guarantees that its JobSet can finish.
//
// No other stage runs on that quota meanwhile: a launcher may become ready at any moment, so that no limit on the execution time of another stage
// makes sure that it ends before.

// CoStarted returns the stages of a JobSet that start as soon as some launchers are ready, with the given progress.
func (j *JobSet) CoStarted(c *safety.Progress, launchers []bool) []int {
	running, finished := make([]bool, len(launchers)), make([]bool, len(launchers))
	for s := range launchers {
		finished[s] = c.HasFinished(s)
		running[s] = !finished[s] && c.Holds(s)
	}
	return j.Plan.StartedBy(launchers, running, finished)
}

// coStartPeaks returns the most that the JobSet may hold at once, as alternatives, when the stages run for which co-start reserves quota. There are
// none if it reserves nothing. The JobSet must have a claim.
func (j *JobSet) coStartPeaks(m *Model) []quota.Usage {
	launchers, _ := j.launchers(m)
	if launchers == nil {
		return nil
	}
	c := m.Progress(j, j.ClaimQueue)
	started := j.CoStarted(c, launchers)
	if len(started) == 0 {
		return nil
	}
	return c.PeaksWith(started)
}

// setCoStartExpiry sets the time at which the next launcher of a JobSet gives its reservation up, and reports whether any has one.
func (j *JobSet) setCoStartExpiry(m *Model) bool {
	launchers, expiry := j.launchers(m)
	m.Timers.Put(&j.Timer, expiry, Timed{JobSet: j})
	return launchers != nil
}

// launchers reports, for each stage of a JobSet with a claim, whether it is a launcher for whose stages quota may still be reserved, and when the
// first of them expires. It is nil if there is none.
func (j *JobSet) launchers(m *Model) (launchers []bool, expiry time.Time) {
	setting := m.Config.CoStartOf(&j.ClaimQueue.Spec)
	if !setting.IsEnabled || setting.ReserveFor == 0 || m.Policy(j.ClaimQueue, j) != settings.Safe {
		return nil, time.Time{}
	}
	for _, s := range j.Members {
		if s.IsGrowth || !s.Entry.Counts() || s.Index < 0 || s.Index >= len(j.Plan.Stages) || !j.Plan.OpensByReady(s.Index) || !m.Config.HasAccelerators(m.Tree.Index, s.Entry.Usage) {
			continue
		}
		if s.IsAdmitted { // otherwise its Jobs have not been released
			end := s.AdmittedAt.Add(setting.ReserveFor)
			if !end.After(m.Now) {
				continue
			}
			if expiry.IsZero() || end.Before(expiry) {
				expiry = end
			}
		}
		if launchers == nil {
			launchers = make([]bool, len(j.Plan.Stages))
		}
		launchers[s.Index] = true
	}
	return launchers, expiry
}
