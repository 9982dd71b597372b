package pending

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/live"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

const (
	// defaultLimit is that of the visibility API.
	defaultLimit = 1000
	// pageSize is how many JobSets are read at once.
	pageSize = 500
)

// A cluster lists by the visibility API, with the rights of a user.
type cluster struct {
	*query.Cluster
	flags *flags
	taker live.Taker
	// predicted has the expected starts from the snapshot predictedFrom, by quota Workload: nil for one that is not pending there.
	predicted     map[types.NamespacedName]*expected.Start
	predictedFrom *snapshot.Snapshot
}

// list returns the pending quota Workloads of the queues that the flags select, and whether a manager keeps them up to date.
func (c *cluster) list(ctx context.Context) (*List, error) {
	l, err := c.pending(ctx)
	why, _ := collect.WhyNoLeader(ctx, c, time.Now()) // the list is an answer without it
	switch {
	case err != nil && why != "":
		return nil, fmt.Errorf("%w; %s", err, why)
	case err != nil:
		return nil, err
	}
	l.WithoutLeader = why
	return l, nil
}

func (c *cluster) pending(ctx context.Context) (*List, error) {
	queues, err := c.queues(ctx)
	if err != nil {
		return nil, err
	}
	l := &List{Items: []Row{}}
	for _, queue := range queues {
		summary, err := c.Pending(ctx, queue.asked, c.flags.parameters)
		switch {
		case collect.IsUnserved(err) || apierrors.IsForbidden(err):
			return c.listWithout(ctx, err)
		case err != nil:
			return nil, err
		}
		for i := range summary.Items {
			l.Items = append(l.Items, rowOf(&summary.Items[i], queue.clusterQueue))
		}
	}
	l.sort()
	if err := c.addStarts(ctx, l); err != nil {
		return nil, err
	}
	l.WithoutStarts = c.addPredictions(ctx, l)
	return l, nil
}

// A queue is asked for. clusterQueue is empty if it is not known.
type queue struct {
	asked        types.NamespacedName
	clusterQueue string
}

// queues returns the queues that the flags select.
func (c *cluster) queues(ctx context.Context) ([]queue, error) {
	switch name := c.flags.localQueue; {
	case c.flags.clusterQueue != "":
		return []queue{{types.NamespacedName{Name: c.flags.clusterQueue}, c.flags.clusterQueue}}, nil
	case name != "":
		one := queue{asked: types.NamespacedName{Namespace: c.Namespace, Name: name}}
		var lq kueue.LocalQueue
		err := c.Get(ctx, one.asked, &lq)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("read LocalQueue %s: %w", one.asked, err)
		}
		one.clusterQueue = string(lq.Spec.ClusterQueue)
		return []queue{one}, nil
	}
	var list kueue.LocalQueueList
	if err := c.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		return nil, fmt.Errorf("list the LocalQueues of namespace %s: %w", c.Namespace, err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("namespace %q has no LocalQueue; choose another namespace with -n", c.Namespace)
	}
	var all []queue
	for i := range list.Items {
		all = append(all, queue{client.ObjectKeyFromObject(&list.Items[i]), string(list.Items[i].Spec.ClusterQueue)})
	}
	return all, nil
}

// rowOf returns the row of an answer of the visibility API.
func rowOf(w *visibility.PendingWorkload, clusterQueue string) Row {
	row := newRow(w)
	row.ClusterQueue, row.LocalQueue, row.Priority = clusterQueue, string(w.LocalQueueName), w.Priority
	row.Position = &Position{int(w.PositionInClusterQueue), int(w.PositionInLocalQueue)}
	var x visibilityapi.Explanation
	if json.Unmarshal([]byte(w.Annotations[apis.ExplanationAnnotation]), &x) == nil { // otherwise a manager of another version wrote it, or Kueue
		row.Reason, row.Message = x.Reason, x.Message
	}
	return row
}

// addStarts adds the expected starts that the manager has written to the JobSets that the user may read.
func (c *cluster) addStarts(ctx context.Context, l *List) error {
	waiting := map[string]map[string][]*Row{} // by namespace and JobSet
	for i := range l.Items {
		if r := &l.Items[i]; r.JobSet != "" && r.Growth == "" {
			if waiting[r.Namespace] == nil {
				waiting[r.Namespace] = map[string][]*Row{}
			}
			waiting[r.Namespace][r.JobSet] = append(waiting[r.Namespace][r.JobSet], r)
		}
	}
	for namespace, rows := range waiting {
		err := c.eachJobSet(ctx, namespace, func(js *jobsetapi.JobSet) {
			e := jobsetstatus.ExpectedStartOf(js)
			for _, r := range rows[js.Name] {
				if e != nil && r.Stage == e.Stage {
					r.ExpectedStart = expected.Written(e)
				}
			}
		})
		if err != nil && !apierrors.IsForbidden(err) {
			return fmt.Errorf("list the JobSets of namespace %s: %w", namespace, err)
		}
	}
	return nil
}

// addPredictions adds the expected starts that the manager has not written: those of Jobs, of gangs of pods and of growths. They come from a snapshot,
// as those of tranche explain. It returns why there is none, or "".
func (c *cluster) addPredictions(ctx context.Context, l *List) (missing string) {
	var keys []types.NamespacedName
	for i := range l.Items {
		if r := &l.Items[i]; r.ExpectedStart == nil {
			keys = append(keys, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
		}
	}
	if len(keys) == 0 {
		return ""
	}
	s, missing, err := c.taker.Take(ctx, func(taken *snapshot.Snapshot) bool {
		return taken == c.predictedFrom && !slices.ContainsFunc(keys, func(key types.NamespacedName) bool { _, isKnown := c.predicted[key]; return !isKnown })
	})
	switch {
	case err != nil || s == nil:
		c.predictedFrom, c.predicted = nil, nil
	case s != c.predictedFrom:
		err = c.predict(s, keys)
	}
	if err != nil {
		return err.Error()
	}
	for i := range l.Items {
		if r := &l.Items[i]; r.ExpectedStart == nil {
			r.ExpectedStart = c.predicted[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}]
		}
	}
	return missing
}

// predict predicts when quota Workloads of a snapshot start.
func (c *cluster) predict(s *snapshot.Snapshot, keys []types.NamespacedName) error {
	p, err := simulator.ForecastOf(s, &simulator.Durations{PastRuns: simulator.PastRunsOf(s)}, s.TakenAt.Add(c.flags.until), keys...)
	if err != nil {
		return fmt.Errorf("predict the starts: %w", err)
	}
	if err := expected.WriteLeftOut(c.taker.Warnings, p); err != nil {
		return err
	}
	c.predictedFrom, c.predicted = s, map[types.NamespacedName]*expected.Start{}
	for _, key := range keys {
		c.predicted[key] = nil
	}
	for i := range p.Starts {
		c.predicted[p.Starts[i].Workload] = expected.Now(&p.Starts[i], p)
	}
	return nil
}

// eachJobSet reads the JobSets of a namespace page by page.
func (c *cluster) eachJobSet(ctx context.Context, namespace string, do func(*jobsetapi.JobSet)) error {
	for token := ""; ; {
		var page jobsetapi.JobSetList
		if err := c.List(ctx, &page, client.InNamespace(namespace), client.Limit(pageSize), client.Continue(token)); err != nil {
			return err
		}
		for i := range page.Items {
			do(&page.Items[i])
		}
		if token = page.Continue; token == "" {
			return nil
		}
	}
}

// listWithout answers from a snapshot, if the user may read one. unserved is why the visibility API does not answer.
func (c *cluster) listWithout(ctx context.Context, unserved error) (*List, error) {
	s, missing, err := c.taker.Take(ctx, func(*snapshot.Snapshot) bool { return true })
	if err != nil {
		return nil, fmt.Errorf("the visibility API does not answer, and there is no snapshot instead: %w", err)
	}
	if s == nil {
		return nil, fmt.Errorf("%w\n%s.\nNor can the answer come from a snapshot: %s.\n\"kubectl get kwl -n %s -o wide\" lists quota Workloads with the reasons why they are "+
			"pending, and \"tranche explain JOBSET\" shows the stages of a JobSet", unserved, collect.WithoutVisibility(unserved), missing, c.Namespace)
	}
	o := &offline{Snapshot: s, filter: c.flags.filter(), horizon: c.flags.until, startOf: expected.Now, warnings: c.taker.Warnings}
	if o.filter.ClusterQueue == "" {
		o.filter.Namespace = c.Namespace
	}
	l, err := o.list()
	if err != nil {
		return nil, err
	}
	l.TakenAt, l.Until = time.Time{}, time.Time{} // a watch would print the answer again for them
	c.flags.cut(l)
	return l, nil
}

// cut leaves the selected page of each queue, as the visibility API does.
func (f *flags) cut(l *List) {
	limit := f.parameters.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	seen := map[types.NamespacedName]int64{}
	l.Items = slices.DeleteFunc(l.Items, func(r Row) bool {
		key := types.NamespacedName{Namespace: r.Namespace, Name: r.LocalQueue}
		if f.clusterQueue != "" {
			key = types.NamespacedName{Name: r.ClusterQueue}
		}
		at := seen[key]
		seen[key]++
		return at < f.parameters.Offset || at >= f.parameters.Offset+limit
	})
}
