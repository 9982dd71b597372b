package model

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/quota"
)

// isLedBy reports whether an engine admits in a ClusterQueue. It is false before the cohort trees are known.
func (q *ClusterQueue) isLedBy(leader queuespec.Leader) bool {
	return q.CohortTree != nil && q.CohortTree.Leader == leader
}

// Decides reports whether this Engine decides about stages that hold quota in a ClusterQueue.
func (q *ClusterQueue) Decides() bool { return q.isLedBy(queuespec.Tranche) }

// leader returns who admits in the cohort tree of the ClusterQueue, unless another ClusterQueue of it is Kueue's.
func (q *ClusterQueue) leader(byDefault queuespec.Leader) queuespec.Leader {
	if q.IsTaken {
		return queuespec.Tranche
	}
	return byDefault
}

// awaitsVerdict reports whether another engine has reserved quota for a stage that has not been judged yet: an AdmissionCheck of this manager
// applies to its flavors, and is not Ready.
func (m *Model) awaitsVerdict(s *Stage) bool {
	if s.Reservation == nil || s.IsApproved || !s.Reservation.ClusterQueue.isLedBy(queuespec.Kueue) {
		return false
	}
	return slices.ContainsFunc(s.Reservation.ClusterQueue.SafetyChecks(m.Checks), func(rule kueue.AdmissionCheckStrategyRule) bool {
		applies := func(c quota.Charge) bool { return queuespec.AppliesTo(rule, m.Tree.Index.Name(c.ID).Flavor) }
		return (len(rule.OnFlavors) == 0 || slices.ContainsFunc(s.Reservation.Usage, applies)) && !slices.Contains(s.ReadyChecks, rule.Name)
	})
}

// RefreshJudged updates the stages that await a verdict, or no longer do, because of the leader of their cohort tree or of its checks.
func (m *Model) RefreshJudged() {
	var changed []*Stage
	for _, s := range m.Stages {
		if now := m.EntryOf(s); s.Entry.IsUnjudged != now.IsUnjudged {
			changed = append(changed, s)
		}
	}
	slices.SortFunc(changed, CompareStages)
	for _, s := range changed {
		m.SetEntry(s, m.EntryOf(s))
		if j := m.JobSets[s.OwnerUID]; j != nil {
			m.UpdateJobSet(j)
		}
	}
}

// An OpeningTopic is a change after which a stage that must not open may be asked about again: one of a topic of a cohort tree, or of a LocalQueue.
type OpeningTopic struct {
	Tree       *CohortTree
	ID         quota.ID
	LocalQueue types.NamespacedName
}

func (sc *Schedule) wakeUnopened(g *CohortTree, topic quota.ID) {
	sc.Unopened.Wake(OpeningTopic{Tree: g, ID: topic})
}
