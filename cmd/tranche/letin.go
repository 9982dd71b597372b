package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/controllers/dashboard"
	"github.com/tranche-dev/tranche/controllers/forecast"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/simulator"
)

// searchLetIn returns the search of the verb explain for what would let quota Workloads in, in the objects of the cache. The limit of predictions holds for
// it, too.
func searchLetIn(objects cache.Informers, config *configapi.Configuration) dashboard.Search {
	return func(ctx context.Context, workloads []types.NamespacedName) (map[string]*model.LetIn, error) {
		s, err := forecast.Read(ctx, objects, config, time.Now())
		if err != nil {
			return nil, err
		}
		durations := &simulator.Durations{PastRuns: simulator.PastRunsOf(s)}
		bound := simulator.Bound{Workloads: int(*config.ExpectedStart.MaxWorkloads), Setting: "expectedStart.maxWorkloads"}
		found, err := explain.Search(ctx, forecast.WithoutFinished(s), durations, workloads, bound)
		if errors.Is(err, simulator.ErrTooLarge) {
			return nil, fmt.Errorf("%w: more than %d quota Workloads are pending or hold quota in its Cohorts", dashboard.ErrNotSearched, bound.Workloads)
		}
		letIn := map[string]*model.LetIn{}
		for key, l := range found {
			x := &model.LetIn{Why: l.Why, Sets: l.Texts(), Taken: s.TakenAt}
			for i := range l.Sets {
				x.Changes = append(x.Changes, changesOf(&l.Sets[i]))
			}
			letIn[key.Name] = x
		}
		return letIn, err
	}
}

// changesOf returns the changes of a set in words for users who may not see everything.
func changesOf(set *explain.Set) model.ChangeSet {
	changes := model.ChangeSet{Evicts: set.Evicts}
	for i := range set.Ends {
		e := &set.Ends[i]
		bare := fmt.Sprintf("Workload %s/%s ends", e.Namespace, e.Name)
		if e.JobSet != "" {
			bare = fmt.Sprintf("stage %s of JobSet %s/%s ends", e.Stage, e.Namespace, e.JobSet)
		}
		text := fmt.Sprintf("%s (in ClusterQueue %s)", bare, e.ClusterQueue)
		if e.ExpectedBy != nil {
			text = fmt.Sprintf("%s (in ClusterQueue %s, expected by %s)", bare, e.ClusterQueue, e.ExpectedBy.Format("2006-01-02 15:04:05Z"))
		}
		changes.Changes = append(changes.Changes, model.Change{
			Text: text, Bare: bare, Namespace: e.Namespace, Node: visibilityapi.Constraint{Kind: visibilityapi.ClusterQueue, Name: e.ClusterQueue},
		})
	}
	for i := range set.Raises {
		r := &set.Raises[i]
		what := fmt.Sprintf("raise %s of %s of flavor %s in", r.Limit, r.Resource, r.Flavor)
		amounts := fmt.Sprintf("from %s to %s", r.From.String(), r.To.String())
		changes.Changes = append(changes.Changes, model.Change{
			Text: fmt.Sprintf("%s %s %s, %s", what, r.Kind, r.Name, amounts), Bare: fmt.Sprintf("%s a %s that you may not read, %s", what, r.Kind, amounts),
			Node: visibilityapi.Constraint{Kind: r.Kind, Name: r.Name},
		})
	}
	return changes
}
