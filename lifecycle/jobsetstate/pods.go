package jobsetstate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// This file determines which pods use the quota of a JobSet, even if their labels or owners were changed. Tenants cannot change labels or
// owners (tranche-guard-pods), but administrators can, and so could tenants before that policy was installed.

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
	return labels.Merge(pod.Labels, original)
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
func IsCharged(pod *corev1.Pod) bool {
	return JobSetOfPod(pod) != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// An AbandonedPod pod uses quota, and no Job ends it when its stage is stopped.
type AbandonedPod struct {
	Pod    *corev1.Pod
	Reason string
}

// JobSetOfJob returns the UID of the JobSet that controls a Job, or "".
func JobSetOfJob(job metav1.Object) types.UID {
	owner := metav1.GetControllerOf(job)
	if owner == nil || owner.Kind != "JobSet" || owner.APIVersion != jobset.GroupVersion.String() {
		return ""
	}
	return owner.UID
}

// PodsByJob returns a function for the pods of a Job that may still run.
func (s *Snapshot) PodsByJob() func(*batchv1.Job) []*corev1.Pod {
	type key struct{ job, jobSet string }
	pods := map[key][]*corev1.Pod{}
	for _, pod := range s.Owned.Pods {
		of := key{pod.Labels[batchv1.JobNameLabel], pod.Labels[jobset.JobSetUIDKey]}
		pods[of] = append(pods[of], pod)
	}
	return func(job *batchv1.Job) []*corev1.Pod { return pods[key{job.Name, job.Labels[jobset.JobSetUIDKey]}] }
}

// HasPodOf reports whether a pod of a Job may still run.
func (s *Snapshot) HasPodOf(job *batchv1.Job) bool {
	return slices.ContainsFunc(s.Owned.Pods, func(pod *corev1.Pod) bool {
		return pod.Labels[batchv1.JobNameLabel] == job.Name && pod.Labels[jobset.JobSetUIDKey] == job.Labels[jobset.JobSetUIDKey]
	})
}

// HasPodAt reports whether a pod may still run that belongs to the Job with this index of a ReplicatedJob.
func (s *Snapshot) HasPodAt(replicatedJob string, index int32) bool {
	return slices.ContainsFunc(s.Owned.Pods, func(pod *corev1.Pod) bool {
		return ReplicatedJobOf(pod) == replicatedJob && pod.Labels[jobset.JobIndexKey] == strconv.Itoa(int(index))
	})
}
