package quotaworkload

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/lifecycle/podstate"
)

// lackOf returns what keeps pods from being ready, most frequent causes first, such as "2 of 3 pods were not ready: 1 not created yet, or
// deleted, 1 without a node (0/4 nodes are available)".
func lackOf(wanted int32, pods []corev1.Pod) string {
	const most = 3
	counts := map[string]int{}
	missing, lacking := int(wanted), 0
	for i := range pods {
		if pods[i].DeletionTimestamp != nil {
			continue
		}
		missing--
		if cause := lackOfPod(&pods[i]); cause != "" {
			counts[cause]++
			lacking++
		}
	}
	if missing > 0 {
		counts["not created yet, or deleted"] = missing
		lacking += missing
	}
	if lacking == 0 {
		return ""
	}
	causes := slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b)) })
	var parts []string
	for _, cause := range causes[:min(len(causes), most)] {
		parts = append(parts, fmt.Sprintf("%d %s", counts[cause], cause))
	}
	if len(causes) > most {
		parts = append(parts, "the others have other causes")
	}
	return fmt.Sprintf("%d of %d pods were not ready: %s", lacking, max(int(wanted), lacking), strings.Join(parts, ", "))
}

// lackOfPod returns what keeps one pod from being ready, or "" if it is ready or has succeeded.
func lackOfPod(pod *corev1.Pod) string {
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || podstate.IsReady(pod):
		return ""
	case pod.Status.Phase == corev1.PodFailed:
		return "failed" + inBrackets(pod.Status.Reason)
	case pod.Spec.NodeName == "":
		_, message := podstate.WithoutNode(pod)
		return "without a node" + inBrackets(message)
	}
	if c := podstate.WaitingContainer(pod); c != nil {
		return fmt.Sprintf("with container %q waiting%s", c.Name, inBrackets(c.State.Waiting.Reason))
	}
	for _, container := range pod.Status.ContainerStatuses {
		if container.State.Running != nil && !container.Ready {
			return fmt.Sprintf("with container %q running and not ready", container.Name)
		}
	}
	return "starting"
}

func inBrackets(detail string) string {
	if detail == "" {
		return ""
	}
	return " (" + detail + ")"
}
