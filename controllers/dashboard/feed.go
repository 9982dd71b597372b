package dashboard

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A feed keeps a Store up to date with the cache of the manager. The cache calls it on goroutines of its own, so controllers do not wait for it.
type feed struct {
	store  *server.Store
	log    logr.Logger
	synced []toolscache.InformerSynced
}

// watch observes all kinds of the Model. The manager watches them anyway.
func (f *feed) watch(ctx context.Context, c cache.Cache) error {
	return errors.Join(
		watch(ctx, f, c, &kueue.ClusterQueue{}), watch(ctx, f, c, &kueue.Cohort{}), watch(ctx, f, c, &kueue.LocalQueue{}),
		watch(ctx, f, c, &jobsetapi.JobSet{}), watch(ctx, f, c, &kueue.Workload{}),
	)
}

func watch[T client.Object](ctx context.Context, f *feed, c cache.Cache, kind T) error {
	observe := func(object T) {
		f.use(object, func(m *model.Model) { m.Observe(object) })
	}
	synced, err := informer.Watch(ctx, c, kind, informer.Handler[T]{
		Added: observe, Changed: func(_, after T) { observe(after) },
		Deleted: func(object T) {
			f.use(object, func(m *model.Model) { m.Forget(object) })
		},
	})
	f.synced = append(f.synced, synced)
	return err
}

// use changes the Model by an object.
func (f *feed) use(object client.Object, change func(m *model.Model)) {
	f.change("Showing an object on the dashboard", change, "kind", fmt.Sprintf("%T", object), "namespace", object.GetNamespace(), "name", object.GetName())
}

// change changes the Model. A panic would end the manager: the page is less important.
func (f *feed) change(doing string, change func(m *model.Model), about ...any) {
	defer func() {
		if cause := recover(); cause != nil {
			f.log.Error(fmt.Errorf("panic: %v", cause), doing, append(about, "stack", string(debug.Stack()))...)
		}
	}()
	f.store.Use(change)
}

// isSynced reports whether all objects have been read once.
func (f *feed) isSynced() bool {
	for _, isSynced := range f.synced {
		if !isSynced() {
			return false
		}
	}
	return true
}

// Start samples usage until the context is done.
func (f *feed) Start(ctx context.Context) error {
	for _, hasSynced := range f.synced {
		toolscache.WaitForCacheSync(ctx.Done(), hasSynced)
	}
	f.change("Showing that everything has been read", (*model.Model).Touch) // the page shows that everything has been read
	ticker := time.NewTicker(model.SampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			f.change("Sampling usage for the dashboard", func(m *model.Model) { m.Sample(now) })
		}
	}
}

// NeedLeaderElection returns false: every replica answers.
func (f *feed) NeedLeaderElection() bool { return false }

// atMostEvery returns a function that drops calls that come too soon after the last one.
func atMostEvery(interval time.Duration, f func(error)) func(error) {
	var mu sync.Mutex
	var last time.Time
	return func(err error) {
		mu.Lock()
		isDue := time.Since(last) >= interval
		if isDue {
			last = time.Now()
		}
		mu.Unlock()
		if isDue {
			f(err)
		}
	}
}
