package account

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
)

// A Run is the record of a number of JobSets.
type Run struct {
	JobSets []JobSet `json:"jobSets"`
	Curve   []Step   `json:"curve"`
}

// A Comparison is the same JobSets run in two ways.
type Comparison struct {
	// Seed is what the JobSets were drawn from.
	Seed uint64 `json:"seed"`
	// Quota is how many accelerators there are for all of them.
	Quota int64 `json:"quota"`
	// Whole is the run in which each JobSet was admitted at once, Staged the one in which it was admitted stage by stage.
	Whole  *Run `json:"whole"`
	Staged *Run `json:"staged"`
}

// Figures summarize a run.
type Figures struct {
	// Makespan is the time from the first submission until the last JobSet has finished.
	Makespan time.Duration
	// Wait is the time from the submission of a JobSet until its first part was admitted, Waited is how long it waited for quota in all its
	// stages together, and Turnaround is the time from its submission until it has finished.
	Wait, Waited, Turnaround Spread
	// Held is accelerators times the seconds for which they were held, Idle the part of it in which no running pod had them.
	Held, Idle float64
}

// A Spread describes the distribution of a duration.
type Spread struct{ Mean, P95 time.Duration }

// Figures summarizes a run.
func (r *Run) Figures() Figures {
	var f Figures
	var waits, waited, turnarounds []float64
	var first, last float64
	for i := range r.JobSets {
		js := &r.JobSets[i]
		if i == 0 {
			first = js.Submitted
		}
		last = max(last, js.Finished)
		waits = append(waits, js.Admitted-js.Submitted)
		waited = append(waited, js.Waited)
		turnarounds = append(turnarounds, js.Finished-js.Submitted)
		f.Held += js.Held
		f.Idle += js.Idle
	}
	f.Makespan = seconds(last - first)
	f.Wait, f.Waited, f.Turnaround = spread(waits), spread(waited), spread(turnarounds)
	return f
}

func spread(values []float64) Spread {
	var sorted []time.Duration
	var sum time.Duration
	for _, value := range values {
		sorted = append(sorted, seconds(value))
		sum += seconds(value)
	}
	slices.Sort(sorted)
	return Spread{Mean: sum / time.Duration(max(len(sorted), 1)), P95: ledger.Quantile(sorted, 0.95)}
}

func seconds(value float64) time.Duration {
	return time.Duration(value * float64(time.Second)).Round(time.Millisecond)
}
