package admission

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
)

// A localQueue exists as soon as an object names it, whether or not there is a LocalQueue object. Without one its stages are pending in the
// ClusterQueue with the empty name.
type localQueue struct {
	key          types.NamespacedName
	version      version
	exists       bool
	stop         kueue.StopPolicy
	clusterQueue string
	weight       float64
	queueTotals  queueTotals
	// isChanged is true if Changed has to return it.
	isChanged bool
	// consumed is the usage in the status when the queue was first observed; account is opened at the first Decide after that; sampled is the
	// usage for the new status.
	consumed *kueue.LocalQueueAdmissionFairSharingStatus
	account  *fairshare.Account
	sampled  *kueue.LocalQueueAdmissionFairSharingStatus
	// members are all stages that name this queue.
	members stageSet
}

func (e *Engine) localQueue(key types.NamespacedName) *localQueue {
	q := e.localQueues[key]
	if q == nil {
		q = &localQueue{key: key, stop: kueue.None, weight: 1, members: stageSet{place: placeInLocalQueue}}
		e.localQueues[key] = q
		e.clusterQueue("")
	}
	return q
}

func (e *Engine) observeLocalQueue(object *kueue.LocalQueue) {
	q := e.localQueue(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	v := versionOf(object.UID, object.ResourceVersion)
	if v.isOlderThan(q.version) {
		return
	}
	q.version = v
	stop := kueue.None
	if object.Spec.StopPolicy != nil {
		stop = *object.Spec.StopPolicy
	}
	clusterQueue, weight := string(object.Spec.ClusterQueue), weightOf(object.Spec.FairSharing)
	if e.decay != nil && q.account == nil {
		if f := object.Status.FairSharing; f != nil {
			q.consumed = f.AdmissionFairSharingStatus
		}
		e.unopened[q] = struct{}{}
	}
	if q.exists && q.stop == stop && q.clusterQueue == clusterQueue && q.weight == weight {
		return
	}
	q.exists, q.stop, q.clusterQueue, q.weight = true, stop, clusterQueue, weight
	e.renewLocalQueue(q)
}

func (e *Engine) loseLocalQueue(key types.NamespacedName) {
	q := e.localQueue(key)
	q.exists, q.stop, q.clusterQueue, q.weight, q.version = false, kueue.None, "", 1, version{}
	q.consumed, q.account, q.sampled = nil, nil, nil
	delete(e.unopened, q)
	e.renewLocalQueue(q)
	e.dropIfUnknown(q)
}

// dropIfUnknown forgets a queue that has neither an object nor stages. Otherwise tenants could fill the memory with names.
func (e *Engine) dropIfUnknown(q *localQueue) {
	if !q.exists && len(q.members.stages) == 0 {
		delete(e.localQueues, q.key)
	}
}

// renewLocalQueue moves the stages of a queue to the right ClusterQueue.
func (e *Engine) renewLocalQueue(q *localQueue) {
	for _, s := range q.members.stages {
		e.refresh(s)
	}
	e.wakeLine(e.clusterQueue(q.clusterQueue))
	e.noteLocalChange(q)
}

func (e *Engine) observeNamespace(name string, labels map[string]string) {
	if known, ok := e.namespaces[name]; ok == (labels != nil) && maps.Equal(known, labels) {
		return
	}
	e.namespaces[name] = labels
	if labels == nil {
		delete(e.namespaces, name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(e.localQueues), compareKeys) {
		if q := e.localQueues[key]; key.Namespace == name {
			e.wakeLine(e.clusterQueue(q.clusterQueue))
			e.reconsiderMembers(q)
		}
	}
}

// reconsiderMembers recomputes the claims of the JobSets of a LocalQueue that hold quota.
func (e *Engine) reconsiderMembers(q *localQueue) {
	for _, s := range q.members.stages {
		if j := e.jobSets[s.owner]; j != nil && j.claimQueue != nil {
			e.updateJobSet(j)
		}
	}
}

// wakeLine makes the next call of Decide check all stages of a queue.
func (e *Engine) wakeLine(q *clusterQueue) {
	q.pendingQueue.WakeAll()
	e.scheduleCycle(q)
}

const cannotSubmit = "Can't submit new workloads to clusterQueue"

// localActivity reports whether a LocalQueue leads to a ClusterQueue that takes new reservations.
func (e *Engine) localActivity(q *localQueue) Activity {
	target := e.clusterQueue(q.clusterQueue)
	switch {
	case q.stop != kueue.None:
		return Activity{metav1.ConditionFalse, "Stopped", "LocalQueue is stopped"}
	case !target.exists:
		return Activity{metav1.ConditionFalse, "ClusterQueueDoesNotExist", cannotSubmit}
	case e.activity(target).Status != metav1.ConditionTrue:
		return Activity{metav1.ConditionFalse, "ClusterQueueIsInactive", cannotSubmit}
	}
	return Activity{metav1.ConditionTrue, "Ready", "Can submit new workloads to localQueue"}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
