package metrics

import (
	"context"
	"fmt"
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

// SetupWithManager registers the metrics, and starts to record what happens to quota Workloads. Call it once.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if err := Register(config); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	r := NewRecorder(cachedQueues{mgr.GetCache()}, cachedTimelines{mgr.GetCache()}, config.Replica, time.Now)
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
		DeleteFunc: gone(func(q *kueue.ClusterQueue) { r.ClusterQueueGone(q.Name) }),
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

// cachedQueues are those in the cache, which knows of a deletion before it tells of it.
type cachedQueues struct{ reader client.Reader }

// ClusterQueueExists looks a ClusterQueue up.
func (q cachedQueues) ClusterQueueExists(name string) bool {
	return q.reader.Get(context.Background(), types.NamespacedName{Name: name}, &kueue.ClusterQueue{}, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil
}

// LocalQueueExists looks a LocalQueue up.
func (q cachedQueues) LocalQueueExists(key types.NamespacedName) bool {
	return q.reader.Get(context.Background(), key, &kueue.LocalQueue{}, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}) == nil
}

// cachedTimelines are those of the JobSets in the cache.
type cachedTimelines struct{ reader client.Reader }

// NotReadySince looks the JobSet of a quota Workload up. Its controller notes what it knows before it changes the quota Workload.
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
