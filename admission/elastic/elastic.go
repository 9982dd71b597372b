// Package elastic divides the pods of a stage that grows and shrinks among the quota Workloads which pay for them: its own, and those
// of its growths. What is held is never taken back here, only found not to be needed:
//
//	train(5 pods wanted)  quota Workload: 3  growth 1: 2 waits     the Jobs run with 3 pods
//	train(5 pods wanted)  quota Workload: 3  growth 1: 2 admitted  the Jobs run with 5
//	train(4 pods wanted)  quota Workload: 3  growth 1: 2 - 1       the Jobs run with 4
//
// The newest growth is given up first. The controllers on a cluster and the simulator on virtual time write what follows from it.
package elastic

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/life"
)

// A Size says how many pods each Job of a pod set has, and who pays for them.
type Size struct {
	// Want is how many the JobSet asks for, and Now how many there is admitted quota for.
	Want, Now int32
	// First is how many a held Job begins with: Now, but for growths that ask for something that is not yet in its pod template.
	First int32
	// Base is for how many the quota Workload of the stage pays, Growths for how many each growth does, or asks, and Missing for how
	// many nobody does.
	Base    int32
	Growths []int32
	Missing int32
	// Live is how many Jobs need them.
	Live int32
}

// A Growth is what one growth can do for a pod set.
type Growth struct {
	// HoldsQuota tells whether it holds quota, and Held for how many pods of each Job. One that does not asks for what is missing.
	HoldsQuota bool
	Held       int32
	// MayRun tells whether pods may run on what it holds, and MayBegin whether a held Job may begin with them.
	MayRun, MayBegin bool
}

// Fixed is the size of a pod set that nobody has ever changed.
func Fixed(want, live int32, growths int) Size {
	return Size{Want: want, Now: want, First: want, Base: want, Growths: make([]int32, growths), Live: live}
}

// Divide finds out who pays for the pods of each of the live Jobs: first the quota Workload of the stage, which can pay for base of them,
// and then the growths, the oldest first. Of those that wait, the oldest asks for all that is missing.
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

// Charged is for how many pods of a pod set a quota Workload asks, or the default where it does not say. While it holds quota it is no
// more than it was admitted for, together with those that were reclaimable then: what it asks for may have changed while it was being
// admitted.
func Charged(workload *kueue.Workload, podSet string, orElse int32) int32 {
	name := kueue.NewPodSetReference(podSet)
	i := slices.IndexFunc(workload.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
	if i < 0 {
		return orElse
	}
	asked := workload.Spec.PodSets[i].Count
	if !life.HoldsQuota(workload) {
		return asked
	}
	for _, assignment := range workload.Status.Admission.PodSetAssignments {
		if assignment.Name == name && assignment.Count != nil {
			return min(asked, *assignment.Count+Reclaimable(workload, podSet))
		}
	}
	return asked
}

// Reclaimable is how many pods of a pod set a quota Workload says it does not need any more.
func Reclaimable(workload *kueue.Workload, podSet string) int32 {
	name := kueue.NewPodSetReference(podSet)
	for _, pods := range workload.Status.ReclaimablePods {
		if pods.Name == name {
			return pods.Count
		}
	}
	return 0
}

// Held is for how many pods of a pod set a quota Workload still holds quota.
func Held(workload *kueue.Workload, podSet string) int32 {
	return max(0, Charged(workload, podSet, 0)-Reclaimable(workload, podSet))
}

// Flavors lists the flavors on which the pods of an admitted quota Workload run, for the annotation by which its growths stay there.
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
