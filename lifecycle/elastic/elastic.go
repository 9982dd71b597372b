// Package elastic divides the pods of a stage that grows and shrinks among the quota Workloads which pay for them: its own, and those
// of its growths. It never releases quota itself, and only determines which quota is not needed:
//
//	train(5 pods wanted)  quota Workload: 3  growth 1: 2 waits     the Jobs run with 3 pods
//	train(5 pods wanted)  quota Workload: 3  growth 1: 2 admitted  the Jobs run with 5
//	train(4 pods wanted)  quota Workload: 3  growth 1: 2 - 1       the Jobs run with 4
//
// The newest growth is reduced first. The controllers on a cluster and the simulator on virtual time write the result.
package elastic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
)

// A Size is how many pods each Job of a pod set has, and which quota Workloads pay for them.
type Size struct {
	// Want is how many pods the JobSet asks for, and Now for how many there is admitted quota.
	Want, Now int32
	// First is the number of pods with which a held Job starts: Now, except for growths that ask for a change that is not yet in its pod
	// template.
	First int32
	// Base is for how many pods the quota Workload of the stage pays, Growths for how many each growth pays or asks, and Missing for how many no
	// quota Workload does.
	Base    int32
	Growths []int32
	Missing int32
	// Live is how many Jobs need these pods.
	Live int32
}

// A Growth is what one growth can pay for a pod set.
type Growth struct {
	// HoldsQuota is true if it holds quota, and Held is for how many pods of each Job. A growth without quota asks for the missing pods.
	HoldsQuota bool
	Held       int32
	// MayRun is true if pods may run on its quota, and MayBegin if a held Job may start with them.
	MayRun, MayBegin bool
}

// Divide computes which quota Workloads pay for the pods of each of the live Jobs: first the quota Workload of the stage, which can pay for base
// of them, and then the growths, the oldest first. Of the waiting growths, the oldest asks for all missing pods.
func Divide(want, base, live int32, growths []Growth) Size {
	base = min(want, base)
	z := Size{Want: want, Now: base, First: base, Base: base, Growths: make([]int32, len(growths)), Missing: want - base, Live: live}
	waits := false
	for k, growth := range growths {
		switch {
		case growth.HoldsQuota:
			z.Growths[k] = min(z.Missing, growth.Held)
		case !waits:
			waits, z.Growths[k] = true, z.Missing
		}
		z.Missing -= z.Growths[k]
		if growth.MayRun {
			z.Now += z.Growths[k]
		}
		if growth.MayRun && growth.MayBegin {
			z.First += z.Growths[k]
		}
	}
	return z
}

// Charged returns for how many pods of a pod set a quota Workload asks, or the default if it has no such pod set. While it holds quota the number
// is at most what it was admitted for, together with the pods that were reclaimable then: its spec may have changed while it was being admitted.
func Charged(workload *kueue.Workload, podSet string, orElse int32) int32 {
	name := kueue.NewPodSetReference(podSet)
	i := slices.IndexFunc(workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	if i < 0 {
		return orElse
	}
	asked := workload.Spec.PodSets[i].Count
	if !quotaworkload.HoldsQuota(workload) {
		return asked
	}
	for _, assignment := range workload.Status.Admission.PodSetAssignments {
		if assignment.Name == name && assignment.Count != nil {
			return min(asked, *assignment.Count+Reclaimable(workload, podSet))
		}
	}
	return asked
}

// Reclaimable returns how many pods of a pod set a quota Workload no longer needs, by its status.
func Reclaimable(workload *kueue.Workload, podSet string) int32 {
	name := kueue.NewPodSetReference(podSet)
	for _, pods := range workload.Status.ReclaimablePods {
		if pods.Name == name {
			return pods.Count
		}
	}
	return 0
}

// Held returns for how many pods of a pod set a quota Workload still holds quota.
func Held(workload *kueue.Workload, podSet string) int32 {
	return max(0, Charged(workload, podSet, 0)-Reclaimable(workload, podSet))
}

// Flavors lists the flavors on which the pods of an admitted quota Workload run, for the annotation that keeps its growths on them.
func Flavors(workload *kueue.Workload) string {
	var all []string
	for i := range workload.Status.Admission.PodSetAssignments {
		assignment := &workload.Status.Admission.PodSetAssignments[i]
		for _, name := range slices.Sorted(maps.Keys(assignment.Flavors)) {
			all = append(all, fmt.Sprintf("%s/%s=%s", assignment.Name, name, assignment.Flavors[name]))
		}
	}
	return strings.Join(all, ",")
}

// HasShrunk reports whether a quota Workload asks for more pods than the pod sets of its stage have now.
func HasShrunk(workload *kueue.Workload, podSets []stageplan.PodSet) bool {
	return slices.ContainsFunc(podSets, func(podSet stageplan.PodSet) bool { return Charged(workload, podSet.Name, 0) > podSet.Count })
}
