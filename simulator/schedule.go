package simulator

import (
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// schedule puts a line into the event queue. Reports of the present, and run lines, are executed at once.
func (s *simulation) schedule(line *scenario.Line) error {
	if line.Statement == nil {
		return nil
	}
	at := max(line.At, s.Now)
	later := func(f func() error) {
		s.hasRun = false
		s.Events.Add(at, func() {
			if err := f(); err != nil {
				s.Fail(&scenario.Error{Line: line.Number, Err: err})
			}
		})
	}
	switch statement := line.Statement.(type) {
	case scenario.Declare:
		later(func() error { return s.declare(statement) })
	case scenario.Change:
		later(func() error { return s.change(statement) })
	case scenario.Remove:
		later(func() error { return s.remove(statement) })
	case scenario.Submit:
		later(func() error { return s.submit(*statement.Submission) })
	case scenario.Set:
		later(func() error { return s.set(statement) })
	case scenario.Resize:
		later(func() error { return s.resize(statement) })
	case scenario.Act:
		later(func() error { s.act(statement); return nil })
	case scenario.Check:
		later(func() error { s.check(statement); return nil })
	case scenario.Crash:
		later(func() error { s.CrashAfter(statement.AfterWrites); return nil })
	case scenario.FailWrite:
		later(func() error { s.Failing = append(s.Failing, statement.Target); return nil })
	case scenario.Explain:
		return s.planReport(line, func() { s.Explain(statement.Target) })
	case scenario.Held:
		return s.planReport(line, func() { s.HeldNow(statement.Queue) })
	case scenario.Run:
		s.hasRun = true
		if statement.ToTheEnd {
			return s.runUntil(forever)
		}
		return s.runUntil(statement.Until)
	}
	return nil
}

// planReport executes a report of the present at once, after all earlier lines have happened, and plans a report of the future.
func (s *simulation) planReport(line *scenario.Line, report func()) error {
	if line.At > s.Now {
		s.hasRun = false
		s.Events.AddReport(line.At, report)
		return nil
	}
	if err := s.instant(); err != nil {
		return err
	}
	report()
	return nil
}
