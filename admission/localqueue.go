package admission

import (
	"cmp"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A localQueue exists from the first time that something names it, whether or not there is an object. Without one its stages stand
// in the line of the ClusterQueue with the empty name.
type localQueue struct {
	key          types.NamespacedName
	version      version
	exists       bool
	isStopped    bool
	clusterQueue string
	ledger       ledger
	// members are all stages that name this queue.
	members map[StageKey]*stage
}

func (e *Engine) localQueue(key types.NamespacedName) *localQueue {
	q := e.localQueues[key]
	if q == nil {
		q = &localQueue{key: key, members: map[StageKey]*stage{}}
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
	stopped := object.Spec.StopPolicy != nil && *object.Spec.StopPolicy != kueue.None
	clusterQueue := string(object.Spec.ClusterQueue)
	if q.exists && q.isStopped == stopped && q.clusterQueue == clusterQueue {
		return
	}
	q.exists, q.isStopped, q.clusterQueue = true, stopped, clusterQueue
	e.renewLocalQueue(q)
}

func (e *Engine) loseLocalQueue(key types.NamespacedName) {
	q := e.localQueue(key)
	q.exists, q.isStopped, q.clusterQueue, q.version = false, false, "", version{}
	e.renewLocalQueue(q)
}

// renewLocalQueue moves the stages of a queue to where they belong now.
func (e *Engine) renewLocalQueue(q *localQueue) {
	for _, s := range q.members {
		e.account(s)
	}
	e.wakeAll(e.clusterQueue(q.clusterQueue))
	e.changedLocalQueues[q.key] = struct{}{}
}

func (e *Engine) observeNamespace(name string, labels map[string]string) {
	if known, ok := e.namespaces[name]; ok == (labels != nil) && maps.Equal(known, labels) {
		return
	}
	e.namespaces[name] = labels
	if labels == nil {
		delete(e.namespaces, name)
	}
	for key, q := range e.localQueues {
		if key.Namespace == name {
			e.wakeAll(e.clusterQueue(q.clusterQueue))
		}
	}
}

// activity tells whether stages may be submitted to a LocalQueue with good hope.
func (e *Engine) activity(q *localQueue) Activity {
	target := e.clusterQueue(q.clusterQueue)
	switch {
	case q.isStopped:
		return Activity{metav1.ConditionFalse, "Stopped", "Admits no quota Workloads: stopped by spec.stopPolicy"}
	case !target.exists:
		return Activity{metav1.ConditionFalse, "ClusterQueueDoesNotExist", "Admits no quota Workloads: there is no ClusterQueue " + q.clusterQueue}
	case target.activity().Status != metav1.ConditionTrue:
		return Activity{metav1.ConditionFalse, "ClusterQueueIsInactive", target.activity().Message}
	}
	return Activity{metav1.ConditionTrue, "Ready", "Can admit quota Workloads"}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
