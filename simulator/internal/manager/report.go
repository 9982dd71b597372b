package manager

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// Held writes the held quota of one ClusterQueue, or of all.
func (m *Manager) Held(queue string) {
	m.Lines = append(m.Lines, m.HeldLines(queue)...)
}

// HeldNow writes the held quota in the middle of a run.
func (m *Manager) HeldNow(queue string) {
	if queue != "" && m.ClusterQueues[queue] == nil {
		m.Log("ignore held %s: the ClusterQueue does not exist", queue)
		return
	}
	for _, line := range m.HeldLines(queue) {
		m.Log("%s", line)
	}
}

// HeldLines returns the lines about the held quota of one ClusterQueue, or of all.
func (m *Manager) HeldLines(queue string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(m.ClusterQueues)) {
		if queue != "" && queue != name {
			continue
		}
		view, _ := m.Engine.ClusterQueue(name)
		borrowed := borrowedIn(&view)
		for fr, of := range ledger.QuotasOf(m.ClusterQueues[name].Spec.ResourceGroups) {
			lines = append(lines, m.heldLine(name, fr, of.NominalQuota, borrowed[fr]))
		}
	}
	return lines
}

func borrowedIn(view *admission.ClusterQueueView) map[quota.FlavorResource]resource.Quantity {
	borrowed := map[quota.FlavorResource]resource.Quantity{}
	for _, f := range view.FlavorsHeld {
		for i := range f.Resources {
			borrowed[quota.FlavorResource{Flavor: f.Name, Resource: f.Resources[i].Name}] = f.Resources[i].Borrowed
		}
	}
	return borrowed
}

// heldLine returns a line such as held ml gpu 8/9: a/ps 2, a/train 6.
func (m *Manager) heldLine(queue string, fr quota.FlavorResource, nominal, borrowed resource.Quantity) string {
	var total resource.Quantity
	var parts []string
	for _, w := range m.Workloads {
		if a := w.Status.Admission; a == nil || string(a.ClusterQueue) != queue {
			continue
		}
		if amount := cluster.Usage(w)[fr]; !amount.IsZero() {
			total.Add(amount)
			parts = append(parts, fmt.Sprintf("%s %s", cluster.SubjectOf(w), amount.String()))
		}
	}
	slices.Sort(parts)
	what := string(fr.Resource)
	if fr.Flavor != scenario.DefaultFlavor {
		what = string(fr.Flavor) + " " + what
	}
	line := fmt.Sprintf("held %s %s %s/%s", queue, what, total.String(), nominal.String())
	if !borrowed.IsZero() {
		line += ", " + borrowed.String() + " borrowed"
	}
	if len(parts) > 0 {
		line += ": " + strings.Join(parts, ", ")
	}
	return line
}

// Explain prints why the stages of a job wait.
func (m *Manager) Explain(t scenario.Target) {
	j := m.Named(t)
	if j == nil {
		m.Log("ignore explain %s: it is not submitted yet", t)
		return
	}
	for _, w := range m.WorkloadsOf(j) {
		if !m.Concerns(t, w) {
			continue
		}
		refusals := m.Engine.Explain(cluster.KeyOf(w))
		for _, refusal := range refusals {
			m.Log("explain %s %s", cluster.SubjectOf(w), refusal)
		}
		if len(refusals) == 0 {
			m.Log("explain %s: %s", cluster.SubjectOf(w), standing(w))
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
