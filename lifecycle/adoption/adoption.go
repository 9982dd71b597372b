// Package adoption decides what is charged for objects that ran when Tranche was installed. Such an object is adopted as it is: its quota Workload
// is admitted to what its pods use, also beyond quota, and nothing of it is stopped.
package adoption

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// graceOfPolicies is how long API servers may take to enforce an admission policy that was created.
const graceOfPolicies = time.Minute

// IsOlder reports whether an object was created before the admission policies were in force that hold its kind. since is when their binding was
// created. Both times are those of the API server.
func IsOlder(object metav1.Object, since time.Time) bool {
	return object.GetCreationTimestamp().Time.Before(since.Add(graceOfPolicies))
}

// StartedOlder reports whether a Job was started before these admission policies were in force: by its controller or its user, and past all quota.
func StartedOlder(job *batchv1.Job, since time.Time) bool {
	return !ptr.Deref(job.Spec.Suspend, false) && job.Status.StartTime != nil && job.Status.StartTime.Time.Before(since.Add(graceOfPolicies))
}

// A Target is where the pods of an adopted object are charged.
type Target struct {
	// Queue is the ClusterQueue of the LocalQueue that the object names, and Flavors has those of its ResourceFlavors that exist.
	Queue   *kueue.ClusterQueue
	Flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	// Charges determine what is charged for the requests of a pod.
	Charges charge.Rules
}

// Admission returns the admission of a quota Workload for pods that run. Each resource is charged to the first flavor that the pods may use; one
// whose node labels they all select comes first, because another manager has admitted them to that one. If they may use none, the first is charged.
// Resources that the ClusterQueue does not cover are not charged.
func (t *Target) Admission(workload *kueue.Workload) *kueue.Admission {
	admission := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(t.Queue.Name)}
	for i := range workload.Spec.PodSets {
		p := &workload.Spec.PodSets[i]
		count := quotaworkload.CountOf(p, workload.Status.ReclaimablePods)
		assignment := kueue.PodSetAssignment{
			Name: p.Name, Count: &count,
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}, ResourceUsage: corev1.ResourceList{},
		}
		pod := flavor.NewPod(&p.Template.Spec)
		requests := t.Charges.Apply(stageplan.PodRequests(&p.Template.Spec))
		for g := range t.Queue.Spec.ResourceGroups {
			group := &t.Queue.Spec.ResourceGroups[g]
			chosen := t.choose(group, &p.Template.Spec, &pod)
			for _, name := range group.CoveredResources {
				amount, isCharged := amountOf(name, requests, count)
				if !isCharged || chosen == "" {
					continue
				}
				assignment.Flavors[name], assignment.ResourceUsage[name] = chosen, amount.Quantity(name)
			}
		}
		admission.PodSetAssignments = append(admission.PodSetAssignments, assignment)
	}
	return admission
}

// amountOf returns what so many pods are charged for a resource.
func amountOf(name corev1.ResourceName, requests corev1.ResourceList, pods int32) (amount quota.Amount, isCharged bool) {
	if name == corev1.ResourcePods {
		return quota.Amount(pods), true
	}
	one, requested := requests[name]
	if !requested {
		return 0, false
	}
	amount, _ = quota.Of(name, one)
	return min(amount.Times(pods), quota.MaxCharge), true
}

// choose returns the flavor of a resource group that pods use.
func (t *Target) choose(group *kueue.ResourceGroup, spec *corev1.PodSpec, pod *flavor.Pod) kueue.ResourceFlavorReference {
	keys := map[string]struct{}{}
	for i := range group.Flavors {
		if f := t.Flavors[group.Flavors[i].Name]; f != nil {
			for key := range f.Spec.NodeLabels {
				keys[key] = struct{}{}
			}
		}
	}
	var possible, selected kueue.ResourceFlavorReference
	for i := range group.Flavors {
		f := t.Flavors[group.Flavors[i].Name]
		if f == nil || flavor.New(f).Objection(pod, keys) != "" {
			continue
		}
		if possible == "" {
			possible = group.Flavors[i].Name
		}
		if selected == "" && len(f.Spec.NodeLabels) > 0 && selects(spec, f.Spec.NodeLabels) {
			selected = group.Flavors[i].Name
		}
	}
	switch {
	case selected != "":
		return selected
	case possible == "" && len(group.Flavors) > 0:
		return group.Flavors[0].Name
	}
	return possible
}

// selects reports whether pods select all of these node labels.
func selects(spec *corev1.PodSpec, labels map[string]string) bool {
	for key, value := range labels {
		if spec.NodeSelector[key] != value {
			return false
		}
	}
	return true
}

// Marked returns a copy of a quota Workload that no preemption evicts, and that asks for no quota until its admission is written.
func Marked(workload *kueue.Workload) *kueue.Workload {
	after := workload.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.AdoptedAnnotation, "true")
	if gates := quotaworkload.Gates(after); !quotaworkload.HoldsQuota(after) && !slices.Contains(gates, apis.AdoptionGate) {
		quotaworkload.SetGates(after, append(gates, apis.AdoptionGate))
	}
	return after
}

// IsMarked reports whether Marked would change nothing.
func IsMarked(workload *kueue.Workload) bool {
	return equality.Semantic.DeepEqual(Marked(workload).Annotations, workload.Annotations)
}

// IsForSamePods reports whether two quota Workloads are in the same queue and ask for the same pods.
func IsForSamePods(a, b *kueue.Workload) bool {
	isSame := func(a, b kueue.PodSet) bool {
		return a.Name == b.Name && a.Count == b.Count &&
			equality.Semantic.DeepEqual(stageplan.PodRequests(&a.Template.Spec), stageplan.PodRequests(&b.Template.Spec))
	}
	return a.Spec.QueueName == b.Spec.QueueName && slices.EqualFunc(a.Spec.PodSets, b.Spec.PodSets, isSame)
}

// Unresolved returns why no quota can be charged for an object that ran before, and what to do.
func Unresolved(kind, localQueue string, clusterQueue kueue.ClusterQueueReference) string {
	missing := fmt.Sprintf("LocalQueue %q", localQueue)
	if clusterQueue != "" {
		missing = fmt.Sprintf("ClusterQueue %q of LocalQueue %q", clusterQueue, localQueue)
	}
	return fmt.Sprintf("the %s ran before Tranche was installed and runs without quota, because %s does not exist: create it", kind, missing)
}

// NotOlder returns what to do with an object that runs without quota although admission policies were in force when it was created.
func NotOlder(kind string) string { return notHeld(kind, "runs without quota") }

// NotOlderWaiting does the same for one that is suspended.
func NotOlderWaiting(kind string) string { return notHeld(kind, "is not queued") }

func notHeld(kind, state string) string {
	return fmt.Sprintf("the %s %s: it was not held when it was created, after the admission policies were installed; delete it, and submit it again", kind, state)
}
