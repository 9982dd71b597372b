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
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// SetupWithManager registers the metrics, and starts to record the transitions of quota Workloads. Call it once.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	for _, collector := range append(config.Metrics.Collectors(), NewCollector(config), buildInfo(config.Version), modeInfo(config.Mode)) {
		if err := metrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	r := NewRecorder(cached{mgr.GetCache()}, config.Metrics, time.Now)
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

// cached reads objects from the cache, which removes an object before it reports the deletion.
type cached struct{ reader client.Reader }

// get reads an object that belongs to the cache.
func (c cached) get(key types.NamespacedName, into client.Object) error {
	return c.reader.Get(context.Background(), key, into, &client.GetOptions{UnsafeDisableDeepCopy: new(true)})
}

// ClusterQueueExists looks a ClusterQueue up.
func (c cached) ClusterQueueExists(name string) bool {
	return c.get(types.NamespacedName{Name: name}, &kueue.ClusterQueue{}) == nil
}

// LocalQueueExists looks a LocalQueue up.
func (c cached) LocalQueueExists(key types.NamespacedName) bool {
	return c.get(key, &kueue.LocalQueue{}) == nil
}

// CohortsOf follows the parents of a ClusterQueue. In a cycle of Cohorts it returns each of them once.
func (c cached) CohortsOf(clusterQueue string) []string {
	var queue kueue.ClusterQueue
	if c.get(types.NamespacedName{Name: clusterQueue}, &queue) != nil {
		return nil
	}
	var all []string
	for name := string(queue.Spec.CohortName); name != "" && !slices.Contains(all, name); {
		all = append(all, name)
		var cohort kueue.Cohort
		if c.get(types.NamespacedName{Name: name}, &cohort) != nil {
			break
		}
		name = string(cohort.Spec.ParentName)
	}
	return all
}

// CohortIsNamed looks for the object of a Cohort, and for objects that name it.
func (c cached) CohortIsNamed(name string) bool {
	if c.get(types.NamespacedName{Name: name}, &kueue.Cohort{}) == nil {
		return true
	}
	var queues kueue.ClusterQueueList
	var cohorts kueue.CohortList
	ctx := context.Background()
	if c.reader.List(ctx, &queues, client.UnsafeDisableDeepCopy) != nil || c.reader.List(ctx, &cohorts, client.UnsafeDisableDeepCopy) != nil {
		return true
	}
	return slices.ContainsFunc(queues.Items, func(q kueue.ClusterQueue) bool { return string(q.Spec.CohortName) == name }) ||
		slices.ContainsFunc(cohorts.Items, func(c kueue.Cohort) bool { return string(c.Spec.ParentName) == name })
}

// NotReadySince reads the JobSet of a quota Workload. The stage controller writes the timeline before it changes the quota Workload.
func (c cached) NotReadySince(workload *kueue.Workload) time.Time {
	owner := metav1.GetControllerOf(workload)
	if owner == nil || owner.Kind != "JobSet" {
		return time.Time{}
	}
	var js jobsetapi.JobSet
	if c.get(types.NamespacedName{Namespace: workload.Namespace, Name: owner.Name}, &js) != nil || js.UID != owner.UID {
		return time.Time{}
	}
	timeline := jobsetstatus.TimelineOf(&js)
	return jobsetstatus.NotReadySince(&timeline, workload.Labels[apis.StageLabel], workload)
}
