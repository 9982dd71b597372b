package dashboard

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// A JobSetState is what a JobSet does.
type JobSetState string

// The states of JobSets.
const (
	// JobSetUnqueued is the state of a JobSet without a queue.
	JobSetUnqueued JobSetState = "Unqueued"
	// JobSetWaiting is the state of one with an open stage that is not admitted.
	JobSetWaiting JobSetState = "Waiting"
	// JobSetAdmitted is the state of one whose open stages are all admitted.
	JobSetAdmitted JobSetState = "Admitted"
	// JobSetSuspended is the state of one that its user has suspended.
	JobSetSuspended JobSetState = "Suspended"
	// JobSetFinished is the state of one that has completed, and JobSetFailed that of one that has failed.
	JobSetFinished JobSetState = "Finished"
	JobSetFailed   JobSetState = "Failed"
)

// JobSetStates returns all states of JobSets.
func JobSetStates() []JobSetState {
	return []JobSetState{JobSetUnqueued, JobSetWaiting, JobSetAdmitted, JobSetSuspended, JobSetFinished, JobSetFailed}
}

// A jobSet has the facts of a JobSet.
type jobSet struct {
	key             types.NamespacedName
	uid             types.UID
	queue           string
	created         time.Time
	state           JobSetState
	reason, message string
	progress        string
	restarts        int32

	// Derived: the place in the list, and the group of its quota Workloads.
	attention attention
	since     time.Time
	owner     *owner
	// start is the expected start of the first waiting stage, or zero.
	start change
}

func (m *Model) observeJobSet(object *jobsetapi.JobSet) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	js := m.jobSetsByKey[key]
	if js != nil && js.uid != object.UID {
		m.forgetJobSet(key)
		js = nil
	}
	if js != nil {
		m.jobSets.Remove(js) // its place may change
		m.changes.Remove(js.start)
		m.jobSetTotals.states[js.state]--
	} else {
		js = &jobSet{key: key, uid: object.UID, owner: m.owner(ownerKey{object.Namespace, object.UID})}
		m.jobSetsByKey[key] = js
		m.count(key.Namespace, 1)
		js.owner.isJobSet, js.owner.submitted = true, object.CreationTimestamp.Time
		m.jobSetTotals.add(js.owner.held, 1)
		m.reorder(js.owner)
	}
	js.owner.expected = expectedStartOf(object)
	js.adopt(object)
	m.jobSets.Insert(js)
	if js.start = startChangeOf(js); js.start.at != 0 {
		m.changes.Insert(js.start)
	}
	m.jobSetTotals.states[js.state]++
}

// adopt takes the facts of an object.
func (js *jobSet) adopt(object *jobsetapi.JobSet) {
	js.queue, js.created, js.restarts = string(jobsetstate.QueueOf(object)), object.CreationTimestamp.Time, object.Status.Restarts
	js.state, js.reason, js.message = stateOfJobSet(object)
	js.attention = attentionOf(js.state, js.reason)
	js.since = sinceOf(object, js.state, js.attention)
	js.progress = ""
	if c := apimeta.FindStatusCondition(object.Status.Conditions, jobsetstatus.StageInProgress); c != nil && c.Status == metav1.ConditionTrue {
		js.progress = c.Message
	}
}

func (m *Model) forgetJobSet(key types.NamespacedName) {
	js := m.jobSetsByKey[key]
	if js == nil {
		return
	}
	delete(m.jobSetsByKey, key)
	m.jobSets.Remove(js)
	m.changes.Remove(js.start)
	m.count(key.Namespace, -1)
	o := js.owner
	m.jobSetTotals.states[js.state]--
	m.jobSetTotals.add(o.held, -1)
	o.isJobSet, o.submitted, o.expected = false, time.Time{}, nil
	if len(o.members) == 0 {
		delete(m.owners, o.key)
		return
	}
	m.reorder(o)
}

// stateOfJobSet returns the state of a JobSet, with the reason and the message of its conditions.
func stateOfJobSet(js *jobsetapi.JobSet) (state JobSetState, reason, message string) {
	admitted := apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StageAdmitted)
	if admitted != nil {
		reason, message = admitted.Reason, admitted.Message
	}
	if over, outcome := jobsetstate.OutcomeOf(js); over {
		if message == "" {
			reason, message = outcome.Reason, outcome.Message
		}
		if outcome.Reason == kueue.WorkloadFinishedReasonFailed {
			return JobSetFailed, reason, message
		}
		return JobSetFinished, reason, message
	}
	switch {
	case jobsetstate.IsSuspendedByUser(js):
		return JobSetSuspended, reason, message
	case jobsetstate.QueueOf(js) == "":
		if c := apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StageInProgress); c != nil && c.Reason == kueue.WorkloadQuotaReservedReasonMisconfigured {
			reason, message = c.Reason, c.Message
		}
		return JobSetUnqueued, reason, message
	case admitted != nil && admitted.Status == metav1.ConditionTrue:
		if c := apimeta.FindStatusCondition(js.Status.Conditions, apis.PreemptionPendingCondition); c != nil && c.Status == metav1.ConditionTrue {
			reason, message = c.Type, c.Message
		}
		return JobSetAdmitted, reason, message
	}
	return JobSetWaiting, reason, message
}

// A JobSetRow is a JobSet.
type JobSetRow struct {
	Namespace    string      `json:"namespace"`
	Name         string      `json:"name"`
	Queue        string      `json:"queue,omitempty"`
	ClusterQueue string      `json:"clusterQueue,omitempty"`
	State        JobSetState `json:"state"`
	Created      time.Time   `json:"created"`
	Restarts     int32       `json:"restarts,omitempty"`
	// Progress names the stages that are open.
	Progress string `json:"progress,omitempty"`
	// Held is what its stages hold. Asks is what the first stage that is pending asks for, and WaitingSince when it began to wait.
	Held         []Amount  `json:"held,omitempty"`
	Asks         []Amount  `json:"asks,omitempty"`
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// Position counts the quota Workloads before that stage in its ClusterQueue. It is missing if not all quota Workloads could be read.
	Position *int `json:"position,omitempty"`
	// ExpectedStart is that of the first waiting stage, if the manager has written one.
	ExpectedStart *StartAnswer `json:"expectedStart,omitempty"`
	// Reason and Message are those of the condition StageAdmitted.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// totals are the states of some JobSets, and what these hold.
type totals struct {
	states map[JobSetState]int
	held   map[corev1.ResourceName]quota.Amount
}

func newTotals() totals {
	return totals{states: map[JobSetState]int{}, held: map[corev1.ResourceName]quota.Amount{}}
}

// add adds what a JobSet holds if sign is 1, and subtracts it if sign is -1.
func (t *totals) add(held map[corev1.ResourceName]quota.Amount, sign quota.Amount) {
	for name, amount := range held {
		t.held[name] = t.held[name].Plus(sign * amount)
	}
}

// present returns the states that JobSets have.
func (t *totals) present() map[JobSetState]int {
	present := map[JobSetState]int{}
	for state, n := range t.states {
		if n > 0 {
			present[state] = n
		}
	}
	return present
}

// amounts returns what is held, accelerators first.
func (t *totals) amounts() []Amount {
	held := maps.Clone(t.held)
	maps.DeleteFunc(held, func(_ corev1.ResourceName, amount quota.Amount) bool { return amount == 0 })
	return acceleratorsFirst(held)
}

func (m *Model) jobSetRow(v Viewer, js *jobSet) JobSetRow {
	row := JobSetRow{
		Namespace: js.key.Namespace, Name: js.key.Name, Queue: js.queue, ClusterQueue: v.clusterQueueFor(m.clusterQueueOf(js)), State: js.state, Created: js.created,
		Restarts: js.restarts, Progress: m.redact(v, js.progress), Reason: js.reason, Message: m.redact(v, js.message),
	}
	if o := js.owner; o != nil {
		row.Held = amountsOf(o.held)
		if w := o.firstPending(); w != nil {
			row.Asks, row.WaitingSince = w.requests, w.since
			if !m.isPartial {
				row.Position = new(w.in.Rank(w))
			}
		}
		if o.expected != nil {
			row.ExpectedStart = o.expected.answer()
		}
	}
	return row
}

// clusterQueueOf returns the ClusterQueue to which the LocalQueue of a JobSet leads.
func (m *Model) clusterQueueOf(js *jobSet) string {
	if js.queue == "" {
		return ""
	}
	if q := m.localQueues[types.NamespacedName{Namespace: js.key.Namespace, Name: js.queue}]; q != nil {
		return q.clusterQueue
	}
	return ""
}
