package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	redraw  = 200 * time.Millisecond
	whySize = 70
)

// show follows the JobSets until all of them are over: as a table on a terminal, as lines of news where output is piped.
func show(ctx context.Context, o *observer, jobSets int, quota int64) error {
	ticker := time.NewTicker(redraw)
	defer ticker.Stop()
	began := time.Now()
	screen := newScreen(quota)
	for {
		rows := o.rows()
		screen(rows, time.Since(began))
		if over(rows) == jobSets {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d JobSets are over: %w", over(rows), jobSets, ctx.Err())
		case <-ticker.C:
		}
	}
}

func over(rows []row) int {
	n := 0
	for _, r := range rows {
		if r.over {
			n++
		}
	}
	return n
}

// newScreen returns how to print: over the last table, or what is new.
func newScreen(quota int64) func([]row, time.Duration) {
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return func(rows []row, at time.Duration) { table(rows, at, quota) }
	}
	seen := map[string]string{}
	return func(rows []row, at time.Duration) {
		for _, r := range rows {
			line := strings.TrimRight(fmt.Sprintf("%-10s %-22s %-20s %3d GPUs  %s", r.state, r.jobSet, r.stage, r.held, short(r.why)), " ")
			if seen[r.jobSet] != line {
				seen[r.jobSet] = line
				say("%6s  %s", seconds(at), line)
			}
		}
	}
}

func table(rows []row, at time.Duration, quota int64) {
	var b strings.Builder
	b.WriteString("\x1b[2J\x1b[H")
	var held int64
	fmt.Fprintf(&b, "%-24s %-22s %-10s %5s  %s\n", "JOBSET", "STAGE", "STATE", "GPUS", "WHY")
	for _, r := range rows {
		held += r.held
		fmt.Fprintf(&b, "%-24s %-22s %-10s %5d  %s\n", r.jobSet, r.stage, r.state, r.held, short(r.why))
	}
	fmt.Fprintf(&b, "\n%s, %d of %d over; %d of %d GPUs held\n", seconds(at), over(rows), len(rows), held, quota)
	fmt.Fprint(os.Stdout, b.String())
}

func short(s string) string {
	if len(s) > whySize {
		return s[:whySize-3] + "..."
	}
	return s
}

// summarize compares what was measured with what whole-JobSet admission would have cost.
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
