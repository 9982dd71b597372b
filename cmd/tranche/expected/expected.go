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

// A List has the pending quota Workloads of a snapshot, those that start first before the others.
type List struct {
	// TakenAt is when the snapshot was taken, and Until how far the simulation looked.
	TakenAt time.Time `json:"takenAt"`
	Until   time.Time `json:"until"`
	Items   []Item    `json:"items"`
}

// An Item is a pending quota Workload.
type Item struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// JobSet, Stage and Growth say what it stands for. They are empty if it belongs to no JobSet.
	JobSet        string `json:"jobSet,omitempty"`
	Stage         string `json:"stage,omitempty"`
	Growth        int    `json:"growth,omitempty"`
	ExpectedStart *Start `json:"expectedStart"`
}

// NewList returns the selected quota Workloads, and prints a warning for each JobSet that is not simulated. The simulation looks as far ahead as horizon.
func NewList(warnings io.Writer, s *snapshot.Snapshot, filter Filter, horizon time.Duration) (*List, error) {
	if horizon <= 0 {
		return nil, fmt.Errorf("the horizon is %s, must be positive", horizon)
	}
	p, err := filter.predict(s, s.TakenAt.Add(horizon))
	if err != nil {
		return nil, fmt.Errorf("predict the starts: %w", err)
	}
	if err := WriteLeftOut(warnings, p); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.Starts, func(a, b simulator.Start) int {
		return cmp.Or(compareTimes(a.By, b.By), compareTimes(a.About, b.About))
	})
	l := &List{TakenAt: p.TakenAt.UTC(), Until: p.Until.UTC(), Items: []Item{}}
	for i := range p.Starts {
		start := &p.Starts[i]
		l.Items = append(l.Items, Item{
			Namespace: start.Workload.Namespace, Name: start.Workload.Name, JobSet: start.JobSet, Stage: start.Stage, Growth: start.Growth, ExpectedStart: Of(start, p),
		})
	}
	return l, nil
}

// Write prints a table.
func (l *List) Write(out io.Writer) error {
	if len(l.Items) == 0 {
		_, err := fmt.Fprintln(out, "No pending quota Workloads.")
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(table, "NAMESPACE\tNAME\tOWNER\tSTAGE\tEXPECTED-START")
	for i := range l.Items {
		w := &l.Items[i]
		_, failure := fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", w.Namespace, w.Name, cmp.Or(w.JobSet, "-"), w.stage(), w.ExpectedStart.Text)
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

// Validate returns an error that names the object that a filter selects by and the snapshot does not have.
func (f Filter) Validate(s *snapshot.Snapshot) error {
	var namespaces, localQueues, clusterQueues []string
	for _, n := range s.Namespaces {
		namespaces = append(namespaces, n.Name)
	}
	for _, w := range s.Workloads {
		namespaces = append(namespaces, w.Namespace)
	}
	for _, q := range s.LocalQueues {
		namespaces = append(namespaces, q.Namespace)
		if f.Namespace == "" || f.Namespace == q.Namespace {
			localQueues, clusterQueues = append(localQueues, q.Name), append(clusterQueues, string(q.Spec.ClusterQueue))
		}
	}
	for _, q := range s.ClusterQueues {
		clusterQueues = append(clusterQueues, q.Name)
	}
	for _, one := range []struct {
		kind, name string
		known      []string
	}{{"namespace", f.Namespace, namespaces}, {"LocalQueue", f.LocalQueue, localQueues}, {"ClusterQueue", f.ClusterQueue, clusterQueues}} {
		if one.name != "" && !slices.Contains(one.known, one.name) {
			where := ""
			if one.kind == "LocalQueue" && f.Namespace != "" {
				where = fmt.Sprintf(" in namespace %q", f.Namespace)
			}
			return fmt.Errorf("the snapshot has no %s %q%s: correct the name, or take a snapshot that has it", one.kind, one.name, where)
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

func (w *Item) stage() string {
	if w.Growth > 0 {
		return fmt.Sprintf("%s+%d", w.Stage, w.Growth)
	}
	return cmp.Or(w.Stage, "-")
}

// A Start is when a quota Workload is expected to start.
type Start struct {
	// Certainty is how sure that is: By, About or Unknown.
	Certainty simulator.Certainty `json:"certainty"`
	// By is the start if all stages run to their limits, and About if those without a limit take as long as earlier ones did.
	By    *time.Time `json:"by,omitempty"`
	About *time.Time `json:"about,omitempty"`
	// Text says the same, and where it comes from, or why the start is not known.
	Text string `json:"text"`
}

// Of returns an expected start of a prediction from a file. Its text counts the times from the snapshot on.
func Of(s *simulator.Start, p *simulator.Prediction) *Start {
	return of(s, p, func(t time.Time) string {
		return fmt.Sprintf("%s (%s after the snapshot)", timeText(t), duration.HumanDuration(t.Sub(p.TakenAt)))
	})
}

// Now returns an expected start of a prediction that is made again and again. Its text stays the same while the start does.
func Now(s *simulator.Start, p *simulator.Prediction) *Start { return of(s, p, timeText) }

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func of(s *simulator.Start, p *simulator.Prediction, at func(time.Time) string) *Start {
	known := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return new(t.UTC())
	}
	return &Start{Certainty: s.Certainty(), By: known(s.By), About: known(s.About), Text: text(s, p, at)}
}

// text returns when a quota Workload is expected to start and how sure that is, or why that is not known.
func text(s *simulator.Start, p *simulator.Prediction, at func(time.Time) string) string {
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
	if p.Interrupted != nil {
		return "not predicted: " + p.Interrupted.Error()
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
