package podgroup

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/device"
)

// Devices are the objects by which the device claims of pods of one namespace are charged.
type Devices struct {
	Mapping device.Mapping
	// Claims are the ResourceClaims, and Templates the ResourceClaimTemplates, by name.
	Claims    map[string]device.Claim
	Templates map[string]struct{}
}

// Charge returns pods that have the charges of their devices as overhead, and no resource claims. If a ResourceClaim has not been created, or
// cannot be charged, the pod is returned with its claims, and asks for no quota. The problem, if there is one, is that of the oldest waiting pod:
// it does not depend on the order of the pods, which changes between reads.
func (d *Devices) Charge(pods []*corev1.Pod) ([]*corev1.Pod, Problems) {
	var problems Problems
	all := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range slices.SortedFunc(slices.Values(pods), byAge) {
		charged, problem := d.Mapping.ChargePod(pod, d.Claims)
		all = append(all, charged)
		if problem == nil || !IsWaiting(pod) || len(problems) > 0 {
			continue
		}
		_, isPossible := d.Templates[problem.Template]
		switch {
		case problem.IsMissing && isPossible:
		case problem.IsMissing || problem.IsUnmapped:
			addf(&problems, "pod %q: %s", pod.Name, problem.Message)
		default:
			addf(&problems, "pod %q: %s; then recreate the pod", pod.Name, problem.Message)
		}
	}
	return all, problems
}
