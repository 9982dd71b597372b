package metrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// SetupWithManager registers the metrics, and starts to record the transitions of quota Workloads. Call it once.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := Register(config); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	r := NewRecorder(cachedQueues{mgr.GetCache()}, cachedTimelines{mgr.GetCache()}, config.Metrics, time.Now)
	return errors.Join(
		watch(ctx, mgr, &kueue.Workload{}, informer.Handler[*kueue.Workload]{Changed: r.Changed, Deleted: r.Gone}),
		watch(ctx, mgr, &kueue.ClusterQueue{}, informer.Handler[*kueue.ClusterQueue]{
			Changed: func(was, is *kueue.ClusterQueue) {
				if was.Spec.CohortName != is.Spec.CohortName {
					r.CohortsMoved()
				}
			},
			Deleted: func(q *kueue.ClusterQueue) {
				r.ClusterQueueGone(q.Name)
				r.CohortsMoved()
			},
		}),
		watch(ctx, mgr, &kueue.Cohort{}, informer.Handler[*kueue.Cohort]{
			Changed: func(was, is *kueue.Cohort) {
				if was.Spec.ParentName != is.Spec.ParentName {
					r.CohortsMoved()
				}
			},
			Deleted: func(c *kueue.Cohort) {
				r.CohortGone(c.Name)
				r.CohortsMoved()
			},
		}),
		watch(ctx, mgr, &kueue.LocalQueue{}, informer.Handler[*kueue.LocalQueue]{
			Deleted: func(q *kueue.LocalQueue) { r.LocalQueueGone(client.ObjectKeyFromObject(q)) },
		}),
	)
}

func watch[T client.Object](ctx context.Context, mgr ctrl.Manager, kind T, h informer.Handler[T]) error {
	_, err := informer.Watch(ctx, mgr.GetCache(), kind, h)
	return err
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
	timeline := jobsetstatus.TimelineOf(&js)
	return jobsetstatus.NotReadySince(&timeline, workload.Labels[apis.StageLabel], workload)
}
