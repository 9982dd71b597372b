package live

import (
	"fmt"
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

func heapBytes() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// A watch keeps nothing of the objects beside the Model.
func TestSinkKeepsNoObjects(t *testing.T) {
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
		s := &sink{feed: New(&Config{}, store), kind: kinds()[4]}
		transform := s.Transformer()
		objects := make([]any, count)
		for i := range objects {
			objects[i], _ = transform(pending(i)) // it returns no error
		}
		if err := s.Replace(objects, ""); err != nil {
			t.Fatal(err)
		}
		for i := range count / 10 {
			if err := s.Update(objects[i]); err != nil {
				t.Fatal(err)
			}
		}
		return s
	})
	t.Logf("bytes per quota Workload: %.0f in the Model alone, %.0f with the watch", alone, watched)
	if watched > alone+32 {
		t.Errorf("a watch keeps %.0f bytes of each quota Workload beside the Model", watched-alone)
	}
}

// A list drops the objects that were deleted while the watch was interrupted, in its namespace.
func TestReplace(t *testing.T) {
	store := server.NewStore()
	in := func(namespace string, names ...string) (objects []any) {
		for _, name := range names {
			objects = append(objects, &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}})
		}
		return objects
	}
	one, other := &sink{feed: New(&Config{}, store), kind: kinds()[4], namespace: "one"}, &sink{feed: New(&Config{}, store), kind: kinds()[4], namespace: "other"}
	for _, err := range []error{
		one.Replace(in("one", "a", "b"), ""), other.Replace(in("other", "a"), ""), one.Add(in("one", "c")[0]),
		one.Replace(in("one", "b"), ""), other.Delete(client.Object(&kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "unknown"}})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var left []dashboard.NamespaceRow
	store.Use(func(m *dashboard.Model) { left = m.Namespaces(dashboard.Viewer{}, "", dashboard.Window{}).Items })
	if !slices.Equal(left, []dashboard.NamespaceRow{{Name: "one", Objects: 1}, {Name: "other", Objects: 1}}) {
		t.Errorf("namespaces: %v, want one object in each", left)
	}
	if err := one.Add("no object"); err == nil {
		t.Error("a text is taken for an object")
	}
}
