package stages

import (
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
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
	if owner := metav1.GetControllerOfNoCopy(pod); IsJob(owner) {
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

// JobSetOfPod returns the UID of the JobSet whose quota a pod uses, or "". The label alone proves nothing: a pod uses quota if a Job
// controls it, even a deleted Job, or if it has the annotations of a pod that the Job of a JobSet has created.
func JobSetOfPod(pod metav1.Object) types.UID {
	uid := pod.GetLabels()[jobset.JobSetUIDKey]
	if uid == "" || !IsJob(metav1.GetControllerOf(pod)) && !IsMade(pod) {
		return ""
	}
	return types.UID(uid)
}

// IsJob reports whether an owner is a Job.
func IsJob(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String()
}

// IsMade reports whether a pod has the annotations that a Job of a JobSet gives to the pods that it creates.
func IsMade(pod metav1.Object) bool {
	uid := pod.GetLabels()[jobset.JobSetUIDKey]
	return uid != "" && pod.GetAnnotations()[jobset.JobSetUIDKey] == uid
}

// IsLoose reports whether a pod of a JobSet was detached from its Job, which has replaced it.
func IsLoose(pod metav1.Object) bool { return IsMade(pod) && !IsJob(metav1.GetControllerOf(pod)) }

// IsCharged reports whether a pod uses quota of its JobSet.
func IsCharged(pod *corev1.Pod) bool { return JobSetOfPod(pod) != "" && !isTerminal(pod) }

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// An AbandonedPod pod uses quota, and no Job ends it when its stage is stopped.
type AbandonedPod struct {
	Pod    *corev1.Pod
	Reason string
}

// endAbandoned requests the deletion of the pods that no Job ends.
func (w *Step) endAbandoned(b Objects) {
	for _, a := range b.Abandoned {
		if a.Pod.DeletionTimestamp.IsZero() {
			w.EndPods = append(w.EndPods, a)
		}
	}
}

// leave stops the Jobs of a JobSet that is being deleted and has finalizers: otherwise its quota could not be released until they are
// removed. In foreground deletion the garbage collector deletes the Jobs.
func (w *Step) leave(b Objects) {
	for _, job := range b.Jobs {
		if childjob.IsNoticed(job) {
			w.HoldJobs = append(w.HoldJobs, job)
			w.Stopped++
		}
	}
}

// JobSetOfJob returns the UID of the JobSet that controls a Job, or "".
func JobSetOfJob(job metav1.Object) types.UID {
	owner := metav1.GetControllerOf(job)
	if owner == nil || owner.Kind != "JobSet" || owner.APIVersion != jobset.GroupVersion.String() {
		return ""
	}
	return owner.UID
}
