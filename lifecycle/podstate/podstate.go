// Package podstate reads from the status of pods and Jobs why pods are missing or not ready.
package podstate

import (
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// IsReady reports whether a pod is ready.
func IsReady(pod *corev1.Pod) bool {
	c := conditionOf(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// WithoutNode returns why a pod has no node, as its condition PodScheduled says. It returns nothing if the pod has a node, or if no scheduler has tried yet.
func WithoutNode(pod *corev1.Pod) (reason, message string) {
	if c := conditionOf(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && pod.Spec.NodeName == "" {
		return c.Reason, c.Message
	}
	return "", ""
}

// WaitingContainer returns the first container that waits for another reason than that it has just begun to start, or nil.
func WaitingContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, all := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range all {
			if w := all[i].State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
				return &all[i]
			}
		}
	}
	return nil
}

// NotReady returns why a pod is not ready, or "" if it is, or has ended or will. It is not known if only an Event may tell.
func NotReady(pod *corev1.Pod) (why string, isKnown bool) {
	if IsReady(pod) || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return "", true
	}
	if c := WaitingContainer(pod); c != nil {
		return fmt.Sprintf("container %s waits: %s", c.Name, strings.TrimSuffix(c.State.Waiting.Reason+": "+c.State.Waiting.Message, ": ")), true
	}
	switch _, message := WithoutNode(pod); {
	case message != "":
		return "no node: " + message, true
	case pod.Spec.NodeName == "":
		return "no node yet", false
	case pod.Status.Phase == corev1.PodRunning:
		return "running, but not ready yet", false
	}
	return "containers not created yet", false
}

// lack returns how many pods a Job has still to create.
func lack(job *batchv1.Job) int32 {
	isOver := func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && slices.Contains([]batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuccessCriteriaMet, batchv1.JobFailureTarget}, c.Type)
	}
	if ptr.Deref(job.Spec.Suspend, false) || job.DeletionTimestamp != nil || slices.ContainsFunc(job.Status.Conditions, isOver) {
		return 0
	}
	wanted := ptr.Deref(job.Spec.Parallelism, 1)
	if job.Spec.Completions != nil {
		wanted = min(wanted, *job.Spec.Completions-job.Status.Succeeded)
	}
	return wanted - job.Status.Active - ptr.Deref(job.Status.Terminating, 0)
}

func conditionOf(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == conditionType {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
