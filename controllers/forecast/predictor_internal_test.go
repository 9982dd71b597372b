package forecast

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

// A slowCache is a cache of which each reading takes some time.
type slowCache struct {
	cache.Cache
	takes  time.Duration
	worked *atomic.Int64
	fails  error
}

// GetInformer implements cache.Informers.
func (c slowCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	time.Sleep(c.takes)
	c.worked.Add(int64(c.takes))
	return informerOf(), c.fails
}

// An informerWith has a store, and nothing else.
type informerWith struct {
	cache.Informer
	store toolscache.Store
}

// GetStore implements toolscache.SharedIndexInformer.
func (i informerWith) GetStore() toolscache.Store { return i.store }

// informerOf returns an informer that has observed some objects.
func informerOf(objects ...client.Object) cache.Informer {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, object := range objects {
		_ = store.Add(object) // fails only for what is no object
	}
	return informerWith{store: store}
}

func newPredictor(cache cache.Cache) *Predictor {
	config := &configapi.Configuration{}
	config.SetDefaults()
	m := metrics.New(metrics.Replica{})
	return &Predictor{
		config: Config{Cache: cache, Configuration: config, Metrics: m}, board: newBoard(cache, time.Minute, 10, m), interval: time.Minute,
		predicted: map[string]time.Time{}, limits: Limits{Horizon: time.Hour, First: 10, Workloads: 100, Work: time.Second},
	}
}

// TestShare: the work takes at most a twentieth of the time, however long it takes and whether it succeeds, and is not repeated within the interval.
func TestShare(t *testing.T) {
	for name, c := range map[string]slowCache{
		"slow":   {takes: time.Second},
		"fast":   {takes: time.Millisecond},
		"broken": {takes: time.Second, fails: errors.New("no cache")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.worked = &atomic.Int64{}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- newPredictor(c).Start(ctx) }()
				const hours = 10
				time.Sleep(hours * time.Hour)
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				worked := time.Duration(c.worked.Load())
				// Reading the kinds once an interval is all the work there is.
				const kinds = 14
				round := kinds * c.takes
				if most := min(hours*time.Hour/20, hours*60*round); worked > most+round || worked < most*9/10 {
					t.Errorf("worked %s in %d hours", worked, hours)
				}
			})
		})
	}
}

// TestOldestFirst predicts first what was predicted longest ago, and forgets parts that no longer exist.
func TestOldestFirst(t *testing.T) {
	p := newPredictor(treesCache{})
	p.predicted = map[string]time.Time{"a": morning.Add(2), "b": morning.Add(1), "gone": morning}
	parts, _, err := p.read(t.Context(), morning.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, part := range parts {
		got = append(got, part.name)
	}
	if want := []string{"c", "b", "a"}; !slices.Equal(got, want) || len(p.predicted) != 2 {
		t.Errorf("order %v, want %v; known: %v", got, want, p.predicted)
	}
}

// TestPartWithoutQueues: the part with the objects whose queues do not exist is another one than that of the first ClusterQueue.
func TestPartWithoutQueues(t *testing.T) {
	p := newPredictor(treesCache{lost: true})
	p.predicted = map[string]time.Time{"a": morning.Add(3), "b": morning.Add(1), "c": morning.Add(2)}
	parts, durations, err := p.read(t.Context(), morning.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, part := range parts {
		got = append(got, part.Workloads[0].Name)
	}
	if want := []string{"lost", "b", "c", "a"}; !slices.Equal(got, want) {
		t.Fatalf("order %v, want %v", got, want)
	}
	p.predict(t.Context(), parts[0], durations)
	if len(p.predicted) != 4 || !p.predicted["a"].Equal(morning.Add(3)) {
		t.Errorf("predicted: %v", p.predicted)
	}
}

// TestComplete: the Board knows since when each part was predicted, and that one was not.
func TestComplete(t *testing.T) {
	p := newPredictor(treesCache{})
	for since, predicted := range map[time.Time]map[string]time.Time{
		morning.Add(1): {"a": morning.Add(2), "b": morning.Add(1), "c": morning.Add(3), "gone": morning},
		{}:             {"a": morning.Add(2), "b": morning.Add(1)},
	} {
		p.predicted = predicted
		if _, _, err := p.read(t.Context(), morning.Add(time.Minute)); err != nil || !p.board.completeSince.Equal(since) {
			t.Errorf("predicted %v: since %s, want %s; %v", predicted, p.board.completeSince, since, err)
		}
	}
}

// A treesCache has four ClusterQueues, and a quota Workload in three of them. If lost is true, there is one whose LocalQueue does not exist.
type treesCache struct {
	cache.Cache
	lost bool
}

// GetInformer implements cache.Informers.
func (c treesCache) GetInformer(_ context.Context, kind client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	var objects []client.Object
	for _, name := range []string{"a", "b", "c", "idle"} {
		meta := metav1.ObjectMeta{Namespace: "ml", Name: name}
		switch kind.(type) {
		case *kueue.ClusterQueue:
			objects = append(objects, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}})
		case *kueue.LocalQueue:
			objects = append(objects, &kueue.LocalQueue{ObjectMeta: meta, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)}})
		case *kueue.Workload:
			if name != "idle" {
				objects = append(objects, &kueue.Workload{ObjectMeta: meta, Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(name)}})
			}
		}
	}
	if _, is := kind.(*kueue.Workload); is && c.lost {
		meta := metav1.ObjectMeta{Namespace: "ml", Name: "lost"}
		objects = append(objects, &kueue.Workload{ObjectMeta: meta, Spec: kueue.WorkloadSpec{QueueName: "nowhere"}})
	}
	return informerOf(objects...), nil
}
