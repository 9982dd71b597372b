package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// pendingPods returns why pods of an admitted quota Workload are missing or not ready: a sentence for each reason, with the number of pods and the name of one.
// There is none if all are ready, if nothing is known yet, or if the user may not read pods: the answer is one without it.
func (c *cluster) pendingPods(ctx context.Context, w *kueue.Workload) []string {
	isTrue := func(conditionType string) bool {
		return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
	}
	labels := client.MatchingLabels{}
	switch {
	case !isTrue(kueue.WorkloadAdmitted) || isTrue(kueue.WorkloadPodsReady) || isTrue(kueue.WorkloadFinished) || isTrue(kueue.WorkloadEvicted):
		return nil
	case w.Labels[apis.JobSetLabel] != "":
		labels[jobset.JobSetNameKey] = w.Labels[apis.JobSetLabel]
	case w.Labels[apis.JobLabel] != "":
		labels[batchv1.JobNameLabel] = w.Labels[apis.JobLabel]
	default:
		return nil
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(w.Namespace), labels); err != nil {
		return nil
	}
	isOfStage := func(labels map[string]string) bool {
		return slices.ContainsFunc(w.Spec.PodSets, func(set kueue.PodSet) bool { return string(set.Name) == labels[apis.PodSetLabel] })
	}
	own := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return !isOfStage(pod.Labels) })
	lines := podLines(own, func(pod *corev1.Pod) string { return c.lastWarning(ctx, "Pod", pod, nil) })
	return append(lines, c.refusedPods(ctx, w, isOfStage)...)
}

// refusedPods returns a sentence about the Jobs of a stage that lack pods because the API server refuses these.
func (c *cluster) refusedPods(ctx context.Context, w *kueue.Workload, isOfStage func(labels map[string]string) bool) []string {
	var owned client.ListOption = client.MatchingLabels{jobset.JobSetNameKey: w.Labels[apis.JobSetLabel]}
	if name := w.Labels[apis.JobLabel]; name != "" {
		owned = client.MatchingFields{"metadata.name": name}
	}
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.InNamespace(w.Namespace), owned); err != nil {
		return nil
	}
	lacking := slices.DeleteFunc(jobs.Items, func(job batchv1.Job) bool { return !isOfStage(job.Spec.Template.Labels) || lackOf(&job) <= 0 })
	const asked = 3 // a Job that has just been created has no Event yet
	for i := range lacking[:min(asked, len(lacking))] {
		job := &lacking[i]
		switch why := c.lastWarning(ctx, "Job", job, client.MatchingFields{"reason": "FailedCreate"}); {
		case why == "":
		case len(lacking) == 1:
			return []string{fmt.Sprintf("Job %s lacks pods: %s", job.Name, why)}
		default:
			return []string{fmt.Sprintf("%d Jobs, such as %s, lack pods: %s", len(lacking), job.Name, why)}
		}
	}
	return nil
}

// lackOf returns how many pods a Job has still to create.
func lackOf(job *batchv1.Job) int32 {
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

// podLines returns a sentence for each reason why pods are not ready. warning returns the last Event of a pod that warns.
func podLines(pods []corev1.Pod, warning func(*corev1.Pod) string) []string {
	var reasons []string
	names := map[string][]string{}
	warned := map[string]string{} // one pod tells for all of a state: an Event costs a request
	for i := range pods {
		pod := &pods[i]
		why, isKnown := notReady(pod)
		if why == "" {
			continue
		}
		if !isKnown {
			if _, asked := warned[why]; !asked {
				warned[why] = warning(pod)
			}
			if warned[why] != "" {
				why += ": " + warned[why]
			}
		}
		if names[why] == nil {
			reasons = append(reasons, why)
		}
		names[why] = append(names[why], pod.Name)
	}
	var lines []string
	for _, why := range reasons {
		slices.Sort(names[why])
		lines = append(lines, fmt.Sprintf("%s: %s", podsText(names[why]), why))
	}
	return lines
}

func podsText(names []string) string {
	if len(names) == 1 {
		return "pod " + names[0]
	}
	return fmt.Sprintf("%d pods, such as %s", len(names), names[0])
}

// notReady returns why a pod is not ready, or "" if it is, or has ended or will. It is not known if only an Event may tell.
func notReady(pod *corev1.Pod) (why string, isKnown bool) {
	condition := func(conditionType corev1.PodConditionType) *corev1.PodCondition {
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == conditionType {
				return &pod.Status.Conditions[i]
			}
		}
		return nil
	}
	if ready := condition(corev1.PodReady); ready != nil && ready.Status == corev1.ConditionTrue || pod.DeletionTimestamp != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return "", true
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
			return fmt.Sprintf("container %s waits: %s", status.Name, strings.TrimSuffix(waiting.Reason+": "+waiting.Message, ": ")), true
		}
	}
	switch scheduled := condition(corev1.PodScheduled); {
	case scheduled == nil || pod.Spec.NodeName == "" && scheduled.Message == "":
		return "no node yet", false
	case scheduled.Status != corev1.ConditionTrue:
		return "no node: " + scheduled.Message, true
	case pod.Status.Phase == corev1.PodRunning:
		return "running, but not ready yet", false
	}
	return "containers not created yet", false
}

// lastWarning returns the last Event about an object that is a warning and has some more fields, or "".
func (c *cluster) lastWarning(ctx context.Context, kind string, object client.Object, fields client.MatchingFields) string {
	var events corev1.EventList
	about := client.MatchingFields{"involvedObject.kind": kind, "involvedObject.uid": string(object.GetUID()), "type": corev1.EventTypeWarning}
	maps.Copy(about, fields)
	if err := c.List(ctx, &events, client.InNamespace(object.GetNamespace()), about); err != nil || len(events.Items) == 0 {
		return ""
	}
	last := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return at(&a).Compare(at(&b)) })
	return strings.Join(strings.Fields(last.Reason+": "+last.Message), " ")
}

// at returns when an Event was last seen. The two APIs of Events fill different fields.
func at(event *corev1.Event) time.Time {
	if event.LastTimestamp.IsZero() {
		return event.EventTime.Time
	}
	return event.LastTimestamp.Time
}
