package engine

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

// Quota Workloads that hold quota may be unknown before all sources have delivered their objects: until then nothing may rely on the counts of the engine.
func TestIsComplete(t *testing.T) {
	e, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{config: Config{Engine: e}, wake: make(chan struct{}, 1), complete: make(chan struct{}), decided: make(chan struct{})}
	ready := make(chan struct{})
	wants := func(want bool) {
		t.Helper()
		isViewed := false
		r.post(func(*admission.Engine) {
			isViewed = true
			if r.IsComplete() != want {
				t.Errorf("IsComplete is %t, want %t", !want, want)
			}
		})
		r.turn(ready)
		if !isViewed {
			t.Error("the engine has not been viewed")
		}
	}
	wants(false)
	close(ready)
	wants(false) // it may have been posted before the last observations
	wants(true)
}

// The controllers of a leader start after the first scheduling cycle. They learn of all queues that have changed before, once.
func TestChangesBeforeTheControllers(t *testing.T) {
	e, err := admission.New(admission.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{config: Config{Engine: e}, wake: make(chan struct{}, 1), complete: make(chan struct{}), decided: make(chan struct{})}
	r.writer = newWriter(r.config, r)
	defer r.writer.queue.ShutDown()
	ready := make(chan struct{})
	close(ready)
	for _, name := range []string{"a", "b"} {
		r.Observe(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}})
	}
	select {
	case <-r.Decided():
		t.Fatal("the engine has decided before its first scheduling cycle")
	default:
	}
	r.turn(ready)
	<-r.Decided()
	var reported []string
	r.onChange(ClusterQueues, func(key types.NamespacedName) { reported = append(reported, key.Name) })
	r.turn(ready)
	if slices.Sort(reported); !slices.Equal(reported, []string{"a", "b"}) {
		t.Errorf("%v were reported, want both ClusterQueues", reported)
	}
	reported = nil
	if r.turn(ready); len(reported) > 0 {
		t.Errorf("%v were reported again", reported)
	}
}

// ViewDecided shows the decisions that follow from what was observed before, and View what was before them.
func TestViewDecided(t *testing.T) {
	for name, c := range map[string]struct {
		view  func(*Runner, context.Context, func(*admission.Engine)) error
		leads bool
		want  bool
	}{
		"before the decision":           {(*Runner).View, true, false},
		"after the decision":            {(*Runner).ViewDecided, true, true},
		"of a process that has no lead": {(*Runner).ViewDecided, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := admission.New(admission.Config{})
			if err != nil {
				t.Fatal(err)
			}
			workload, _ := contenders(e)
			r := &Runner{config: Config{Engine: e, Metrics: metrics.New(metrics.Replica{})}, wake: make(chan struct{}, 1), complete: make(chan struct{}), decided: make(chan struct{})}
			r.writer = newWriter(r.config, r)
			defer r.writer.queue.ShutDown()
			ready := make(chan struct{})
			if c.leads {
				close(ready)
			}
			got := false
			viewed := make(chan error)
			go func() {
				viewed <- c.view(r, t.Context(), func(e *admission.Engine) { got = e.Admitted(client.ObjectKeyFromObject(workload), workload.UID) })
			}()
			<-r.wake
			r.turn(ready)
			if err := <-viewed; err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("the quota Workload is admitted: %t, want %t", got, c.want)
			}
		})
	}
}
