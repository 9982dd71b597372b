package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// taken returns an engine beside Kueue that admits in the ClusterQueue q, in which the quota Workload n/w waits for more than there is.
func taken(t *testing.T) *admission.Engine {
	t.Helper()
	e, err := admission.New(admission.Config{Leader: admission.LedByKueue})
	if err != nil {
		t.Fatal(err)
	}
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{
		Name: "q", UID: "q", ResourceVersion: "1", Annotations: map[string]string{apis.EngineAnnotation: apis.EngineTranche},
	}}
	queue.Spec.StopPolicy, queue.Spec.NamespaceSelector = new(kueue.Hold), &metav1.LabelSelector{}
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{"cpu"},
		Flavors:          []kueue.FlavorQuotas{{Name: "f", Resources: []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("1")}}}},
	}}
	workload := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "w", UID: "w", ResourceVersion: "2", Generation: 1}}
	workload.Spec.QueueName = "l"
	workload.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
	}}}}}}
	for _, event := range []admission.Event{
		admission.NamespaceObserved{Name: "n"},
		admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f", ResourceVersion: "1"}}},
		admission.ClusterQueueObserved{ClusterQueue: queue},
		admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "l", UID: "l", ResourceVersion: "1"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"},
		}},
		admission.WorkloadObserved{Workload: workload},
		admission.QueuesTaken{ClusterQueues: []string{"q"}},
	} {
		e.Apply(event)
	}
	return e
}

// A refusal that waits to be written is dropped when its cohort tree is handed back: there is no client to read or write with.
func TestRefusalAfterHandBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Engine: taken(t), Beside: true}
		r := &Runner{config: config, wake: make(chan struct{}, 1)}
		r.writer = newWriter(config, r)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // as the goroutine of the engine does
			for ctx.Err() == nil {
				select {
				case <-r.wake:
					r.drain()
				case <-ctx.Done():
				}
			}
		}()
		stage := admission.StageKey{Namespace: "n", Name: "w"}
		if !r.writer.leads(ctx, stage) {
			t.Error("the engine does not lead where the stage is queued")
		}
		r.writer.add(admission.Refuse{Stage: stage, UID: "w"})
		r.Observe(admission.QueueReturned{ClusterQueue: "q"})
		if !r.writer.nextRefusal(ctx) || len(r.writer.refusals.refused) > 0 {
			t.Error("the refusal still waits to be written")
		}
		r.writer.queue.ShutDown()
		cancel()
	})
}

// A hand-back waits for the refusal that is being written.
func TestAwaitRefusals(t *testing.T) {
	r := &Runner{}
	r.writer = newWriter(r.config, r)
	if err := r.AwaitRefusals(t.Context()); err != nil {
		t.Errorf("nothing is being written: %v", err)
	}
	r.writer.refusing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.AwaitRefusals(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("AwaitRefusals returned %v while a refusal is being written", err)
	}
}
