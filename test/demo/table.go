package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

const (
	redraw  = 200 * time.Millisecond
	whySize = 70
)

// show follows the JobSets until all of them have finished: as a table on a terminal, as lines of changes where output is piped.
func show(ctx context.Context, o *observer, jobSets int) error {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	began := time.Now()
	screen := newScreen()
	for {
		rows := o.rows()
		screen(rows, time.Since(began))
		if finished(rows) == jobSets {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d JobSets have finished: %w", finished(rows), jobSets, ctx.Err())
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
			line := strings.TrimRight(fmt.Sprintf("%-9s %-28s %-16s %-24s %s", r.state, r.jobSet, r.stage, r.held, short(r.why)), " ")
			if seen[r.jobSet] != line {
				seen[r.jobSet] = line
				say("%6s  %s", seconds(at), line)
			}
		}
	}
}

func table(rows []row, at time.Duration) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	all := holding{}
	fmt.Fprintln(w, "JOBSET\tSTAGE\tSTATE\tHOLDS\tWHY")
	for _, r := range rows {
		for q, amount := range r.held {
			all[q] += amount
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.jobSet, r.stage, r.state, r.held, short(r.why))
	}
	_ = w.Flush()
	held := all.String()
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
