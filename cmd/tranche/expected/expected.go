// Package expected prints when the pending quota Workloads of a snapshot are expected to be admitted.
package expected

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// maxBlockers is how many holders of quota are named for each quota Workload.
const maxBlockers = 3

// A Filter selects pending quota Workloads. An empty field selects all.
type Filter struct{ Namespace, LocalQueue, ClusterQueue string }

// Write prints a table of the selected quota Workloads, those that start first before the others, and a warning for each JobSet that is not
// simulated. The simulation looks as far ahead as horizon.
func Write(out, warnings io.Writer, s *snapshot.Snapshot, filter Filter, horizon time.Duration) error {
	if horizon <= 0 {
		return fmt.Errorf("the horizon is %s, must be positive", horizon)
	}
	p, err := filter.predict(s, s.TakenAt.Add(horizon))
	if err != nil {
		return fmt.Errorf("predict the starts: %w", err)
	}
	if err := WriteLeftOut(warnings, p); err != nil {
		return err
	}
	starts := p.Starts
	if len(starts) == 0 {
		_, err := fmt.Fprintln(out, "No pending quota Workloads.")
		return err
	}
	slices.SortStableFunc(starts, func(a, b simulator.Start) int {
		return cmp.Or(compareTimes(a.By, b.By), compareTimes(a.About, b.About))
	})
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err = fmt.Fprintln(table, "NAMESPACE\tNAME\tOWNER\tSTAGE\tEXPECTED-START")
	for i := range starts {
		start := &starts[i]
		_, failure := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", start.Workload.Namespace, start.Workload.Name, cmp.Or(start.JobSet, "-"), stageOf(start), Text(start, p))
		err = errors.Join(err, failure)
	}
	return errors.Join(err, table.Flush())
}

// predict simulates only the queues that can influence the selected quota Workloads.
func (f Filter) predict(s *snapshot.Snapshot, until time.Time) (*simulator.Prediction, error) {
	durations := &simulator.Durations{PastRuns: simulator.PastRunsOf(s)}
	if f == (Filter{}) {
		return simulator.Forecast(s, durations, until)
	}
	return simulator.ForecastOf(s, durations, until, simulator.PendingStages(s, f.selects(s))...)
}

// WriteLeftOut prints a warning for each JobSet that is not simulated.
func WriteLeftOut(warnings io.Writer, p *simulator.Prediction) error {
	for _, left := range p.LeftOut {
		if _, err := fmt.Fprintf(warnings, "not simulated: %s %s: %s\n", left.Kind, left.Key, left.Why); err != nil {
			return fmt.Errorf("print what is not simulated: %w", err)
		}
	}
	return nil
}

// selects returns a predicate of the quota Workloads that a filter selects.
func (f Filter) selects(s *snapshot.Snapshot) func(types.NamespacedName) bool {
	clusterQueues, localQueues := map[types.NamespacedName]string{}, map[types.NamespacedName]string{}
	for _, q := range s.LocalQueues {
		clusterQueues[types.NamespacedName{Namespace: q.Namespace, Name: q.Name}] = string(q.Spec.ClusterQueue)
	}
	for _, w := range s.Workloads {
		localQueues[keyOf(w)] = string(w.Spec.QueueName)
	}
	return func(w types.NamespacedName) bool {
		queue := types.NamespacedName{Namespace: w.Namespace, Name: localQueues[w]}
		return (f.Namespace == "" || f.Namespace == queue.Namespace) && (f.LocalQueue == "" || f.LocalQueue == queue.Name) &&
			(f.ClusterQueue == "" || f.ClusterQueue == clusterQueues[queue])
	}
}

func keyOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}

// compareTimes orders times, and no time after all others.
func compareTimes(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

func stageOf(s *simulator.Start) string {
	if s.Growth > 0 {
		return fmt.Sprintf("%s+%d", s.Stage, s.Growth)
	}
	return cmp.Or(s.Stage, "-")
}

// Text returns when a quota Workload is expected to start and how sure that is, or why that is not known.
func Text(s *simulator.Start, p *simulator.Prediction) string {
	at := func(t time.Time) string {
		return fmt.Sprintf("%s (%s after the snapshot)", t.UTC().Format("2006-01-02 15:04:05Z"), duration.HumanDuration(t.Sub(p.TakenAt)))
	}
	about := ""
	if basis := s.Basis.String(); basis != "" && !s.About.IsZero() {
		about = fmt.Sprintf("about %s, %s", at(s.About), basis)
	}
	switch s.Certainty() {
	case simulator.By:
		if about != "" && s.About.Before(s.By) {
			return fmt.Sprintf("%s; by %s if all run to their limits", about, at(s.By))
		}
		return "by " + at(s.By)
	case simulator.About:
		return cmp.Or(about, "about "+at(s.About))
	case simulator.Unknown:
	}
	var names []string
	for _, b := range s.Blockers[:min(len(s.Blockers), maxBlockers)] {
		names = append(names, b.String())
	}
	if more := len(s.Blockers) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	switch {
	case len(names) > 0:
		return "unknown: no maximum execution time: " + strings.Join(names, ", ")
	case s.Waits != "":
		return "unknown: " + s.Waits
	}
	return fmt.Sprintf("not within %s", duration.HumanDuration(p.Until.Sub(p.TakenAt)))
}
