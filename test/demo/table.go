package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

const (
	redraw  = 200 * time.Millisecond
	whySize = 70
)

// show follows the JobSets until all of them have finished: as a table on a terminal, as lines of changes where output is piped.
func show(ctx context.Context, o *observer, jobSets int) error {
	return newDisplay(o).until(ctx, jobSets)
}

// A display prints what an observer sees, with the time since the display was made.
type display struct {
	observer *observer
	began    time.Time
	screen   func([]row, time.Duration)
}

func newDisplay(o *observer) *display {
	return &display{observer: o, began: time.Now(), screen: newScreen()}
}

// until prints until so many rows have finished.
func (d *display) until(ctx context.Context, want int) error {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	for {
		rows := d.observer.rows()
		d.screen(rows, time.Since(d.began))
		if finished(rows) >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d JobSets and Jobs have finished: %w", finished(rows), want, ctx.Err())
		case <-ticker.C:
		}
	}
}

func finished(rows []row) int {
	n := 0
	for _, r := range rows {
		if r.finished {
			n++
		}
	}
	return n
}

// newScreen returns a function that prints the rows: on a terminal in place of the last table, otherwise the rows that have changed.
func newScreen() func([]row, time.Duration) {
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return func(rows []row, at time.Duration) { fmt.Fprint(os.Stdout, "\x1b[2J\x1b[H"+table(rows, at)) }
	}
	seen := map[string]string{}
	return func(rows []row, at time.Duration) {
		for _, r := range rows {
			line := strings.TrimRight(fmt.Sprintf("%-9s %-28s %-16s %-41s %s", r.state, r.jobSet, r.stage, describe(r.held), short(r.why)), " ")
			if seen[r.jobSet] != line {
				seen[r.jobSet] = line
				say("%7s  %s", seconds(at), line)
			}
		}
	}
}

func table(rows []row, at time.Duration) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	all := ledger.Sum{}
	fmt.Fprintln(w, "JOBSET\tSTAGE\tSTATE\tHOLDS\tWHY")
	for _, r := range rows {
		for q, amount := range r.held {
			all[q] += amount
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.jobSet, r.stage, r.state, describe(r.held), short(r.why))
	}
	_ = w.Flush()
	held := describe(all)
	if held == "" {
		held = "nothing"
	}
	fmt.Fprintf(&b, "\n%s, %d of %d finished; held: %s\n", seconds(at), finished(rows), len(rows), held)
	return b.String()
}

func short(s string) string {
	if len(s) > whySize {
		return s[:whySize-3] + "..."
	}
	return s
}

// summarize compares the measured figures with those computed for admission of whole JobSets.
func summarize(staged, whole figures) {
	say("\n%-28s %12s %18s %18s", "", "makespan", "GPU-seconds held", "of these idle")
	for _, line := range []struct {
		name string
		f    figures
	}{{"by stage (measured)", staged}, {"whole JobSets (computed)", whole}} {
		say("%-28s %12s %18.0f %18.0f", line.name, seconds(line.f.makespan), line.f.held, line.f.idle)
	}
	if whole.never > 0 {
		say("%d of the JobSets would never have been admitted as a whole: the sum of their stages exceeds the quota.", whole.never)
	}
	say("")
}
