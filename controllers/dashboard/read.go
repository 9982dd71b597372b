package dashboard

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/controllers/engine"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
)

const (
	// maxStages is the number of stages of a JobSet that are explained.
	maxStages = 8
	// explanationTime is how long an explanation counts, for all users together, and maxExplanations how many are kept.
	explanationTime = 5 * time.Second
	maxExplanations = 1024
)

// A reader reads what belongs to one JobSet, from the cache and from the engine.
type reader struct {
	cache     client.Reader
	store     *server.Store
	engine    *engine.Throttle
	explained *utilcache.LRUExpireCache
	searcher  *searcher
}

func newExplanations() *utilcache.LRUExpireCache {
	return utilcache.NewLRUExpireCache(maxExplanations)
}

// jobSet returns a JobSet, its quota Workloads, why they wait, and what would let them in if that is known.
func (r *reader) jobSet(ctx context.Context, key types.NamespacedName) (*model.JobSetObjects, error) {
	objects := &model.JobSetObjects{JobSet: &jobsetapi.JobSet{}, Explanations: map[string]*visibilityapi.Explanation{}}
	if err := r.cache.Get(ctx, key, objects.JobSet); err != nil {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	var keys []types.NamespacedName
	r.store.Use(func(m *model.Model) { keys = m.WorkloadsOf(key.Namespace, objects.JobSet.UID) })
	var waiting []types.NamespacedName
	for _, k := range keys {
		w := &kueue.Workload{}
		if err := r.cache.Get(ctx, k, w); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read quota Workload %s: %w", k, err)
		} else if err != nil {
			continue
		}
		objects.Workloads = append(objects.Workloads, w)
		if quotaworkload.MayQueue(w) && len(waiting) < maxStages {
			waiting = append(waiting, k)
		}
	}
	if err := r.explain(ctx, objects, waiting); err != nil {
		objects.Gap = "Holders of the missing quota are not shown: " + err.Error()
	}
	r.searcher.add(objects, waiting)
	return objects, nil
}

// explain asks the engine why quota Workloads wait, unless it has just answered that.
func (r *reader) explain(ctx context.Context, objects *model.JobSetObjects, waiting []types.NamespacedName) error {
	var missing []types.NamespacedName
	for _, k := range waiting {
		if known, isKnown := r.explained.Get(k); isKnown {
			objects.Explanations[k.Name], _ = known.(*visibilityapi.Explanation)
			continue
		}
		missing = append(missing, k)
	}
	if len(missing) == 0 {
		return nil
	}
	found := map[types.NamespacedName]*visibilityapi.Explanation{}
	err := r.engine.Ask(ctx, func(e *admission.Engine) {
		e.Advance(time.Now()) // where it does not lead nothing else does
		for _, k := range missing {
			if x, isPending := e.Explanation(k); isPending {
				found[k] = &x
			}
		}
	})
	if err != nil {
		return err // found may still be written
	}
	for k, x := range found {
		r.explained.Add(k, x, explanationTime)
		objects.Explanations[k.Name] = x
	}
	return nil
}
