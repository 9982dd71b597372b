package observe

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/version"
)

func (ev LocalQueueObserved) apply(o *Observer) {
	object := ev.LocalQueue
	q := o.m.LocalQueue(types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	v := version.Of(object.UID, object.ResourceVersion)
	if v.IsOlderThan(q.Version) {
		return
	}
	q.Version = v
	stop := ptr.Deref(object.Spec.StopPolicy, kueue.None)
	clusterQueue, weight := string(object.Spec.ClusterQueue), queuespec.WeightOf(object.Spec.FairSharing)
	if o.m.Decay != nil && q.Account == nil {
		if f := object.Status.FairSharing; f != nil {
			q.Consumed = f.AdmissionFairSharingStatus
		}
		o.m.Unopened[q] = struct{}{}
	}
	isTerminating := !object.DeletionTimestamp.IsZero()
	if q.Exists && q.IsTerminating == isTerminating && q.Stop == stop && q.ClusterQueue == clusterQueue && q.Weight == weight {
		return
	}
	q.Exists, q.IsTerminating, q.Stop, q.ClusterQueue, q.Weight = true, isTerminating, stop, clusterQueue, weight
	o.renewLocalQueue(q)
}

func (ev LocalQueueGone) apply(o *Observer) {
	q := o.m.LocalQueue(ev.Key)
	q.Exists, q.IsTerminating, q.Stop, q.ClusterQueue, q.Weight, q.Version = false, false, kueue.None, "", 1, version.Version{}
	q.Consumed, q.Account, q.Sampled = nil, nil, nil
	delete(o.m.Unopened, q)
	o.renewLocalQueue(q)
	o.dropIfUnknown(q)
}

// dropIfUnknown forgets a queue that has neither an object nor stages. Otherwise tenants could fill the memory with names.
func (o *Observer) dropIfUnknown(q *model.LocalQueue) {
	if !q.Exists && len(q.Members.All) == 0 {
		delete(o.m.LocalQueues, q.Key)
	}
}

// renewLocalQueue moves the stages of a queue to the right ClusterQueue.
func (o *Observer) renewLocalQueue(q *model.LocalQueue) {
	for _, s := range q.Members.All {
		o.m.Refresh(s)
	}
	o.m.Schedule.WakeQueue(o.m.ClusterQueue(q.ClusterQueue))
	o.m.Schedule.Unopened.Wake(model.OpeningTopic{LocalQueue: q.Key})
	o.m.Changes.NoteLocalChange(q)
}

func (ev NamespaceObserved) apply(o *Observer) {
	labels := map[string]string{}
	maps.Copy(labels, ev.Labels)
	o.observeNamespace(ev.Name, labels)
}

func (ev NamespaceGone) apply(o *Observer) { o.observeNamespace(ev.Name, nil) }

func (o *Observer) observeNamespace(name string, labels map[string]string) {
	if known, ok := o.m.Namespaces[name]; ok == (labels != nil) && maps.Equal(known, labels) {
		return
	}
	o.m.Namespaces[name] = labels
	if labels == nil {
		delete(o.m.Namespaces, name)
	}
	for _, key := range slices.SortedFunc(maps.Keys(o.m.LocalQueues), model.CompareKeys) {
		if q := o.m.LocalQueues[key]; key.Namespace == name {
			o.m.Schedule.WakeQueue(o.m.ClusterQueue(q.ClusterQueue))
			o.reconsiderMembers(q)
		}
	}
}

// reconsiderMembers recomputes the claims of the JobSets of a LocalQueue that hold quota.
func (o *Observer) reconsiderMembers(q *model.LocalQueue) {
	for _, s := range q.Members.All {
		if j := o.m.JobSets[s.OwnerUID]; j != nil && j.ClaimQueue != nil {
			o.m.UpdateJobSet(j)
		}
	}
}
