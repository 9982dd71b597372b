package metrics

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/conditions"
)

// SetupWithManager registers the metrics, and starts to record the transitions of quota Workloads. Call it once.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := Register(config); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	r := NewRecorder(cachedQueues{mgr.GetCache()}, cachedTimelines{mgr.GetCache()}, config.Metrics, time.Now)
	err := watch(ctx, mgr, &kueue.Workload{}, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok := before.(*kueue.Workload)
			if is, isTyped := after.(*kueue.Workload); ok && isTyped {
				r.Changed(was, is)
			}
		},
		DeleteFunc: gone(r.Gone),
	})
	if err != nil {
		return err
	}
	err = watch(ctx, mgr, &kueue.ClusterQueue{}, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok := before.(*kueue.ClusterQueue)
			if is, isTyped := after.(*kueue.ClusterQueue); ok && isTyped && was.Spec.CohortName != is.Spec.CohortName {
				r.CohortsMoved()
			}
		},
		DeleteFunc: gone(func(q *kueue.ClusterQueue) {
			r.ClusterQueueGone(q.Name)
			r.CohortsMoved()
		}),
	})
	if err != nil {
		return err
	}
	err = watch(ctx, mgr, &kueue.Cohort{}, cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, ok := before.(*kueue.Cohort)
			if is, isTyped := after.(*kueue.Cohort); ok && isTyped && was.Spec.ParentName != is.Spec.ParentName {
				r.CohortsMoved()
			}
		},
		DeleteFunc: gone(func(c *kueue.Cohort) {
			r.CohortGone(c.Name)
			r.CohortsMoved()
		}),
	})
	if err != nil {
		return err
	}
	return watch(ctx, mgr, &kueue.LocalQueue{}, cache.ResourceEventHandlerFuncs{
		DeleteFunc: gone(func(q *kueue.LocalQueue) { r.LocalQueueGone(client.ObjectKeyFromObject(q)) }),
	})
}

func watch(ctx context.Context, mgr ctrl.Manager, kind client.Object, handler cache.ResourceEventHandler) error {
	informer, err := mgr.GetCache().GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watch %T for metrics: %w", kind, err)
	}
	if _, err := informer.AddEventHandler(handler); err != nil {
		return fmt.Errorf("watch %T for metrics: %w", kind, err)
	}
	return nil
}

// gone calls f with the last known state of an object.
func gone[T client.Object](f func(T)) func(any) {
	return func(object any) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if typed, ok := object.(T); ok {
			f(typed)
		}
	}
}

// cachedQueues reads the queues from the cache, which removes an object before it reports the deletion.
type cachedQueues struct{ reader client.Reader }

// ClusterQueueExists looks a ClusterQueue up.
func (q cachedQueues) ClusterQueueExists(name string) bool {
	return q.reader.Get(context.Background(), types.NamespacedName{Name: name}, &kueue.ClusterQueue{}, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil
}

// LocalQueueExists looks a LocalQueue up.
func (q cachedQueues) LocalQueueExists(key types.NamespacedName) bool {
	return q.reader.Get(context.Background(), key, &kueue.LocalQueue{}, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil
}

// CohortsOf follows the parents of a ClusterQueue. In a cycle of Cohorts it returns each of them once.
func (q cachedQueues) CohortsOf(clusterQueue string) []string {
	var queue kueue.ClusterQueue
	if err := q.reader.Get(context.Background(), types.NamespacedName{Name: clusterQueue}, &queue, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}); err != nil {
		return nil
	}
	var all []string
	for name := string(queue.Spec.CohortName); name != "" && !slices.Contains(all, name); {
		all = append(all, name)
		var cohort kueue.Cohort
		if err := q.reader.Get(context.Background(), types.NamespacedName{Name: name}, &cohort, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}); err != nil {
			break
		}
		name = string(cohort.Spec.ParentName)
	}
	return all
}

// CohortIsNamed looks for the object of a Cohort, and for objects that name it.
func (q cachedQueues) CohortIsNamed(name string) bool {
	ctx, shared := context.Background(), &client.ListOptions{UnsafeDisableDeepCopy: new(true)}
	if q.reader.Get(ctx, types.NamespacedName{Name: name}, &kueue.Cohort{}, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil {
		return true
	}
	var queues kueue.ClusterQueueList
	var cohorts kueue.CohortList
	if q.reader.List(ctx, &queues, shared) != nil || q.reader.List(ctx, &cohorts, shared) != nil {
		return true
	}
	return slices.ContainsFunc(queues.Items, func(c kueue.ClusterQueue) bool { return string(c.Spec.CohortName) == name }) ||
		slices.ContainsFunc(cohorts.Items, func(c kueue.Cohort) bool { return string(c.Spec.ParentName) == name })
}

// cachedTimelines reads the timelines of the JobSets in the cache.
type cachedTimelines struct{ reader client.Reader }

// NotReadySince reads the JobSet of a quota Workload. The stage controller writes the timeline before it changes the quota Workload.
func (t cachedTimelines) NotReadySince(workload *kueue.Workload) time.Time {
	owner := metav1.GetControllerOf(workload)
	if owner == nil || owner.Kind != "JobSet" {
		return time.Time{}
	}
	var js jobsetapi.JobSet
	key := types.NamespacedName{Namespace: workload.Namespace, Name: owner.Name}
	if err := t.reader.Get(context.Background(), key, &js, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}); err != nil || js.UID != owner.UID {
		return time.Time{}
	}
	timeline := conditions.TimelineOf(&js)
	return conditions.NotReadySince(&timeline, workload.Labels[apis.StageLabel], workload)
}
