package manager

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// Audit compares the engine's charges with the objects: quota that is held is charged, once, and no other quota is (I4, I5). It computes
// the charges from the objects alone, each of which it reads once.
func (m *Manager) Audit() {
	if m.IsQuiet {
		return
	}
	m.reportViolations()
	held := ledger.TotalsOf(maps.Values(m.Workloads))
	var wrong []string
	for name := range m.ClusterQueues {
		wrong = append(wrong, m.wrongCharges(name, held[name])...)
	}
	slices.Sort(wrong)
	for _, violation := range wrong {
		m.ReportViolation("%s", violation)
	}
}

// wrongCharges compares the engine's charges in a ClusterQueue with the quota that is held there.
func (m *Manager) wrongCharges(queue string, held ledger.Sum) (wrong []string) {
	view, ok := m.Engine.ClusterQueue(queue)
	if !ok {
		return []string{"I5: the engine does not know ClusterQueue " + queue}
	}
	for _, f := range view.FlavorsHeld {
		for i := range f.Resources {
			fr := quota.FlavorResource{Flavor: f.Name, Resource: f.Resources[i].Name}
			if charged := f.Resources[i].Total; ledger.Milli(charged) != held[fr] {
				wrong = append(wrong, fmt.Sprintf("I4: the engine charges %s %s of flavor %s in ClusterQueue %s, and %s are held",
					charged.String(), fr.Resource, fr.Flavor, queue, inUnits(held[fr])))
			}
		}
	}
	return wrong
}

func inUnits(thousandths int64) string {
	return resource.NewMilliQuantity(thousandths, resource.DecimalSI).String()
}

// AuditAdmission checks whether the last admission fitted (I1): in its ClusterQueue, and in the cohort tree of that.
func (m *Manager) AuditAdmission(w *kueue.Workload) {
	if m.IsQuiet {
		return
	}
	name := string(w.Status.Admission.ClusterQueue)
	if m.ClusterQueues[name] == nil {
		m.ReportViolation("I1: %s is admitted in ClusterQueue %s, which does not exist", cluster.KeyOf(w), name)
		return
	}
	held, quotas := ledger.TotalsOf(maps.Values(m.Workloads)), ledger.Quotas{ClusterQueues: m.ClusterQueues, Cohorts: m.Cohorts}
	added := ledger.Sum{}
	added.Add(w)
	for fr, amount := range added {
		e := quotas.Exceeded(name, fr, held.Of(fr))
		if e == nil || amount == 0 {
			continue
		}
		text := "I1: %s %s holds %s %s of flavor %s, and may hold %s"
		if e.Kind == visibility.Cohort {
			text = "I1: the tree of %s %s holds %s %s of flavor %s, and has %s"
		}
		m.ReportViolation(text, e.Kind, e.Name, inUnits(e.Reserved), fr.Resource, fr.Flavor, inUnits(e.Limit))
	}
}
