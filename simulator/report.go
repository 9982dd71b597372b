package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// held writes the held quota of one ClusterQueue, or of all.
func (s *simulation) held(queue string) {
	s.Lines = append(s.Lines, s.heldLines(queue)...)
}

// heldNow writes the held quota in the middle of a run.
func (s *simulation) heldNow(queue string) {
	if queue != "" && s.ClusterQueues[queue] == nil {
		s.Log("ignore held %s: the ClusterQueue does not exist", queue)
		return
	}
	for _, line := range s.heldLines(queue) {
		s.Log("%s", line)
	}
}

func (s *simulation) heldLines(queue string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(s.ClusterQueues)) {
		if queue != "" && queue != name {
			continue
		}
		view, _ := s.Engine.ClusterQueue(name)
		borrowed := borrowedIn(&view)
		for _, g := range s.ClusterQueues[name].Spec.ResourceGroups {
			for i := range g.Flavors {
				for k := range g.Flavors[i].Resources {
					fr := cluster.FlavorResource{Flavor: g.Flavors[i].Name, Resource: g.Flavors[i].Resources[k].Name}
					lines = append(lines, s.heldLine(name, fr, g.Flavors[i].Resources[k].NominalQuota, borrowed[fr]))
				}
			}
		}
	}
	return lines
}

func borrowedIn(view *admission.ClusterQueueView) map[cluster.FlavorResource]resource.Quantity {
	borrowed := map[cluster.FlavorResource]resource.Quantity{}
	for _, f := range view.FlavorsHeld {
		for i := range f.Resources {
			borrowed[cluster.FlavorResource{Flavor: f.Name, Resource: f.Resources[i].Name}] = f.Resources[i].Borrowed
		}
	}
	return borrowed
}

// heldLine returns a line such as held ml gpu 8/9: a/ps 2, a/train 6.
func (s *simulation) heldLine(queue string, fr cluster.FlavorResource, quota, borrowed resource.Quantity) string {
	var total resource.Quantity
	var parts []string
	for _, w := range s.Workloads {
		amount := cluster.Usage(w, queue)[fr]
		if !amount.IsZero() {
			total.Add(amount)
			parts = append(parts, fmt.Sprintf("%s %s", cluster.SubjectOf(w), amount.String()))
		}
	}
	slices.Sort(parts)
	what := string(fr.Resource)
	if fr.Flavor != scenario.DefaultFlavor {
		what = string(fr.Flavor) + " " + what
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

// explain prints why the stages of a job wait.
func (s *simulation) explain(t scenario.Target) {
	j := s.Named(t)
	if j == nil {
		s.ignore("explain", t, "it is not submitted yet")
		return
	}
	for _, w := range s.WorkloadsOf(j) {
		if !s.Concerns(t, w) {
			continue
		}
		refusals := s.Engine.Explain(cluster.KeyOf(w))
		for _, refusal := range refusals {
			s.Log("explain %s %s", cluster.SubjectOf(w), refusal)
		}
		if len(refusals) == 0 {
			s.Log("explain %s: %s", cluster.SubjectOf(w), standing(w))
		}
	}
}

// standing describes the state of a quota Workload that no check refuses.
func standing(w *kueue.Workload) string {
	switch {
	case cluster.IsFinished(w):
		return "it has finished"
	case quotaworkload.HoldsQuota(w):
		return fmt.Sprintf("it holds quota in %s", w.Status.Admission.ClusterQueue)
	}
	return "all checks pass"
}
