package groupstart

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// A snapshot is all that one reconcile reads. It is not changed after read has returned it, and its objects belong to the cache.
type snapshot struct {
	jobSet *jobsetapi.JobSet
	// endpoint is the URL where the pods of the group may ask, or empty.
	endpoint string
	// injected is true if the admission policies make pods wait.
	injected bool
	// configMap is the ConfigMap with the group's name, or nil. It may belong to a user.
	configMap   *corev1.ConfigMap
	groupCounts groupCounts
}

// read returns nil if there is nothing to do: the JobSet does not exist, has no group, has finished or is not managed.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*snapshot, error) {
	js, err := r.readJobSet(ctx, key)
	if err != nil || js == nil || js.Status.TerminalState != "" {
		return nil, err
	}
	managed, err := r.manages(ctx, js)
	if err != nil || !managed {
		return nil, err
	}
	s := &snapshot{jobSet: js, injected: r.config.Injected}
	if r.config.isServed() {
		s.endpoint = "http://" + r.config.Server.Address + barrier.Path(key)
	}
	if s.groupCounts, err = r.groupCountsOf(ctx, js); err != nil {
		return nil, err
	}
	s.configMap, err = r.readConfigMap(ctx, types.NamespacedName{Namespace: key.Namespace, Name: barrier.ConfigMapName(key.Name)})
	return s, err
}

// readJobSet returns nil if there is no JobSet with a group.
func (r *Reconciler) readJobSet(ctx context.Context, key types.NamespacedName) (*jobsetapi.JobSet, error) {
	var js jobsetapi.JobSet
	err := r.client.Get(ctx, key, &js)
	if apierrors.IsNotFound(err) || err == nil && (!js.DeletionTimestamp.IsZero() || !asks(&js)) {
		return nil, nil //nolint:nilnil // nothing is to be done
	}
	if err != nil {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	return &js, nil
}

// manages reports whether the Jobs of a JobSet are held, so that pods of a later release can be distinguished from those of an earlier one.
func (r *Reconciler) manages(ctx context.Context, js *jobsetapi.JobSet) (bool, error) {
	if apis.QueueNameOf(js.Labels) == "" && !r.config.WithoutQueueName && !childjob.AreUnqueued(js) {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := r.client.Get(ctx, types.NamespacedName{Name: js.Namespace}, &namespace); err != nil {
		return false, fmt.Errorf("read Namespace %s: %w", js.Namespace, err)
	}
	return r.config.Namespaces.Matches(labels.Set(namespace.Labels)), nil
}

// groupCountsOf counts the pods. It reads them without copying, which would cost more than counting.
func (r *Reconciler) groupCountsOf(ctx context.Context, js *jobsetapi.JobSet) (groupCounts, error) {
	var jobs batchv1.JobList
	var pods corev1.PodList
	options := []client.ListOption{client.InNamespace(js.Namespace), client.MatchingFields{indexGroup: string(js.UID)}, client.UnsafeDisableDeepCopy}
	if err := r.client.List(ctx, &jobs, options...); err != nil {
		return groupCounts{}, fmt.Errorf("list Jobs of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	if err := r.client.List(ctx, &pods, options...); err != nil {
		return groupCounts{}, fmt.Errorf("list pods of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	if g := count(js, jobs.Items, pods.Items, nil); g.complete {
		return g, nil
	}
	// Only a Job that is held or missing may have succeeded before. Checking that at each start of a pod would cost too much.
	done, err := r.readSucceeded(ctx, js)
	if err != nil {
		return groupCounts{}, err
	}
	return count(js, jobs.Items, pods.Items, done), nil
}

// readSucceeded reads which Jobs the quota Workloads of a JobSet record as succeeded in the current attempt.
func (r *Reconciler) readSucceeded(ctx context.Context, js *jobsetapi.JobSet) (childjob.Succeeded, error) {
	var workloads kueue.WorkloadList
	options := []client.ListOption{client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name}, client.UnsafeDisableDeepCopy}
	if err := r.client.List(ctx, &workloads, options...); err != nil {
		return nil, fmt.Errorf("list quota Workloads of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	replicas, done := jobsetstate.ReplicasOf(js), childjob.Succeeded{}
	for i := range workloads.Items {
		w := &workloads.Items[i]
		if w.Labels[apis.JobUIDLabel] == string(js.UID) && w.Annotations[apis.AttemptAnnotation] == strconv.Itoa(int(js.Status.Restarts)) {
			maps.Copy(done, childjob.ParseSucceeded(w.Annotations[apis.SucceededJobsAnnotation], replicas))
		}
	}
	return done, nil
}

// readConfigMap reads a ConfigMap, even if the cache lacks it because it belongs to no group.
func (r *Reconciler) readConfigMap(ctx context.Context, key types.NamespacedName) (*corev1.ConfigMap, error) {
	var found corev1.ConfigMap
	err := r.client.Get(ctx, key, &found)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, &found)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", key, err)
	}
	return &found, nil
}

// Count returns how many pods of a group have started, and how many it has.
func (r *Reconciler) Count(ctx context.Context, group types.NamespacedName) (started, pods int, err error) {
	js, err := r.readJobSet(ctx, group)
	if err != nil || js == nil {
		return 0, 0, err
	}
	g, err := r.groupCountsOf(ctx, js)
	return g.started, g.pods, err
}
