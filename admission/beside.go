package admission

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/model"
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
// this Engine leads every stage may open, since the Engine itself decides when it is admitted. The plan of the JobSet must have been observed.
func (e *Engine) MayOpen(r OpenRequest) Answer {
	e.model.RebuildTrees()
	j, lq := e.model.JobSets[r.JobSet], e.model.LocalQueues[r.LocalQueue]
	if j == nil || !j.IsKnown() || r.Stage < 0 || r.Stage >= len(j.Plan.Stages) || lq == nil {
		return Answer{IsSafe: true}
	}
	q := e.model.ClusterQueues[lq.ClusterQueue]
	if q == nil || q.CohortTree == nil || q.Decides() {
		return Answer{IsSafe: true}
	}
	refusal := e.judge.MayOpen(j, r.Stage, q)
	e.Verify()
	if refusal != nil {
		return Answer{Message: refusal.Message}
	}
	return Answer{IsSafe: true}
}

// Judge answers whether the quota that another engine has reserved for a quota Workload is safe. A safe reservation counts as held from then on, for
// all later questions, until an observation of the quota Workload says otherwise or Retract is called. It is not ok if the Engine has not observed a
// reservation to be judged: then there is nothing to write. A quota Workload that is no stage of a JobSet is always safe.
//
// pending are the AdmissionChecks to be answered. If the Engine has not observed all of them in the ClusterQueue yet, it is not ok: ask again then.
func (e *Engine) Judge(key StageKey, uid types.UID, pending ...kueue.AdmissionCheckReference) (answer Answer, ok bool) {
	e.model.RebuildTrees()
	s := e.model.Stages[key]
	if s == nil || s.UID != uid || s.Reservation == nil || s.IsEvicted || s.IsFinished || !e.judge.Knows(s.Reservation.ClusterQueue, pending) {
		return Answer{}, false
	}
	defer e.Verify()
	j := e.model.JobSets[s.OwnerUID]
	if j == nil || !j.IsKnown() {
		e.judge.Approve(s)
		return Answer{IsSafe: true}, true
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

// Woken returns the owners of stages that MayOpen has kept closed, or Judge has rejected, and that may be asked about again since the last call.
func (e *Engine) Woken() []Owner { return e.judge.Woken() }

// Unprotected returns why JobSets in a LocalQueue must not hold quota while they wait for more, and what an administrator can change, or nothing if
// they may: stages of these JobSets are admitted together. JobSets under policy Greedy may deadlock, and stages that hold nothing while they wait are
// not affected.
func (e *Engine) Unprotected(jobSet types.UID, localQueue types.NamespacedName) string {
	e.model.RebuildTrees()
	lq := e.model.LocalQueues[localQueue]
	if lq == nil {
		return ""
	}
	q := e.model.ClusterQueues[lq.ClusterQueue]
	if q == nil || !q.Exists || q.CohortTree == nil || q.Decides() {
		return ""
	}
	return e.judge.Unprotected(e.model.JobSets[jobSet], q)
}

const (
	// LedByTranche is the Leader of cohort trees in which the Engine admits.
	LedByTranche = model.Tranche
	// LedByKueue is the Leader of cohort trees in which Kueue's scheduler admits.
	LedByKueue = model.Kueue
)
