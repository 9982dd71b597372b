package fairqueue

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func of(key string) reconcile.Request {
	namespace, name, _ := strings.Cut(key, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func drain(o *order) (all []string) {
	for o.Len() > 0 {
		all = append(all, o.Pop().String())
	}
	return all
}

func TestNamespacesTakeTurns(t *testing.T) {
	o := newOrder(nil)
	for _, key := range []string{"a/1", "a/2", "a/3", "b/1", "b/2", "c/1"} {
		o.Push(of(key))
	}
	want := []string{"a/1", "b/1", "c/1", "a/2", "b/2", "a/3"}
	if got := drain(o); !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestHoldersOfQuotaComeFirst(t *testing.T) {
	o := newOrder(func(r reconcile.Request) bool { return strings.HasPrefix(r.Name, "holder") })
	var want []string
	for i := range 2 * holdersInTurn {
		o.Push(of(fmt.Sprintf("a/other-%d", i)))
		o.Push(of(fmt.Sprintf("b/holder-%d", i)))
		want = append(want, fmt.Sprintf("b/holder-%d", i))
		if i%holdersInTurn == holdersInTurn-1 {
			want = append(want, fmt.Sprintf("a/other-%d", i/holdersInTurn))
		}
	}
	got := drain(o)
	if got := got[:len(want)]; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
	if len(got) != 4*holdersInTurn {
		t.Errorf("%d requests left the queue, want %d", len(got), 4*holdersInTurn)
	}
}

// However many holders have come while nothing else waited, another request is not passed by more than holdersInTurn.
func TestHoldersAlone(t *testing.T) {
	o := newOrder(func(r reconcile.Request) bool { return strings.HasPrefix(r.Name, "holder") })
	for i := range 5 * holdersInTurn {
		o.Push(of(fmt.Sprintf("b/holder-%d", i)))
	}
	for range 2 * holdersInTurn {
		o.Pop()
	}
	o.Push(of("a/other"))
	if at := slices.Index(drain(o), "a/other"); at < 0 || at > holdersInTurn {
		t.Errorf("the other request comes after %d holders", at)
	}
}

func TestRequestThatGetsQuotaWhileItWaits(t *testing.T) {
	holds := false
	o := newOrder(func(r reconcile.Request) bool { return holds && r.Name == "late" })
	for _, key := range []string{"a/1", "a/2", "a/late"} {
		o.Push(of(key))
	}
	holds = true
	o.Touch(of("a/late"))
	o.Touch(of("a/late"))
	if o.Len() != 3 {
		t.Errorf("%d requests wait, want 3", o.Len())
	}
	if got, want := drain(o), []string{"a/late", "a/1", "a/2"}; !slices.Equal(got, want) {
		t.Errorf("order %q, want %q", got, want)
	}
}

// Each request that is pushed leaves once, whatever gets or loses quota meanwhile.
func TestOrderKeepsEachRequestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holders := map[reconcile.Request]bool{}
		o := newOrder(func(r reconcile.Request) bool { return holders[r] })
		waiting := map[reconcile.Request]bool{}
		key := rapid.Custom(func(t *rapid.T) reconcile.Request {
			return of(fmt.Sprintf("%s/%d", rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "namespace"), rapid.IntRange(0, 3).Draw(t, "name")))
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				request := key.Draw(t, "request")
				holders[request] = rapid.Bool().Draw(t, "holds quota")
				if waiting[request] {
					o.Touch(request)
				} else {
					o.Push(request)
				}
				waiting[request] = true
			},
			"pop": func(t *rapid.T) {
				if len(waiting) == 0 {
					return
				}
				request := o.Pop()
				if !waiting[request] {
					t.Fatalf("%s left the queue without waiting in it", request)
				}
				delete(waiting, request)
			},
			"": func(t *rapid.T) {
				if o.Len() != len(waiting) {
					t.Fatalf("%d requests wait, want %d", o.Len(), len(waiting))
				}
			},
		})
	})
}

// Workers end at once, also while requests wait and others are added.
func TestShutDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		retries := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, longestRetry)
		q := newQueue("", retries, nil)
		for i := range 1000 {
			q.Add(of(fmt.Sprintf("a/%d", i)))
		}
		var workers sync.WaitGroup
		done := 0
		var mu sync.Mutex
		for range 8 {
			workers.Go(func() {
				for {
					request, isShutDown := q.Get()
					if isShutDown {
						return
					}
					time.Sleep(time.Second)
					q.AddAfter(request, time.Second)
					q.Done(request)
					mu.Lock()
					done++
					mu.Unlock()
				}
			})
		}
		time.Sleep(1500 * time.Millisecond)
		q.ShutDown()
		workers.Wait()
		if done != 16 {
			t.Errorf("%d reconciles ended, want the 8 of the first second and the 8 that had begun", done)
		}
	})
}
