package plan

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/plan"
)

// maxNames is how many names of a list are printed, unless the format is wide.
const maxNames = 5

// writeText prints a plan for terminals, in the format Text or Wide.
func writeText(out io.Writer, p *plan.Plan, format output.Format) error {
	w := &writer{out: out, maxNames: maxNames}
	if format == output.Wide {
		w.isWide, w.maxNames = true, math.MaxInt
	}
	w.printf("Snapshot of %s, simulated for %s.\n", p.TakenAt.UTC().Format("2006-01-02 15:04:05Z"), elapsed(p.Until.Sub(p.TakenAt)))
	w.printf("\nObjects: %s\n", actions(p))
	for i := range p.Objects {
		o := &p.Objects[i]
		if o.Action == plan.Unchanged {
			continue
		}
		w.printf("  %s %s\n", strings.ToLower(string(o.Action)), o)
		if w.isWide || !isSubmission(o) {
			for _, line := range fieldLines(o) {
				w.printf("      %s\n", line)
			}
		}
	}
	if len(p.Queues) > 0 {
		w.printf("\nClusterQueues:\n")
		for _, q := range p.Queues {
			w.printf("  %s: %s\n", q.Name, queueText(&q))
		}
	}
	w.printf("\nConsequences: %s\n", summary(p))
	w.table(p)
	w.list("\nThe start is unknown of:", w.unknownLines(p))
	w.list("\nWithout a maximum execution time, and so never ended by the simulation:", w.shortened(p.Endless))
	w.list("\nNot simulated:", p.NotSimulated)
	w.list("\nIgnored:", p.Ignored)
	return w.err
}

// A writer keeps the first error.
type writer struct {
	out io.Writer
	// maxNames is how many names of a list are printed, and isWide is true if there are more columns.
	maxNames int
	isWide   bool
	err      error
}

func (w *writer) printf(format string, args ...any) {
	_, err := fmt.Fprintf(w.out, format, args...)
	w.err = cmp.Or(w.err, err)
}

func (w *writer) list(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	w.printf("%s\n", title)
	for _, line := range lines {
		w.printf("  %s\n", line)
	}
}

func (w *writer) table(p *plan.Plan) {
	table := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	if w.isWide && len(p.Consequences) > 0 {
		_, w.err = fmt.Fprintln(table, "  CONSEQUENCE\tFOR\tWORKLOAD\tWITHOUT-THE-CHANGE\tWITH-THE-CHANGE\tDETAILS")
	}
	for i := range p.Consequences {
		c := &p.Consequences[i]
		cells := []string{"  " + words(c.Kind), subject(&c.Stage)}
		if w.isWide {
			cells = append(cells, c.Workload, timeText(c.Before), timeText(c.After))
		}
		_, err := fmt.Fprintln(table, strings.Join(append(cells, w.details(p, c)), "\t"))
		w.err = cmp.Or(w.err, err)
	}
	w.err = errors.Join(w.err, table.Flush())
}

// timeText returns a time for the wide format.
func timeText(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// actions counts the objects of each action.
func actions(p *plan.Plan) string {
	var parts []string
	for _, one := range []struct {
		action plan.Action
		word   string
	}{{plan.Create, "created"}, {plan.Update, "updated"}, {plan.Delete, "deleted"}, {plan.Unchanged, "unchanged"}} {
		n := 0
		for i := range p.Objects {
			if p.Objects[i].Action == one.action {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, one.word))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// isSubmission reports whether a JobSet or a Job is created. Its fields are those that its user has written, and say nothing about what follows.
func isSubmission(o *plan.ObjectChange) bool {
	return o.Action == plan.Create && (o.Kind == "JobSet" || o.Kind == "Job")
}

// fieldLines describes the fields of an object.
func fieldLines(o *plan.ObjectChange) []string {
	var lines []string
	for _, f := range o.Fields {
		line := f.Path + ": " + cmp.Or(f.After, "absent")
		if f.Before != "" {
			line = fmt.Sprintf("%s: %s -> %s", f.Path, f.Before, cmp.Or(f.After, "absent"))
		}
		if f.IsUnnamed {
			line += " (not in the manifest: changes only if an earlier apply had set it)"
		}
		lines = append(lines, line)
	}
	return lines
}

func queueText(q *plan.QueueChange) string {
	if q.After == "" {
		return "it is deleted"
	}
	return q.After
}

// words returns a kind of consequences for users.
func words(kind plan.Kind) string {
	switch kind {
	case plan.Evicted:
		return "evicted"
	case plan.Unsafe:
		return "unable to finish"
	case plan.NeverFits:
		return "can never fit"
	case plan.Delayed:
		return "delayed"
	case plan.EvictionMoved:
		return "evicted otherwise"
	case plan.Restarted:
		return "restarted"
	case plan.Earlier:
		return "earlier"
	case plan.NotEvicted:
		return "not evicted"
	case plan.FitsAgain:
		return "can fit again"
	case plan.NewlyAdmitted:
		return "newly admitted"
	case plan.Waiting:
		return "waiting"
	}
	return string(kind)
}

// subject names what a quota Workload stands for.
func subject(s *plan.Stage) string {
	switch {
	case s.Job != "" && s.Growth > 0:
		return fmt.Sprintf("Job %s/%s, growth %d", s.Namespace, s.Job, s.Growth)
	case s.Job != "":
		return "Job " + s.Namespace + "/" + s.Job
	case s.JobSet == "":
		return "Workload " + s.Namespace + "/" + s.Workload
	case s.Growth > 0:
		return fmt.Sprintf("JobSet %s/%s, growth %d of stage %s", s.Namespace, s.JobSet, s.Growth, s.Stage)
	}
	return fmt.Sprintf("JobSet %s/%s, stage %s", s.Namespace, s.JobSet, s.Stage)
}

// details describes a consequence.
func (w *writer) details(p *plan.Plan, c *plan.Consequence) string {
	var text string
	switch c.Kind {
	case plan.Evicted, plan.EvictionMoved, plan.Restarted:
		text = eviction(p, c)
	case plan.NotEvicted:
		text = fmt.Sprintf("is evicted %s without the change (%s)", when(p, c.Before, c.BeforeBasis), c.Reason)
	case plan.Delayed, plan.Earlier:
		text = moved(p, c)
	case plan.NewlyAdmitted:
		text = "starts " + when(p, c.After, c.AfterBasis)
	case plan.Unsafe, plan.NeverFits, plan.FitsAgain, plan.Waiting:
		text = c.Message
	}
	if len(c.Blockers) > 0 {
		text += "; without a maximum execution time: " + strings.Join(w.shortened(c.Blockers), ", ")
	}
	if bases := basesOf(c); len(bases) > 0 {
		text += "; estimated " + strings.Join(bases, " and ")
	}
	return text
}

// basesOf returns what the estimated times of a consequence come from.
func basesOf(c *plan.Consequence) []string {
	bases := slices.DeleteFunc([]string{c.AfterBasis, c.BeforeBasis, c.AgainBasis}, func(basis string) bool { return basis == "" })
	slices.Sort(bases)
	return slices.Compact(bases)
}

func moved(p *plan.Plan, c *plan.Consequence) string {
	switch {
	case c.After == nil && c.Before == nil:
		return "does not start: " + c.Message
	case c.After == nil:
		return fmt.Sprintf("does not start within %s, instead of %s: %s", elapsed(p.Until.Sub(p.TakenAt)), when(p, c.Before, c.BeforeBasis), c.Message)
	}
	delay := time.Duration(max(c.DelaySeconds, -c.DelaySeconds)) * time.Second
	return fmt.Sprintf("by %s: starts %s instead of %s", elapsed(delay), when(p, c.After, c.AfterBasis), when(p, c.Before, c.BeforeBasis))
}

func eviction(p *plan.Plan, c *plan.Consequence) string {
	text := when(p, c.After, c.AfterBasis)
	if c.Before != nil {
		text += " instead of " + when(p, c.Before, c.BeforeBasis)
	}
	if c.IsUnsafe {
		text += ", made unsafe"
	}
	text += ", " + c.Reason
	if c.Preemptor != nil {
		text += " for " + subject(c.Preemptor)
	} else if c.Message != "" {
		text += ": " + c.Message
	}
	if c.Lost != nil {
		text += "; loses " + lostText(c.Lost)
	}
	if c.Again != nil {
		text += "; starts again " + when(p, c.Again, c.AgainBasis)
		if c.Kind == plan.Restarted {
			text += ", no later than without the change"
		}
		return text
	}
	return text + "; does not start again within " + elapsed(p.Until.Sub(p.TakenAt))
}

// lostText describes lost work, such as 1h5m of work (3900 gpu seconds).
func lostText(l *plan.Lost) string {
	text := elapsed(time.Duration(l.Seconds)*time.Second) + " of work"
	var amounts []string
	for _, name := range slices.Sorted(maps.Keys(l.AcceleratorSeconds)) {
		amounts = append(amounts, fmt.Sprintf("%d %s seconds", l.AcceleratorSeconds[name], name))
	}
	if len(amounts) > 0 {
		text += " (" + strings.Join(amounts, ", ") + ")"
	}
	return text
}

// when returns a time after the snapshot. basis is not empty if the time is an estimate.
func when(p *plan.Plan, at *time.Time, basis string) string {
	if after := at.Sub(p.TakenAt); after > 0 {
		if basis != "" {
			return "after about " + elapsed(after)
		}
		return "after " + elapsed(after)
	}
	return "at once"
}

// elapsed formats a duration such as 1h30m.
func elapsed(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (w *writer) unknownLines(p *plan.Plan) []string {
	var lines []string
	for i := range p.Unknown {
		u := &p.Unknown[i]
		lines = append(lines, fmt.Sprintf("%s: waits for %s", subject(&u.Stage), strings.Join(w.shortened(u.Blockers), ", ")))
	}
	return lines
}

// shortened returns the first names of a list.
func (w *writer) shortened(names []string) []string {
	if len(names) <= w.maxNames {
		return names
	}
	return append(slices.Clone(names[:w.maxNames]), fmt.Sprintf("%d more", len(names)-w.maxNames))
}
