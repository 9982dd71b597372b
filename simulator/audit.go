package simulator

import (
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// audit compares the engine's charges with the objects: quota that is held is charged, once, and no other quota is (I4, I5). It computes
// the charges from the objects alone.
func (s *simulation) audit() {
	for _, name := range sorted(s.objects.clusterQueues) {
		view, ok := s.engine.ClusterQueue(name)
		if !ok {
			s.violation("I5: the engine does not know ClusterQueue %s", name)
			continue
		}
		held := s.heldIn(name)
		for _, f := range view.FlavorsHeld {
			for i := range f.Resources {
				fr := flavorResource{f.Name, f.Resources[i].Name}
				want, charged := held[fr], f.Resources[i].Total
				if charged.Cmp(want) != 0 {
					s.violation("I4: the engine charges %s %s of flavor %s in ClusterQueue %s, and %s are held", charged.String(), fr.resource, fr.flavor, name, want.String())
				}
			}
		}
	}
}

// heldIn adds up the quota that is held in a ClusterQueue.
func (s *simulation) heldIn(queue string) map[flavorResource]resource.Quantity {
	held := map[flavorResource]resource.Quantity{}
	for _, key := range s.objects.workloadKeys() {
		for fr, amount := range usage(s.objects.workloads[key], queue) {
			sum := held[fr]
			sum.Add(amount)
			held[fr] = sum
		}
	}
	return held
}

// auditAdmission checks whether the last admission fitted (I1): in its ClusterQueue, and in the cohort tree of that. The engine's own
// invariants cover lending limits inside the tree.
func (s *simulation) auditAdmission(w *kueue.Workload) {
	name := string(w.Status.Admission.ClusterQueue)
	q := s.objects.clusterQueues[name]
	if q == nil {
		s.violation("I1: %s is admitted in ClusterQueue %s, which does not exist", keyOf(w), name)
		return
	}
	held := s.heldIn(name)
	for fr, amount := range usage(w, name) {
		if amount.IsZero() {
			continue
		}
		sum := held[fr]
		if limit, limited := limitOf(q, fr); limited && sum.Cmp(limit) > 0 {
			s.violation("I1: ClusterQueue %s holds %s %s of flavor %s, and may hold %s", name, sum.String(), fr.resource, fr.flavor, limit.String())
		}
		if q.Spec.CohortName != "" {
			s.auditTree(q, fr)
		}
	}
}

// limitOf returns the most that a ClusterQueue may hold of its own and borrowed quota, if there is a limit.
func limitOf(q *kueue.ClusterQueue, fr flavorResource) (limit resource.Quantity, limited bool) {
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

func quotaOf(groups []kueue.ResourceGroup, fr flavorResource) *kueue.ResourceQuota {
	for _, g := range groups {
		for i := range g.Flavors {
			for k := range g.Flavors[i].Resources {
				if r := &g.Flavors[i].Resources[k]; g.Flavors[i].Name == fr.flavor && r.Name == fr.resource {
					return r
				}
			}
		}
	}
	return nil
}

// auditTree compares the quota that all ClusterQueues below one root hold with the sum of all quotas there.
func (s *simulation) auditTree(q *kueue.ClusterQueue, fr flavorResource) {
	root := s.rootOf(q.Spec.CohortName)
	var held, quota resource.Quantity
	for _, name := range sorted(s.objects.clusterQueues) {
		member := s.objects.clusterQueues[name]
		if member.Spec.CohortName == "" || s.rootOf(member.Spec.CohortName) != root {
			continue
		}
		held.Add(s.heldIn(name)[fr])
		if r := quotaOf(member.Spec.ResourceGroups, fr); r != nil {
			quota.Add(r.NominalQuota)
		}
	}
	for _, name := range sorted(s.objects.cohorts) {
		if r := quotaOf(s.objects.cohorts[name].Spec.ResourceGroups, fr); r != nil && s.rootOf(kueue.CohortReference(name)) == root {
			quota.Add(r.NominalQuota)
		}
	}
	if held.Cmp(quota) > 0 {
		s.violation("I1: the tree of Cohort %s holds %s %s of flavor %s, and has %s", root, held.String(), fr.resource, fr.flavor, quota.String())
	}
}

// rootOf follows parents to the root. In a cycle it stops after as many steps as there are Cohorts.
func (s *simulation) rootOf(name kueue.CohortReference) kueue.CohortReference {
	for range s.objects.cohorts {
		c := s.objects.cohorts[string(name)]
		if c == nil || c.Spec.ParentName == "" {
			return name
		}
		name = c.Spec.ParentName
	}
	return name
}
