package shadow

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/shadow"
)

// maxRows is how many JobSets a section of the text has, unless the format is wide.
const maxRows = 10

// writeText prints a report, in the format Text or Wide.
func writeText(out io.Writer, r *shadow.Report, format output.Format) error {
	var b strings.Builder
	rows := maxRows
	if format == output.Wide {
		rows = math.MaxInt
	}
	c := &r.JobSets
	fmt.Fprintf(&b, "From %s to %s (%s): %s, %d with several stages; %d finished, %d running, %d pending.\n",
		clock(r.From), clock(r.To), r.To.Sub(r.From).Round(time.Second), plural(c.Total, "JobSet"), c.Staged, c.Finished, c.Running, c.Pending)
	if r.OtherJobs > 0 {
		fmt.Fprintf(&b, "%s of other kinds that hold quota are replayed, too.\n", plural(r.OtherJobs, "job"))
	}
	writeUsage(&b, r)
	writeComparison(&b, r)
	writeDifferences(&b, r, rows)
	writeUnsafe(&b, r, rows)
	writeProblems(&b, r, rows)
	_, err := io.WriteString(out, b.String())
	return err
}

func clock(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// writeUsage prints what was held, and over time.
func writeUsage(b *strings.Builder, r *shadow.Report) {
	if len(r.Resources) == 0 {
		b.WriteString("\nNo quota was held.\n")
		return
	}
	b.WriteString("\nMeasured, in units of the resource times hours:\n")
	rows := [][]string{{"RESOURCE", "HELD", "IDLE", "LATER STAGE", "NOT STARTED", "NOT READY", "ENDED"}}
	for i := range r.Resources {
		x := &r.Resources[i]
		row := []string{string(x.Name), hours(x.Held), share(x.Held-x.Used, x.Held)}
		for _, why := range shadow.Causes() {
			row = append(row, hours(x.Idle[why]))
		}
		rows = append(rows, row)
	}
	writeTable(b, rows)
	b.WriteString("\nReplayed, in the same units:\n")
	rows = [][]string{{"RESOURCE", "HELD WHOLE", "HELD IN STAGES", "SAVED"}}
	for i := range r.Resources {
		x := &r.Resources[i]
		rows = append(rows, []string{string(x.Name), hours(x.HeldWhole), hours(x.HeldStaged), share(x.Saved, x.HeldWhole)})
	}
	writeTable(b, rows)
	writeOverTime(b, r)
}

// writeTable prints rows in columns.
func writeTable(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = io.WriteString(w, strings.Join(row, "\t")+"\n") // a strings.Builder takes all
	}
	_ = w.Flush()
}

// writeOverTime prints the first resource over time.
func writeOverTime(b *strings.Builder, r *shadow.Report) {
	fmt.Fprintf(b, "\nMean of %s over time:\n", r.Resources[0].Name)
	rows := [][]string{{"FROM", "HELD", "IDLE", "REPLAYED WHOLE", "REPLAYED IN STAGES"}}
	for i := range r.OverTime {
		part := &r.OverTime[i]
		x, seconds := &part.Resources[0], part.To.Sub(part.From).Seconds()
		row := []string{clock(part.From)}
		for _, held := range []float64{x.Held, x.Held - x.Used, x.HeldWhole, x.HeldStaged} {
			row = append(row, fmt.Sprintf("%.1f", held/seconds))
		}
		rows = append(rows, row)
	}
	writeTable(b, rows)
}

func hours(seconds float64) string { return fmt.Sprintf("%.2f", seconds/time.Hour.Seconds()) }

func share(part, of float64) string {
	if of == 0 {
		return hours(part)
	}
	return fmt.Sprintf("%s (%.0f %%)", hours(part), 100*part/of)
}

// writeComparison prints how many JobSets start and finish earlier, and the error of the simulation.
func writeComparison(b *strings.Builder, r *shadow.Report) {
	b.WriteString("\nIn stages, compared with the replay as a whole:\n")
	for _, one := range []struct {
		verb string
		*shadow.Comparison
	}{{"start", &r.Starts}, {"finish", &r.Finishes}} {
		fmt.Fprintf(b, "- %s %s earlier, by %s in sum and up to %s", plural(one.Earlier+one.OnlyStaged, "JobSet"), one.verb, duration(one.EarlierSeconds), duration(one.MostSeconds))
		if one.OnlyStaged > 0 {
			fmt.Fprintf(b, " and %d that %s only in stages before the end", one.OnlyStaged, one.verb)
		}
		fmt.Fprintf(b, "; %d later, by %s in sum", one.Later+one.OnlyWhole, duration(one.LaterSeconds))
		if one.OnlyWhole > 0 {
			fmt.Fprintf(b, " and %d that %s only as a whole before the end", one.OnlyWhole, one.verb)
		}
		b.WriteString("\n")
	}
	e := &r.Error
	if e.Compared+e.Missing == 0 {
		b.WriteString("Error of the simulation: not known, because no JobSet was observed from its creation to its start.\n")
		return
	}
	fmt.Fprintf(b, "Error of the simulation: starts of the replay as a whole are off by %s in the median, %s at the 95th percentile, at most %s (%s compared, %d started in only\none of both); it holds %.0f %% of what was held.\n",
		duration(e.MedianSeconds), duration(e.P95Seconds), duration(e.MaxSeconds), plural(e.Compared, "JobSet"), e.Missing, 100*e.HeldRatio)
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}

// writeDifferences prints the JobSets with the greatest differences, and at most so many.
func writeDifferences(b *strings.Builder, r *shadow.Report, most int) {
	if len(r.Differences) == 0 {
		return
	}
	b.WriteString("\nJobSets that start or finish at other times, those that gain most first:\n")
	rows := [][]string{{"NAMESPACE", "NAME", "STARTED", "START WHOLE", "IN STAGES", "EARLIER", "FINISH WHOLE", "IN STAGES", "EARLIER"}}
	for i := range r.Differences[:min(most, len(r.Differences))] {
		d := &r.Differences[i]
		rows = append(rows, []string{
			d.Namespace, d.Name, after(r, d.Started), after(r, d.StartedWhole), after(r, d.StartedStaged), earlier(d.StartedWhole, d.StartedStaged),
			after(r, d.FinishedWhole), after(r, d.FinishedStaged), earlier(d.FinishedWhole, d.FinishedStaged),
		})
	}
	writeTable(b, rows)
	more(b, len(r.Differences), most)
	b.WriteString("Times count from the begin.\n")
}

func more(b *strings.Builder, n, most int) {
	if n > most {
		fmt.Fprintf(b, "and %d more: see -o wide\n", n-most)
	}
}

// after returns a time since the begin of the report.
func after(r *shadow.Report, at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Sub(r.From).Round(time.Second).String()
}

func earlier(whole, staged time.Time) string {
	if whole.IsZero() || staged.IsZero() {
		return "-"
	}
	return whole.Sub(staged).Round(time.Second).String()
}

func writeUnsafe(b *strings.Builder, r *shadow.Report, most int) {
	if len(r.Unsafe) == 0 {
		b.WriteString("\nNo stage would have waited for safety: admitting each stage as soon as it fits could not have led to a deadlock.\n")
		return
	}
	fmt.Fprintf(b, "\n%s fitted and waited in the replay, because admitting them could have led to a deadlock:\n", plural(len(r.Unsafe), "stage"))
	for _, stage := range r.Unsafe[:min(most, len(r.Unsafe))] {
		fmt.Fprintf(b, "- %s\n", stage)
	}
	more(b, len(r.Unsafe), most)
}

// writeProblems prints what the report lacks.
func writeProblems(b *strings.Builder, r *shadow.Report, most int) {
	if r.Folded.JobSets > 0 {
		fmt.Fprintf(b, "\n%s that finished by %s count only in what was held: raise --limit to replay them.\n", plural(r.Folded.JobSets, "JobSet"), clock(r.Folded.Until))
	}
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(b, "\n%s would be refused or not managed:\n", plural(len(r.LeftOut), "JobSet"))
		for _, l := range r.LeftOut[:min(most, len(r.LeftOut))] {
			fmt.Fprintf(b, "- %s/%s: %s\n", l.Namespace, l.Name, l.Why)
		}
		more(b, len(r.LeftOut), most)
	}
	if len(r.InactiveQueues) > 0 {
		b.WriteString("\nClusterQueues that would admit nothing:\n")
		for _, name := range slices.Sorted(maps.Keys(r.InactiveQueues)) {
			fmt.Fprintf(b, "- %s: %s\n", name, r.InactiveQueues[name])
		}
	}
	for i := range r.Gaps {
		fmt.Fprintf(b, "\nmissing: %s\n", r.Gaps[i].String())
	}
}
