package shadow

import (
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
)

// assumedName is that of the queues that a replay has for JobSets that name no LocalQueue.
const assumedName = "assumed-by-shadow"

// unlimited is the quota of resources of which none is assumed.
const unlimited = math.MaxInt64 / 1_000_000

// AssumeQuota lets JobSets that name no LocalQueue be replayed in one ClusterQueue with this quota. Other resources have as much as they need.
func (r *Recorder) AssumeQuota(quota corev1.ResourceList) { r.assumed = quota }

// assume adds the assumed ClusterQueue to all versions, and its LocalQueue to the JobSets that name none.
func (r *Recorder) assume(in *replay.Input, arrivals map[types.NamespacedName]*arrival) {
	if len(r.assumed) == 0 {
		return
	}
	quota, namespaces := maps.Clone(r.assumed), map[string]bool{}
	for _, a := range arrivals {
		if a.jobSet == nil || apis.QueueNameOf(a.JobSet.Labels) != "" {
			continue
		}
		namespaces[a.JobSet.Namespace] = true
		a.JobSet = inAssumedQueue(a.JobSet)
		for i := range a.JobSet.Spec.ReplicatedJobs {
			for name := range stageplan.PodRequests(&a.JobSet.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec) {
				if _, isKnown := quota[name]; !isKnown {
					quota[name] = *resource.NewQuantity(unlimited, resource.DecimalSI)
				}
			}
		}
	}
	for i := range in.Queues {
		s := *in.Queues[i].Objects
		s.ResourceFlavors = append(slices.Clone(s.ResourceFlavors), &kueue.ResourceFlavor{ObjectMeta: assumedMeta("", in.From)})
		s.ClusterQueues = append(slices.Clone(s.ClusterQueues), assumedQueue(quota, in.From))
		s.LocalQueues = slices.Clone(s.LocalQueues)
		for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
			s.LocalQueues = append(s.LocalQueues, &kueue.LocalQueue{ObjectMeta: assumedMeta(namespace, in.From), Spec: kueue.LocalQueueSpec{ClusterQueue: assumedName}})
		}
		in.Queues[i].Objects = &s
	}
}

func assumedMeta(namespace string, created time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: assumedName, UID: assumedName, CreationTimestamp: metav1.NewTime(created)}
}

func inAssumedQueue(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	queued := *js
	queued.Labels = maps.Clone(js.Labels)
	metav1.SetMetaDataLabel(&queued.ObjectMeta, apis.QueueLabel, assumedName)
	return &queued
}

func assumedQueue(quota corev1.ResourceList, created time.Time) *kueue.ClusterQueue {
	group := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: assumedName}}}
	for _, name := range slices.Sorted(maps.Keys(quota)) {
		group.CoveredResources = append(group.CoveredResources, name)
		group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: name, NominalQuota: quota[name]})
	}
	return &kueue.ClusterQueue{ObjectMeta: assumedMeta("", created), Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{}, ResourceGroups: []kueue.ResourceGroup{group},
	}}
}
