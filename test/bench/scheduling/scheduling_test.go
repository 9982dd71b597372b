// Package scheduling_test replays the shape mixed under several policies, and keeps docs/scheduling.md current.
package scheduling_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobset "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/trace"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/bench/e2e/plot"
	"github.com/tranche-dev/tranche/test/bench/mixed"
)

// seed is what the JobSets of the document are drawn from.
const seed = 1

// A policy is a row of the study.
type policy struct {
	// name is what ParseVariant reads, and title what the document calls it.
	name, title string
	// change changes the queues or the configuration further, where --policy has no word for it. It may be nil.
	change func(*snapshot.Snapshot)
}

// policies are those that are compared, in the order of the table. A new one is one more entry.
func policies() []policy {
	return []policy{
		{name: "Whole+NoReservation", title: "whole JobSets"},
		{name: "Staged+NoCoStart+NoReservation", title: "staged, without co-start"},
		{name: "Staged+NoReservation", title: "staged"},
		{name: "Staged+Reservation", title: "staged, reservation"},
		{name: "Staged+StrictFIFO", title: "staged, StrictFIFO"},
		{name: "Staged+Reservation", title: "staged, reservation, large first", change: func(s *snapshot.Snapshot) { s.PriorityClasses = classes(1) }},
	}
}

// large is the name of a WorkloadPriorityClass, and of how many GPUs JobSets have to ask for at once to be in it.
const (
	large     = "large"
	largeGPUs = 65
)

// classes returns the WorkloadPriorityClass of large JobSets. All others have priority 0.
func classes(priority int32) []*kueue.WorkloadPriorityClass {
	return []*kueue.WorkloadPriorityClass{{ObjectMeta: metav1.ObjectMeta{Name: large, UID: large}, Value: priority}}
}

// isLarge reports whether a stage of a JobSet needs the GPUs of a large one.
func isLarge(js *jobset.JobSet) bool {
	return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(job jobset.ReplicatedJob) bool {
		requests := job.Template.Spec.Template.Spec.Containers[0].Resources.Requests
		return int64(*job.Template.Spec.Parallelism)*requests.Name(mixed.GPU, resource.DecimalSI).Value() >= largeGPUs
	})
}

// variants returns the policies for a replay.
func variants(t *testing.T) []trace.Variant {
	t.Helper()
	var all []trace.Variant
	for _, p := range policies() {
		v, err := trace.ParseVariant(p.name)
		if err != nil {
			t.Fatal(err)
		}
		if settings := v.Change; p.change != nil {
			v.Change = func(s *snapshot.Snapshot) {
				settings(s)
				p.change(s)
			}
		}
		v.Name = p.title
		all = append(all, v)
	}
	return all
}

// study replays the shape under all policies.
func study(t *testing.T) *trace.Report {
	t.Helper()
	shape := mixed.Full()
	submissions := shape.Draw(seed)
	var arrivals []*replay.Arrival
	for i := range submissions {
		if js := submissions[i].JobSet; isLarge(js) {
			js.Labels[apis.PriorityClassLabel] = large
		}
		arrivals = append(arrivals, submissions[i].Arrival())
	}
	queues := shape.Queues()
	queues.PriorityClasses = classes(0)
	report, err := trace.Replay(arrivals, queues, mixed.GPU, variants(t)...)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

var update = flag.Bool("update", false, "rewrite the tables and the plot in docs")

// The tables and the plot of docs/scheduling.md are those of the engine as it is, and no bound is exceeded.
func TestDocs(t *testing.T) {
	report := study(t)
	for i := range report.Policies {
		if p := &report.Policies[i]; p.Finished != report.Jobs {
			t.Errorf("%s: %d of %d JobSets have finished", p.Policy, p.Finished, report.Jobs)
		}
	}
	for _, breach := range readBounds(t).breaches(report) {
		t.Errorf("out of bounds: %s", breach)
	}
	const begin, end = "<!-- begin of the tables -->\n", "<!-- end of the tables -->\n"
	dir := filepath.Join("..", "..", "..", "docs")
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	page := read("scheduling.md")
	before, rest, _ := strings.Cut(page, begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatal("docs/scheduling.md has no place for the tables")
	}
	for name, want := range map[string]string{
		"scheduling.md":  before + begin + tables(report) + end + after,
		"scheduling.svg": string(plot.SVG(chartOf(report))),
	} {
		if *update {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, read(name)); diff != "" {
			t.Errorf("docs/%s differs from the replay; -update rewrites it: -want +got\n%s", name, diff)
		}
	}
}

// tables renders a report as tables in Markdown.
func tables(r *trace.Report) string {
	var out strings.Builder
	row := func(cells ...string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	row("policy", "makespan", "held", "in use", "idle", "not ready", "waits for stage", "not running")
	out.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range r.Policies {
		p := &r.Policies[i]
		cells := []string{p.Policy, hours(p.MakespanSeconds), percent(p.WhileSubmitted.Held), percent(p.WhileSubmitted.Used)}
		for _, seconds := range []float64{p.IdleSeconds.Sum(), p.IdleSeconds.NotReady, p.IdleSeconds.WaitsForStage, p.IdleSeconds.NotRunning} {
			cells = append(cells, percent(seconds/p.HeldSeconds))
		}
		row(cells...)
	}
	out.WriteString("\n")
	row("GPUs", "JobSets", "policy", "wait, mean", "p50", "p95", "p99", "max", "slowdown, mean", "p95", "p99")
	out.WriteString("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for i := range r.Policies[0].Sizes {
		for j := range r.Policies {
			s := &r.Policies[j].Sizes[i]
			cells := []string{s.String(), fmt.Sprint(s.Jobs), r.Policies[j].Policy}
			for _, seconds := range []float64{s.WaitAll.Mean, s.WaitAll.P50, s.WaitAll.P95, s.WaitAll.P99, s.WaitAll.Max} {
				cells = append(cells, hours(seconds))
			}
			for _, factor := range []float64{s.Slowdown.Mean, s.Slowdown.P95, s.Slowdown.P99} {
				cells = append(cells, fmt.Sprintf("%.1f", factor))
			}
			row(cells...)
		}
	}
	return out.String()
}

// hours renders a time, in minutes if it is less than an hour.
func hours(seconds float64) string {
	if seconds < 3600-30 {
		return fmt.Sprintf("%.0f min", seconds/60)
	}
	return fmt.Sprintf("%.1f h", seconds/3600)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// chartOf draws what is held and used, in the mean of each hour.
func chartOf(r *trace.Report) *plot.Chart {
	chart := &plot.Chart{
		Title: fmt.Sprintf("GPUs held, and in use, by the same %d JobSets under %d policies", r.Jobs, len(r.Policies)),
		X:     "time since the first JobSet was submitted, in hours", Y: "GPUs",
		Inner: "in use by ready pods", Outer: "held idle", Limit: r.Quota, LimitName: fmt.Sprintf("quota: %.0f GPUs", r.Quota),
	}
	for i := range r.Policies {
		p := &r.Policies[i]
		panel := plot.Panel{
			Title: strings.ToUpper(p.Policy[:1]) + p.Policy[1:],
			Note:  fmt.Sprintf("all done after %.0f h; %s of what was held lay idle", p.MakespanSeconds/3600, percent(p.IdleSeconds.Sum()/p.HeldSeconds)),
			End:   p.MakespanSeconds / 3600,
		}
		for hour := 0.0; hour < panel.End; hour++ {
			held, used := trace.Mean(p.Curve, 3600*hour, 3600*min(hour+1, panel.End))
			panel.Steps = append(panel.Steps, plot.Step{X: hour, Whole: held, Used: used})
		}
		chart.Panels = append(chart.Panels, panel)
	}
	return chart
}
