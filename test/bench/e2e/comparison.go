package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/test/bench/e2e/account"
	"github.com/tranche-dev/tranche/test/bench/e2e/plot"
)

func titleOf(w way) string {
	if w == whole {
		return "each JobSet admitted as a whole"
	}
	return "each JobSet admitted stage by stage"
}

// A line is one figure of both runs.
type line struct {
	name, title, unit string
	whole, staged     float64
}

// ratio returns the figure of the staged run divided by that of the other, 1 if both are zero.
func (l *line) ratio() float64 {
	if l.whole == l.staged {
		return 1
	}
	return l.staged / l.whole
}

// linesOf returns the figures by which the runs are compared.
func linesOf(c *account.Comparison) []line {
	w, s := c.Whole.Figures(), c.Staged.Figures()
	inSeconds := func(name, title string, of func(*account.Figures) time.Duration) line {
		return line{name, title, "s", of(&w).Seconds(), of(&s).Seconds()}
	}
	share := func(f *account.Figures) float64 { return 100 * f.Idle / max(f.Held, 1) }
	return []line{
		inSeconds("makespan", "Makespan", func(f *account.Figures) time.Duration { return f.Makespan }),
		inSeconds("wait/mean", "Wait until the first stage is admitted, mean", func(f *account.Figures) time.Duration { return f.Wait.Mean }),
		inSeconds("wait/p95", "the same, 95th percentile", func(f *account.Figures) time.Duration { return f.Wait.P95 }),
		inSeconds("wait-all/mean", "Wait for quota in all stages together, mean", func(f *account.Figures) time.Duration { return f.Waited.Mean }),
		inSeconds("wait-all/p95", "the same, 95th percentile", func(f *account.Figures) time.Duration { return f.Waited.P95 }),
		inSeconds("turnaround/mean", "Submitted to finished, mean", func(f *account.Figures) time.Duration { return f.Turnaround.Mean }),
		inSeconds("turnaround/p95", "the same, 95th percentile", func(f *account.Figures) time.Duration { return f.Turnaround.P95 }),
		{"held", "GPU-seconds held", "GPU-s", w.Held, s.Held},
		{"idle", "GPU-seconds held idle", "GPU-s", w.Idle, s.Idle},
		{"idle-share", "Share of what was held that lay idle", "%", share(&w), share(&s)},
	}
}

// summary renders a comparison as a table in Markdown.
func summary(c *account.Comparison) string {
	var out strings.Builder
	row := func(cells ...any) { fmt.Fprintf(&out, "| %-44s | %12s | %12s | %6s |\n", cells...) }
	row("", "whole", "staged", "ratio")
	out.WriteString("|---|--:|--:|--:|\n")
	for _, l := range linesOf(c) {
		digits := 1
		if l.unit == "GPU-s" {
			digits = 0
		}
		cell := func(value float64) string {
			return strings.TrimSuffix(fmt.Sprintf("%.*f %s", digits, value, l.unit), " GPU-s")
		}
		row(l.title, cell(l.whole), cell(l.staged), fmt.Sprintf("%.2f", l.ratio()))
	}
	fmt.Fprintf(&out, "\n%d of %d JobSets took longer, by more than %g s, than when they were admitted as a whole.\n", later(c), len(c.Staged.JobSets), noise.Seconds())
	return out.String()
}

// noise is the random variation of the time that a JobSet takes.
const noise = time.Second

// later counts the JobSets that took longer from their submission to their end when they were admitted stage by stage.
func later(c *account.Comparison) int {
	took := map[string]float64{}
	for i := range c.Whole.JobSets {
		js := &c.Whole.JobSets[i]
		took[js.Name] = js.Finished - js.Submitted
	}
	n := 0
	for i := range c.Staged.JobSets {
		js := &c.Staged.JobSets[i]
		if js.Finished-js.Submitted > took[js.Name]+noise.Seconds() {
			n++
		}
	}
	return n
}

// comparisonFigures computes all reported figures of a comparison.
func comparisonFigures(found *findings) []figure {
	lines := linesOf(&found.comparison)
	var figures []figure
	for i := range lines {
		l := &lines[i]
		figures = append(figures,
			figure{name: "whole/" + l.name, value: l.whole, unit: l.unit}, figure{name: "staged/" + l.name, value: l.staged, unit: l.unit},
			ratio("ratio/"+l.name, l.ratio(), 1, "staged by whole"),
		)
	}
	measured, told := found.comparison.Staged.Figures(), found.timeline
	return append(
		figures,
		count("took-longer", later(&found.comparison), "JobSets, staged, by more than "+noise.String()),
		figure{name: "timeline/held", value: told.held, unit: "GPU-s", note: "what the timelines of the staged run add up to"},
		figure{name: "timeline/idle", value: told.idle, unit: "GPU-s", note: "the same; a leader that waits for its workers is idle here"},
		figure{
			name: "timeline/difference", value: 100 * math.Abs(told.held-measured.Held) / max(measured.Held, 1), unit: "%",
			note: "between timeline/held and staged/held",
		},
		problems(found.problems),
	)
}

// chartOf draws the held and used accelerators over time.
func chartOf(c *account.Comparison) *plot.Chart {
	chart := &plot.Chart{
		Title: fmt.Sprintf("GPUs held, and in use, by the same %d JobSets admitted in two ways", len(c.Staged.JobSets)),
		X:     "time since the first JobSet was submitted, in seconds", Y: "GPUs",
		Inner: "in use by running pods", Outer: "held idle", Limit: float64(c.Quota), LimitName: fmt.Sprintf("quota: %d GPUs", c.Quota),
	}
	for _, run := range []struct {
		title string
		*account.Run
	}{{titleOf(whole), c.Whole}, {titleOf(staged), c.Staged}} {
		chart.Panels = append(chart.Panels, panelOf(run.title, run.Run))
	}
	return chart
}

func panelOf(title string, r *account.Run) plot.Panel {
	f := r.Figures()
	p := plot.Panel{
		Title: strings.ToUpper(title[:1]) + title[1:],
		Note:  fmt.Sprintf("all done after %.0f s; %.0f%% of what was held lay idle", f.Makespan.Seconds(), 100*f.Idle/max(f.Held, 1)),
		End:   f.Makespan.Seconds(),
	}
	if len(r.JobSets) == 0 {
		return p
	}
	for _, step := range r.Curve {
		p.Steps = append(p.Steps, plot.Step{
			X: max(step.At-r.JobSets[0].Submitted, 0), Whole: float64(step.Held), Used: float64(min(step.Used, step.Held)),
		})
	}
	return p
}
