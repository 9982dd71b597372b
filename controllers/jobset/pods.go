package jobset

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/events"
)

// This file determines which pods use the quota of a JobSet, even if their labels or owners were changed, and deletes pods that no Job
// ends. Tenants cannot change labels or owners (tranche-guard-pods), but administrators can, and so could tenants before that policy was
// installed.

// unwatchedEvery is how often a JobSet is read past the cache while it has pods that the cache does not watch.
const unwatchedEvery = 5 * time.Second

const (
	jobSetKeys = "jobset.sigs.k8s.io/"
	// agentAnnotation is written by the pod itself. Of the annotations with this prefix, only it is not the copy of a label.
	agentAnnotation = jobset.InPlaceRestartAttemptKey
)

// OriginalLabels returns the labels with which a pod of a JobSet was created, as far as they identify its JobSet and Job. The JobSet
// controller also writes each of its labels into an annotation, and the owner reference of the pod has the name of its Job. OriginalLabels
// does not change the pod.
func OriginalLabels(pod *corev1.Pod) map[string]string {
	original := map[string]string{}
	for key, value := range pod.Annotations {
		if strings.HasPrefix(key, jobSetKeys) && key != agentAnnotation {
			original[key] = value
		}
	}
	if owner := metav1.GetControllerOfNoCopy(pod); isJob(owner) {
		original[batchv1.JobNameLabel] = owner.Name
	} else if original[jobset.JobSetUIDKey] != "" && pod.Labels[batchv1.JobNameLabel] == "" {
		original[batchv1.JobNameLabel] = fmt.Sprintf("%s-%s-%s",
			original[jobset.JobSetNameKey], original[jobset.ReplicatedJobNameKey], original[jobset.JobIndexKey])
	}
	maps.DeleteFunc(original, func(key, value string) bool { return pod.Labels[key] == value })
	if len(original) == 0 {
		return pod.Labels
	}
	labels := maps.Clone(pod.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, original)
	return labels
}

// jobSetOfPod indexes pods by the UID of the JobSet whose quota they use. The label alone proves nothing: a pod uses quota if a Job
// controls it, even a deleted Job, or if it has the annotations of a pod that the Job of a JobSet has created.
func jobSetOfPod(pod client.Object) []string {
	uid := pod.GetLabels()[jobset.JobSetUIDKey]
	if uid == "" || !isJob(metav1.GetControllerOf(pod)) && !isMade(pod) {
		return nil
	}
	return []string{uid}
}

func isJob(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String()
}

// isMade reports whether a pod has the annotations that a Job of a JobSet gives to the pods that it creates.
func isMade(pod client.Object) bool {
	uid := pod.GetLabels()[jobset.JobSetUIDKey]
	return uid != "" && pod.GetAnnotations()[jobset.JobSetUIDKey] == uid
}

// isLoose reports whether a pod of a JobSet was detached from its Job, which has replaced it.
func isLoose(pod client.Object) bool { return isMade(pod) && !isJob(metav1.GetControllerOf(pod)) }

// isCharged reports whether a pod uses quota of its JobSet.
func isCharged(pod *corev1.Pod) bool { return jobSetOfPod(pod) != nil && !isTerminal(pod) }

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// addPods adds the pods that use quota. If the Job of a pod exists and does not belong to a JobSet, the pod uses no quota, unless another
// Job created it: a foreign Job may have adopted it, and keeps it running when its stage is held. The pods of a deleted Job terminate with
// it. Pods that no Job ends are abandoned.
func (o *ownedObjects) addPods(ctx context.Context, reader client.Reader, pods []corev1.Pod) error {
	jobs := map[types.UID]*batchv1.Job{}
	for _, job := range o.jobs {
		jobs[job.UID] = job
	}
	strangers := map[types.UID]bool{}
	for i := range pods {
		pod, owner := &pods[i], metav1.GetControllerOf(&pods[i])
		if !isCharged(pod) {
			continue
		}
		if isJob(owner) && jobs[owner.UID] == nil {
			if _, known := strangers[owner.UID]; !known {
				stranger, err := isStranger(ctx, reader, pod.Namespace, owner)
				if err != nil {
					return err
				}
				strangers[owner.UID] = stranger
			}
		}
		switch {
		case isLoose(pod) || isMade(pod) && strangers[owner.UID]:
			o.abandoned = append(o.abandoned, abandoned{pod, "no Job of the JobSet controls it, and its Job has replaced it"})
		case strangers[owner.UID]:
			continue
		case jobs[owner.UID] != nil && childjob.IsStuck(jobs[owner.UID]):
			o.abandoned = append(o.abandoned, abandoned{pod, fmt.Sprintf("its Job %q is being deleted, and finalizers keep the Job", owner.Name)})
		}
		o.pods = append(o.pods, pod)
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
	return err == nil && job.UID == owner.UID && jobSetOfJob(&job) == nil, nil
}

// An abandoned pod uses quota, and no Job ends it when its stage is stopped.
type abandoned struct {
	pod *corev1.Pod
	why string
}

// endAbandoned requests the deletion of the pods that no Job ends.
func (w *actions) endAbandoned(o ownedObjects) {
	for _, a := range o.abandoned {
		if a.pod.DeletionTimestamp.IsZero() {
			w.end = append(w.end, a)
		}
	}
}

// end deletes pods that no Job ends.
func (r *Reconciler) end(ctx context.Context, s *snapshot, w *actions) error {
	return r.each(ctx, len(w.end), func(i int) error {
		pod := w.end[i].pod
		err := r.config.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete pod %s, which no Job ends: %w", client.ObjectKeyFromObject(pod), err)
		}
		if err == nil {
			events.PodEnded(pod.Name, w.end[i].why).Emit(r.config.Recorder, s.subjectOr(pod))
		}
		return nil
	})
}

// subjectOr returns the JobSet, even if it is being deleted, or else another object.
func (s *snapshot) subjectOr(object client.Object) client.Object {
	switch {
	case s.jobSet != nil:
		return s.jobSet
	case s.leaving != nil:
		return s.leaving
	}
	return object
}

// leave stops the Jobs of a JobSet that is being deleted and has finalizers: otherwise its quota could not be released until they are
// removed. In foreground deletion the garbage collector deletes the Jobs.
func (w *actions) leave(o ownedObjects) {
	for _, job := range o.jobs {
		if childjob.IsNoticed(job) {
			w.hold = append(w.hold, job)
			w.stopped++
		}
	}
}

// reportStopped reports the Jobs that were stopped because their JobSet is being deleted.
func (r *Reconciler) reportStopped(_ context.Context, s *snapshot, w *actions) error {
	if w.stopped > 0 {
		events.JobSetStopped(w.stopped).Emit(r.config.Recorder, s.leaving)
	}
	return nil
}
