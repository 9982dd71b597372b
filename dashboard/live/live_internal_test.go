package live

import (
	"fmt"
	"iter"
	"runtime"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// pending returns a quota Workload as the API server sends it, which shares no memory with others.
func pending(i int) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("jobset-fine-tune-%06d-train", i), UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)),
			CreationTimestamp: metav1.NewTime(time.Unix(int64(i), 0)),
		},
		Spec: kueue.WorkloadSpec{QueueName: "queue", PodSets: []kueue.PodSet{{Name: "main", Count: 1}}},
	}
}

// workloadsIn returns the source of quota Workloads of a namespace.
func workloadsIn(f *Feed, namespace string) *collect.Source {
	all := f.sources()
	return &collect.Source{Kind: all[len(all)-1].Kind, Namespace: namespace}
}

// list passes a list to a Feed, as a Follower does.
func list(f *Feed, from *collect.Source, objects iter.Seq[snapshot.Object]) {
	uids := map[types.NamespacedName]types.UID{}
	for object := range objects {
		uids[client.ObjectKeyFromObject(object)] = object.GetUID()
		f.Observe(from, f.Reduce(from, object))
	}
	f.Retain(from, uids)
}

func heapBytes() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// A Feed keeps nothing of the objects beside the Model.
func TestFeedKeepsNoObjects(t *testing.T) {
	const count = 20_000
	measure := func(fill func(store *server.Store) any) float64 {
		store := server.NewStore()
		before := heapBytes()
		kept := fill(store)
		after := heapBytes()
		runtime.KeepAlive(kept)
		runtime.KeepAlive(store)
		return float64(after-before) / count
	}
	alone := measure(func(store *server.Store) any {
		for i := range count {
			store.Use(func(m *dashboard.Model) { m.Observe(pending(i)) })
		}
		return nil
	})
	watched := measure(func(store *server.Store) any {
		f := New(&Config{}, store)
		listed := func(yield func(snapshot.Object) bool) {
			for i := range count {
				if !yield(pending(i)) {
					return
				}
			}
		}
		list(f, workloadsIn(f, ""), listed)
		return f
	})
	t.Logf("bytes per quota Workload: %.0f in the Model alone, %.0f with the Feed", alone, watched)
	if watched > alone+32 {
		t.Errorf("a Feed keeps %.0f bytes of each quota Workload beside the Model", watched-alone)
	}
}

// A list drops the objects that were deleted while the watch was interrupted, in its namespace.
func TestRetain(t *testing.T) {
	store := server.NewStore()
	f := New(&Config{}, store)
	in := func(namespace string, names ...string) iter.Seq[snapshot.Object] {
		var objects []snapshot.Object
		for _, name := range names {
			objects = append(objects, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}})
		}
		return slices.Values(objects)
	}
	one, other := workloadsIn(f, "one"), workloadsIn(f, "other")
	list(f, one, in("one", "a", "b"))
	list(f, other, in("other", "a"))
	for object := range in("one", "c") {
		f.Observe(one, object)
	}
	list(f, one, in("one", "b"))
	for object := range in("other", "unknown") {
		f.Forget(other, object)
	}
	var left []dashboard.NamespaceRow
	store.Use(func(m *dashboard.Model) { left = m.Namespaces(dashboard.Viewer{}, "", dashboard.Window{}).Items })
	if !slices.Equal(left, []dashboard.NamespaceRow{{Name: "one", Objects: 1}, {Name: "other", Objects: 1}}) {
		t.Errorf("namespaces: %v, want one object in each", left)
	}
}
