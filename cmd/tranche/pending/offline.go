package pending

import (
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Filter selects pending quota Workloads. An empty field selects all.
type Filter struct{ Namespace, LocalQueue, ClusterQueue string }

// An offline list is made from a snapshot.
type offline struct {
	*snapshot.Snapshot
	filter   Filter
	horizon  time.Duration
	startOf  func(*simulator.Start, *simulator.Prediction) *expected.Start
	warnings io.Writer
}

// list returns the selected quota Workloads, and prints a warning for each JobSet that is not simulated.
func (o *offline) list() (*List, error) {
	clusterQueues := map[types.NamespacedName]string{}
	for _, q := range o.LocalQueues {
		clusterQueues[types.NamespacedName{Namespace: q.Namespace, Name: q.Name}] = string(q.Spec.ClusterQueue)
	}
	keys := simulator.PendingStages(o.Snapshot, o.selects(clusterQueues))
	inspection, err := simulator.Inspect(o.Snapshot, keys...)
	if err != nil {
		return nil, fmt.Errorf("find the positions: %w", err)
	}
	p, err := o.predict(keys)
	if err != nil {
		return nil, fmt.Errorf("predict the starts: %w", err)
	}
	if err := expected.WriteLeftOut(o.warnings, p); err != nil {
		return nil, err
	}
	starts := map[types.NamespacedName]*simulator.Start{}
	for i := range p.Starts {
		starts[p.Starts[i].Workload] = &p.Starts[i]
	}
	selected := map[types.NamespacedName]bool{}
	for _, key := range keys {
		selected[key] = true
	}
	l := &List{TakenAt: p.TakenAt.UTC(), Until: p.Until.UTC(), Items: []Row{}}
	for _, w := range o.Workloads {
		if !selected[keyOf(w)] {
			continue
		}
		row := rowOfWorkload(w, inspection)
		row.ClusterQueue = clusterQueues[types.NamespacedName{Namespace: w.Namespace, Name: row.LocalQueue}]
		if start := starts[keyOf(w)]; start != nil {
			row.ExpectedStart = o.startOf(start, p)
		}
		l.Items = append(l.Items, row)
	}
	l.sort()
	return l, nil
}

// rowOfWorkload returns the row of a quota Workload without its ClusterQueue and its start. Snapshots do not have owners.
func rowOfWorkload(w *kueue.Workload, inspection *simulator.Inspection) Row {
	row := newRow(w)
	if row.Owner == "" && row.JobSet != "" {
		row.Owner = "JobSet/" + row.JobSet
	}
	reason, isQueued := inspection.Summary(keyOf(w))
	row.LocalQueue, row.Reason, row.Message = string(w.Spec.QueueName), reason.Reason, reason.Message
	if w.Spec.Priority != nil {
		row.Priority = *w.Spec.Priority
	}
	if isQueued {
		row.Position, row.Priority = &Position{reason.InClusterQueue, reason.InLocalQueue}, reason.Priority
	}
	return row
}

// predict simulates only the queues that can influence the selected quota Workloads.
func (o *offline) predict(keys []types.NamespacedName) (*simulator.Prediction, error) {
	durations, until := &simulator.Durations{PastRuns: simulator.PastRunsOf(o.Snapshot)}, o.TakenAt.Add(o.horizon)
	if o.filter == (Filter{}) {
		return simulator.Forecast(o.Snapshot, durations, until)
	}
	return simulator.ForecastOf(o.Snapshot, durations, until, keys...)
}

// selects returns a predicate of the quota Workloads that the filter selects.
func (o *offline) selects(clusterQueues map[types.NamespacedName]string) func(types.NamespacedName) bool {
	localQueues := map[types.NamespacedName]string{}
	for _, w := range o.Workloads {
		localQueues[keyOf(w)] = string(w.Spec.QueueName)
	}
	f := o.filter
	return func(w types.NamespacedName) bool {
		queue := types.NamespacedName{Namespace: w.Namespace, Name: localQueues[w]}
		return (f.Namespace == "" || f.Namespace == queue.Namespace) && (f.LocalQueue == "" || f.LocalQueue == queue.Name) &&
			(f.ClusterQueue == "" || f.ClusterQueue == clusterQueues[queue])
	}
}

func keyOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
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
