package jobset

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// refresh reads the objects of the JobSet, and of earlier JobSets of its name, past the cache. In the cache, a Job that was just released
// can still look held.
func (r *Reconciler) refresh(ctx context.Context, s *jobsetstate.Snapshot) (*jobsetstate.Snapshot, error) {
	live := *s
	live.Orphans = map[types.UID]jobsetstate.Objects{}
	for uid := range s.Orphans {
		b, err := r.readLive(ctx, s.Key, uid)
		if err != nil {
			return nil, err
		}
		live.Orphans[uid] = b
	}
	if s.JobSet == nil {
		return &live, nil
	}
	var err error
	live.Owned, err = r.readLive(ctx, s.Key, s.JobSet.UID)
	return &live, err
}

// readLive reads the objects of the JobSet past the cache. It reads quota Workloads first, so that the state of the Jobs and pods is newer
// than that of their quota Workloads.
func (r *Reconciler) readLive(ctx context.Context, key types.NamespacedName, jobSet types.UID) (jobsetstate.Objects, error) {
	var b jobsetstate.Objects
	options := func(label string) []client.ListOption {
		return []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{label: string(jobSet)}}
	}
	var workloads kueue.WorkloadList
	if err := r.reader.List(ctx, &workloads, options(apis.JobUIDLabel)...); err != nil {
		return b, fmt.Errorf("list quota Workloads of JobSet %s: %w", key, err)
	}
	var jobs batchv1.JobList
	if err := r.reader.List(ctx, &jobs, options(jobset.JobSetUIDKey)...); err != nil {
		return b, fmt.Errorf("list Jobs of JobSet %s: %w", key, err)
	}
	for i := range workloads.Items {
		b.Workloads = append(b.Workloads, &workloads.Items[i])
	}
	for i := range jobs.Items {
		if jobsetstate.JobSetOfJob(&jobs.Items[i]) == jobSet {
			b.Jobs = append(b.Jobs, &jobs.Items[i])
		}
	}
	return b, r.readLivePods(ctx, key, jobSet, &b)
}

// readLivePods finds the pods of a JobSet by its UID and by its name, so that it also finds a pod that has lost one of these labels.
func (r *Reconciler) readLivePods(ctx context.Context, key types.NamespacedName, jobSet types.UID, b *jobsetstate.Objects) error {
	found := map[types.UID]bool{}
	var all []corev1.Pod
	for _, by := range []client.MatchingLabels{{jobset.JobSetUIDKey: string(jobSet)}, {jobset.JobSetNameKey: key.Name}} {
		var pods corev1.PodList
		if err := r.reader.List(ctx, &pods, client.InNamespace(key.Namespace), by); err != nil {
			return fmt.Errorf("list pods of JobSet %s: %w", key, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			_, watched := pod.Labels[jobset.JobSetUIDKey]
			pod.Labels = jobsetstate.OriginalLabels(pod)
			if found[pod.UID] || jobsetstate.JobSetOfPod(pod) != jobSet {
				continue
			}
			found[pod.UID] = true
			b.HasUnwatchedPods = b.HasUnwatchedPods || !watched && jobsetstate.IsCharged(pod)
			all = append(all, *pod)
		}
	}
	return addPods(ctx, r.reader, b, all)
}
