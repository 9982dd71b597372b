package dashboard

import (
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

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
}

func (js *jobSet) owner() ownerKey { return ownerKey{js.key.Namespace, js.uid} }

func compareJobSets(a, b *jobSet) int { return compareKeys(a.key, b.key) }

func (m *Model) observeJobSet(object *jobsetapi.JobSet) {
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	js := m.jobSetsByKey[key]
	if js != nil && js.uid != object.UID {
		m.forgetJobSet(key)
		js = nil
	}
	if js == nil {
		js = &jobSet{key: key, uid: object.UID}
		m.jobSetsByKey[key] = js
		m.jobSets.Insert(js)
		m.count(key.Namespace, 1)
		o := m.owner(js.owner())
		o.submitted = object.CreationTimestamp.Time
		m.reorder(o)
	}
	m.owner(js.owner()).expected = expectedStartOf(object)
	js.queue, js.created, js.restarts = string(jobsetstate.QueueOf(object)), object.CreationTimestamp.Time, object.Status.Restarts
	js.state, js.reason, js.message = stateOfJobSet(object)
	js.progress = ""
	if c := apimeta.FindStatusCondition(object.Status.Conditions, jobsetstatus.StageInProgress); c != nil {
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
	m.count(key.Namespace, -1)
	o := m.owner(js.owner())
	o.submitted, o.expected = time.Time{}, nil
	if len(o.members) == 0 {
		delete(m.owners, js.owner())
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
		return JobSetUnqueued, reason, message
	case admitted != nil && admitted.Status == metav1.ConditionTrue:
		if c := apimeta.FindStatusCondition(js.Status.Conditions, apis.PreemptionPendingCondition); c != nil && c.Status == metav1.ConditionTrue {
			reason, message = c.Type, c.Message
		}
		return JobSetAdmitted, reason, message
	}
	return JobSetWaiting, reason, message
}

// A JobSetFilter selects JobSets.
type JobSetFilter struct {
	// Namespace, Queue (a LocalQueue), ClusterQueue and State select exact values, and Text a part of the name.
	Namespace, Queue, ClusterQueue, Text string
	State                                JobSetState
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
	// ExpectedStart is that of the first waiting stage, if the manager has written one.
	ExpectedStart *StartAnswer `json:"expectedStart,omitempty"`
	// Reason and Message are those of the condition StageAdmitted.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// A JobSetsAnswer is a page of JobSets, and the number of those in namespaces that the viewer does not see.
type JobSetsAnswer struct {
	Page[JobSetRow]
	Hidden int `json:"hidden,omitempty"`
}

// JobSets returns a page of JobSets in the order of their names.
func (m *Model) JobSets(v Viewer, f JobSetFilter, w Window) JobSetsAnswer {
	var answer JobSetsAnswer
	f.Text = strings.ToLower(f.Text)
	convert := func(_ int, js *jobSet) JobSetRow {
		row := m.jobSetRow(v, js)
		row.Progress, row.Message = shortened(row.Progress), shortened(row.Message)
		return row
	}
	if v.seesAllJobSets() && f == (JobSetFilter{}) {
		answer.Page = pageOfList(w, m.jobSets, convert)
		return answer
	}
	matches := func(js *jobSet) bool {
		if !v.seesJobSets(js.key.Namespace) {
			answer.Hidden++
			return false
		}
		return (f.Namespace == "" || js.key.Namespace == f.Namespace) && (f.Queue == "" || js.queue == f.Queue) && (f.State == "" || js.state == f.State) &&
			(f.ClusterQueue == "" || v.clusterQueueFor(m.clusterQueueOf(js)) == f.ClusterQueue) && strings.Contains(js.key.Name, f.Text)
	}
	answer.Page = pageOf(w, m.jobSets.From(0), matches, convert)
	return answer
}

func (m *Model) jobSetRow(v Viewer, js *jobSet) JobSetRow {
	row := JobSetRow{
		Namespace: js.key.Namespace, Name: js.key.Name, Queue: js.queue, ClusterQueue: v.clusterQueueFor(m.clusterQueueOf(js)), State: js.state, Created: js.created,
		Restarts: js.restarts, Progress: m.redact(v, js.progress), Reason: js.reason, Message: m.redact(v, js.message),
	}
	if o := m.owners[js.owner()]; o != nil {
		row.Held = o.held()
		if w := o.firstPending(); w != nil {
			row.Asks, row.WaitingSince = w.requests, w.since
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
