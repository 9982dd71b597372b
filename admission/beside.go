package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
)

// An OpenRequest asks whether a stage may open in a ClusterQueue where another engine admits.
type OpenRequest struct {
	// JobSet is the UID of the JobSet, and Stage the index of the stage in its plan.
	JobSet types.UID
	Stage  int
	// LocalQueue is where the quota Workload of the stage is queued.
	LocalQueue types.NamespacedName
}

// An Answer says whether a stage is safe, and why not.
type Answer struct {
	IsSafe bool
	// Message is empty if the stage is safe.
	Message string
}

// MayOpen reports whether the gate of a stage may be removed: whether every JobSet that holds quota could still finish if the stage were admitted
// now. It is for stages whose gate is set. If the stage must not open, Woken returns its JobSet when that may have changed. In a cohort tree that
// this Engine leads every stage may open, since the Engine itself decides when it is admitted. Where another engine may lead, no stage of a staged
// JobSet opens before its plan, its LocalQueue and its ClusterQueue have been observed.
func (e *Engine) MayOpen(r OpenRequest) Answer {
	e.model.RebuildTrees()
	defer e.Verify()
	j := e.model.JobSets[r.JobSet]
	if j == nil || !j.IsKnown() || r.Stage < 0 || r.Stage >= len(j.Plan.Stages) {
		return Answer{Message: "the manager does not know the plan of the stage yet: the JobSet is being deleted, or was changed"}
	}
	lq, q, missing := e.openQueues(r.LocalQueue)
	if missing != "" {
		if len(j.Plan.Stages) == 1 {
			return Answer{IsSafe: true} // it never waits while it holds quota, and the other engine reports what is missing
		}
		e.judge.AwaitQueue(j, r.LocalQueue)
		return Answer{Message: missing}
	}
	if q.Decides() || keepsQuota(j, r.Stage) {
		return Answer{IsSafe: true}
	}
	if refusal := e.judge.MayOpen(j, r.Stage, lq, q); refusal != nil {
		return Answer{Message: refusal.Message}
	}
	return Answer{IsSafe: true}
}

// keepsQuota reports whether a stage holds quota that it has kept through a restart of its JobSet: what is held stays the same if it opens again.
func keepsQuota(j *model.JobSet, stage int) bool {
	return j.Members.Has(func(s *model.Stage) bool { return s.Index == stage && !s.IsGrowth && s.Entry.Counts() })
}

// openQueues returns a LocalQueue and its ClusterQueue, or which of them is missing and what to do.
func (e *Engine) openQueues(key types.NamespacedName) (lq *model.LocalQueue, q *model.ClusterQueue, missing string) {
	if lq = e.model.LocalQueues[key]; lq == nil || !lq.Exists {
		return nil, nil, fmt.Sprintf("LocalQueue %q does not exist in namespace %q: create it, or submit the JobSet again to another LocalQueue", key.Name, key.Namespace)
	}
	if q = e.model.ClusterQueues[lq.ClusterQueue]; q == nil || !q.Exists || q.CohortTree == nil {
		return nil, nil, fmt.Sprintf("ClusterQueue %q of LocalQueue %q does not exist: ask your administrator to create it, or submit the JobSet again to another LocalQueue",
			lq.ClusterQueue, key.Name)
	}
	return lq, q, ""
}

// Judge answers whether the quota that another engine has reserved for a quota Workload is safe. A safe reservation counts as held from then on, for
// all later questions, until an observation of the quota Workload says otherwise or Retract is called. It is not ok if the Engine has not observed a
// reservation to be judged: then there is nothing to write. A quota Workload that is no stage of a JobSet is always safe.
//
// pending are the AdmissionChecks to be answered. If the Engine has not observed all of them in the ClusterQueue yet, or not the plan of the stage, it
// is not ok: ask again then.
func (e *Engine) Judge(key StageKey, uid types.UID, pending ...kueue.AdmissionCheckReference) (answer Answer, ok bool) {
	e.model.RebuildTrees()
	s := e.model.Stages[key]
	if s == nil || s.UID != uid || s.Reservation == nil || s.IsEvicted || s.IsFinished || !e.judge.Knows(s.Reservation.ClusterQueue, pending) {
		return Answer{}, false
	}
	defer e.Verify()
	j := e.model.JobSets[s.OwnerUID]
	switch {
	case s.OwnerUID == "" || s.Reservation.ClusterQueue.Decides():
		e.judge.Approve(s)
		return Answer{IsSafe: true}, true
	case j == nil || !j.IsKnown() || s.Index < 0 || s.Index >= len(j.Plan.Stages):
		return Answer{}, false
	}
	if refusal := e.judge.Judge(s, j); refusal != nil {
		return Answer{Message: refusal.Message}, true
	}
	return Answer{IsSafe: true}, true
}

// Retract withdraws the answer of Judge that a reservation is safe, because the answer has not been written. Call it after the current state of the
// quota Workload has been observed: a check that is Ready counts.
func (e *Engine) Retract(key StageKey, uid types.UID) {
	if s := e.model.Stages[key]; s != nil && s.UID == uid {
		e.judge.Disapprove(s)
		e.Verify()
	}
}

// Revocation returns why a reservation has to be released that Judge has found safe, or that was Ready before: quota has been removed since, and the
// JobSets that hold quota cannot all finish. It is empty if the reservation may stay.
func (e *Engine) Revocation(key StageKey, uid types.UID) string {
	e.model.RebuildTrees()
	s := e.model.Stages[key]
	if s == nil || s.UID != uid || s.Revoked == "" || s.Reservation == nil {
		return ""
	}
	if q := s.Reservation.ClusterQueue; q.Bare == nil || q.Decides() || !e.model.Bank.IsStuck(q.Bare) {
		return ""
	}
	return s.Revoked
}

// Revoked returns the stages about which Decide has made a Revocation since the last call. It may be obsolete by now.
func (e *Engine) Revoked() []StageKey { return e.cycle.Revoked() }

// Woken returns the owners of stages that MayOpen has kept closed, or Judge has rejected, and that may be asked about again since the last call.
func (e *Engine) Woken() []Owner { return e.judge.Woken() }

// A Protection says whether the stages of a JobSet can be kept free of deadlocks.
type Protection struct {
	// Lacks is why the JobSet must not hold quota while it waits for more, and what an administrator can change, or empty if it may. Then its stages
	// are admitted together.
	Lacks string
	// Missing is the LocalQueue or ClusterQueue that has to exist before that is known, and what to do, or empty. Woken returns the JobSet then.
	Missing string
}

// Protection returns how a JobSet whose plan has been observed is protected in a LocalQueue. JobSets under policy Greedy may deadlock, and stages that
// hold nothing while they wait are not affected.
func (e *Engine) Protection(jobSet types.UID, localQueue types.NamespacedName) Protection {
	e.model.RebuildTrees()
	j := e.model.JobSets[jobSet]
	_, q, missing := e.openQueues(localQueue)
	switch {
	case missing != "":
		if j != nil && j.IsKnown() {
			e.judge.AwaitQueue(j, localQueue)
		}
		return Protection{Missing: missing}
	case q.Decides():
		return Protection{}
	}
	return Protection{Lacks: e.judge.Unprotected(j, q)}
}

// Leads reports whether the Engine admits where a stage is queued, so that it decides about the stage.
func (e *Engine) Leads(key StageKey) bool {
	e.model.RebuildTrees()
	s := e.model.Stages[key]
	if s == nil {
		return false
	}
	_, q, _ := e.openQueues(s.LocalQueue.Key)
	return q != nil && q.Decides()
}

const (
	// LedByTranche is the Leader of cohort trees in which the Engine admits.
	LedByTranche = queuespec.Tranche
	// LedByKueue is the Leader of cohort trees in which Kueue's scheduler admits.
	LedByKueue = queuespec.Kueue
)
