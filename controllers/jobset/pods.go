package jobset

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// addPods adds the pods that use quota. If the Job of a pod exists and does not belong to a JobSet, the pod uses no quota, unless another
// Job created it: a foreign Job may have adopted it, and keeps it running when its stage is held. The pods of a deleted Job terminate with
// it. Pods that no Job ends are abandoned.
func addPods(ctx context.Context, reader client.Reader, b *jobsetstate.Objects, pods []corev1.Pod) error {
	jobs := map[types.UID]*batchv1.Job{}
	for _, job := range b.Jobs {
		jobs[job.UID] = job
	}
	strangers := map[types.UID]bool{}
	for i := range pods {
		pod, owner := &pods[i], metav1.GetControllerOf(&pods[i])
		if !jobsetstate.IsCharged(pod) {
			continue
		}
		if jobsetstate.IsJob(owner) && jobs[owner.UID] == nil {
			if _, known := strangers[owner.UID]; !known {
				stranger, err := isStranger(ctx, reader, pod.Namespace, owner)
				if err != nil {
					return err
				}
				strangers[owner.UID] = stranger
			}
		}
		switch {
		case jobsetstate.IsLoose(pod) || jobsetstate.IsMade(pod) && strangers[owner.UID]:
			b.Abandoned = append(b.Abandoned, jobsetstate.AbandonedPod{Pod: pod, Reason: "no Job of the JobSet controls it, and its Job has replaced it"})
		case strangers[owner.UID]:
			continue
		case jobs[owner.UID] != nil && childjob.IsStuck(jobs[owner.UID]):
			b.Abandoned = append(b.Abandoned, jobsetstate.AbandonedPod{Pod: pod, Reason: fmt.Sprintf("its Job %q is being deleted, and finalizers keep the Job", owner.Name)})
		}
		b.Pods = append(b.Pods, pod)
	}
	return nil
}

// isStranger reports whether the Job that controls a pod exists and belongs to no JobSet.
func isStranger(ctx context.Context, reader client.Reader, namespace string, owner *metav1.OwnerReference) (bool, error) {
	var job batchv1.Job
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, &job)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Job %s/%s that controls pods of a JobSet: %w", namespace, owner.Name, err)
	}
	return err == nil && job.UID == owner.UID && jobsetstate.JobSetOfJob(&job) == "", nil
}
