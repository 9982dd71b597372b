package manager

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A flavorSum is an amount of each resource of each flavor.
type flavorSum map[cluster.FlavorResource]resource.Quantity

// add adds the quota that a quota Workload holds in a ClusterQueue.
func (f flavorSum) add(w *kueue.Workload, queue string) {
	for fr, amount := range cluster.Usage(w, queue) {
		sum := f[fr]
		sum.Add(amount)
		f[fr] = sum
	}
}

// Audit compares the engine's charges with the objects: quota that is held is charged, once, and no other quota is (I4, I5). It computes
// the charges from the objects alone, each of which it reads once.
func (m *Manager) Audit() {
	if m.IsQuiet {
		return
	}
	m.reportViolations()
	held := m.heldByQueue()
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
func (m *Manager) wrongCharges(queue string, held flavorSum) (wrong []string) {
	view, ok := m.Engine.ClusterQueue(queue)
	if !ok {
		return []string{"I5: the engine does not know ClusterQueue " + queue}
	}
	for _, f := range view.FlavorsHeld {
		for i := range f.Resources {
			fr := cluster.FlavorResource{Flavor: f.Name, Resource: f.Resources[i].Name}
			if want, charged := held[fr], f.Resources[i].Total; charged.Cmp(want) != 0 {
				wrong = append(wrong, fmt.Sprintf("I4: the engine charges %s %s of flavor %s in ClusterQueue %s, and %s are held",
					charged.String(), fr.Resource, fr.Flavor, queue, want.String()))
			}
		}
	}
	return wrong
}

// heldByQueue adds up the quota that is held in each ClusterQueue.
func (m *Manager) heldByQueue() map[string]flavorSum {
	all := map[string]flavorSum{}
	for _, w := range m.Workloads {
		if w.Status.Admission == nil {
			continue
		}
		queue := string(w.Status.Admission.ClusterQueue)
		if all[queue] == nil {
			all[queue] = flavorSum{}
		}
		all[queue].add(w, queue)
	}
	return all
}

// AuditAdmission checks whether the last admission fitted (I1): in its ClusterQueue, and in the cohort tree of that. The engine's own
// invariants cover lending limits inside the tree.
func (m *Manager) AuditAdmission(w *kueue.Workload) {
	if m.IsQuiet {
		return
	}
	name := string(w.Status.Admission.ClusterQueue)
	q := m.ClusterQueues[name]
	if q == nil {
		m.ReportViolation("I1: %s is admitted in ClusterQueue %s, which does not exist", cluster.KeyOf(w), name)
		return
	}
	held := m.heldByQueue()
	for fr, amount := range cluster.Usage(w, name) {
		if amount.IsZero() {
			continue
		}
		sum := held[name][fr]
		if limit, limited := limitOf(q, fr); limited && sum.Cmp(limit) > 0 {
			m.ReportViolation("I1: ClusterQueue %s holds %s %s of flavor %s, and may hold %s", name, sum.String(), fr.Resource, fr.Flavor, limit.String())
		}
		if q.Spec.CohortName != "" {
			m.auditTree(q, fr, held)
		}
	}
}

// limitOf returns the most that a ClusterQueue may hold of its own and borrowed quota, if there is a limit.
func limitOf(q *kueue.ClusterQueue, fr cluster.FlavorResource) (limit resource.Quantity, limited bool) {
	quota := quotaOf(q.Spec.ResourceGroups, fr)
	if quota == nil {
		return limit, true
	}
	limit = quota.NominalQuota.DeepCopy()
	if q.Spec.CohortName == "" {
		return limit, true
	}
	if quota.BorrowingLimit == nil {
		return limit, false
	}
	limit.Add(*quota.BorrowingLimit)
	return limit, true
}

func quotaOf(groups []kueue.ResourceGroup, fr cluster.FlavorResource) *kueue.ResourceQuota {
	for _, g := range groups {
		for i := range g.Flavors {
			for k := range g.Flavors[i].Resources {
				if r := &g.Flavors[i].Resources[k]; g.Flavors[i].Name == fr.Flavor && r.Name == fr.Resource {
					return r
				}
			}
		}
	}
	return nil
}

// auditTree compares the quota that all ClusterQueues below one root hold with the sum of all quotas there.
func (m *Manager) auditTree(q *kueue.ClusterQueue, fr cluster.FlavorResource, byQueue map[string]flavorSum) {
	root := m.rootOf(q.Spec.CohortName)
	var held, quota resource.Quantity
	for name, member := range m.ClusterQueues {
		if member.Spec.CohortName == "" || m.rootOf(member.Spec.CohortName) != root {
			continue
		}
		held.Add(byQueue[name][fr])
		if r := quotaOf(member.Spec.ResourceGroups, fr); r != nil {
			quota.Add(r.NominalQuota)
		}
	}
	for name, cohort := range m.Cohorts {
		if r := quotaOf(cohort.Spec.ResourceGroups, fr); r != nil && m.rootOf(kueue.CohortReference(name)) == root {
			quota.Add(r.NominalQuota)
		}
	}
	if held.Cmp(quota) > 0 {
		m.ReportViolation("I1: the tree of Cohort %s holds %s %s of flavor %s, and has %s", root, held.String(), fr.Resource, fr.Flavor, quota.String())
	}
}

// rootOf follows parents to the root. In a cycle it stops after as many steps as there are Cohorts.
func (m *Manager) rootOf(name kueue.CohortReference) kueue.CohortReference {
	for range m.Cohorts {
		c := m.Cohorts[string(name)]
		if c == nil || c.Spec.ParentName == "" {
			return name
		}
		name = c.Spec.ParentName
	}
	return name
}
