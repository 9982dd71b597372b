package simulator

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// held writes the held quota of one ClusterQueue, or of all.
func (s *simulation) held(queue string) {
	s.out.lines = append(s.out.lines, s.heldLines(queue)...)
}

// heldNow writes the held quota in the middle of a run.
func (s *simulation) heldNow(queue string) {
	if queue != "" && s.objects.clusterQueues[queue] == nil {
		s.say("ignore held %s: there is no such ClusterQueue", queue)
		return
	}
	for _, line := range s.heldLines(queue) {
		s.say("%s", line)
	}
}

func (s *simulation) heldLines(queue string) []string {
	var lines []string
	for _, name := range sorted(s.objects.clusterQueues) {
		if queue != "" && queue != name {
			continue
		}
		view, _ := s.engine.ClusterQueue(name)
		borrowed := borrowedIn(&view)
		for _, g := range s.objects.clusterQueues[name].Spec.ResourceGroups {
			for i := range g.Flavors {
				for k := range g.Flavors[i].Resources {
					fr := flavorResource{g.Flavors[i].Name, g.Flavors[i].Resources[k].Name}
					lines = append(lines, s.heldLine(name, fr, g.Flavors[i].Resources[k].NominalQuota, borrowed[fr]))
				}
			}
		}
	}
	return lines
}

type flavorResource struct {
	flavor   kueue.ResourceFlavorReference
	resource corev1.ResourceName
}

func borrowedIn(view *admission.ClusterQueueView) map[flavorResource]resource.Quantity {
	borrowed := map[flavorResource]resource.Quantity{}
	for _, f := range view.FlavorsHeld {
		for i := range f.Resources {
			borrowed[flavorResource{f.Name, f.Resources[i].Name}] = f.Resources[i].Borrowed
		}
	}
	return borrowed
}

// heldLine returns a line such as held ml gpu 8/9: a/ps 2, a/train 6.
func (s *simulation) heldLine(queue string, fr flavorResource, quota, borrowed resource.Quantity) string {
	var total resource.Quantity
	var parts []string
	for _, w := range s.objects.workloads {
		amount := usage(w, queue)[fr]
		if !amount.IsZero() {
			total.Add(amount)
			parts = append(parts, fmt.Sprintf("%s %s", s.subjectOf(w), amount.String()))
		}
	}
	slices.Sort(parts)
	what := string(fr.resource)
	if fr.flavor != scenario.DefaultFlavor {
		what = string(fr.flavor) + " " + what
	}
	line := fmt.Sprintf("held %s %s %s/%s", queue, what, total.String(), quota.String())
	if !borrowed.IsZero() {
		line += ", " + borrowed.String() + " borrowed"
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	return line
}

// usage returns the quota that a quota Workload holds in a ClusterQueue, without terminated pods.
func usage(w *kueue.Workload, queue string) map[flavorResource]resource.Quantity {
	held := map[flavorResource]resource.Quantity{}
	if !quotaworkload.HoldsQuota(w) || isFinished(w) || string(w.Status.Admission.ClusterQueue) != queue {
		return held
	}
	for i := range w.Status.Admission.PodSetAssignments {
		a := &w.Status.Admission.PodSetAssignments[i]
		for name, amount := range a.ResourceUsage {
			fr := flavorResource{a.Flavors[name], name}
			sum := held[fr]
			sum.Add(stillNeeded(w, a, amount))
			held[fr] = sum
		}
	}
	return held
}

// stillNeeded subtracts the quota of reclaimable pods.
func stillNeeded(w *kueue.Workload, a *kueue.PodSetAssignment, amount resource.Quantity) resource.Quantity {
	for _, r := range w.Status.ReclaimablePods {
		if r.Name == a.Name && a.Count != nil && *a.Count > 0 {
			left := max(*a.Count-r.Count, 0)
			return *resource.NewMilliQuantity(amount.MilliValue()/int64(*a.Count)*int64(left), amount.Format)
		}
	}
	return amount
}
