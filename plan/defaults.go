package plan

import (
	"cmp"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/snapshot"
)

// setDefaults sets the defaults of the CustomResourceDefinitions, so that a field that a manifest leaves out equals its default.
func setDefaults(object snapshot.Object) {
	switch o := object.(type) {
	case *kueue.ClusterQueue:
		setClusterQueueDefaults(&o.Spec)
	case *kueue.Cohort:
		setWeight(o.Spec.FairSharing)
	case *kueue.LocalQueue:
		o.Spec.StopPolicy = new(ptr.Deref(o.Spec.StopPolicy, kueue.None))
		setWeight(o.Spec.FairSharing)
	case *corev1.Namespace:
		o.Status = corev1.NamespaceStatus{}
		delete(o.Labels, corev1.LabelMetadataName)
	case *jobSet:
		setJobSetDefaults(o)
	}
}

func setClusterQueueDefaults(spec *kueue.ClusterQueueSpec) {
	spec.QueueingStrategy = cmp.Or(spec.QueueingStrategy, kueue.BestEffortFIFO)
	spec.StopPolicy = new(ptr.Deref(spec.StopPolicy, kueue.None))
	if spec.FlavorFungibility == nil {
		spec.FlavorFungibility = &kueue.FlavorFungibility{}
	}
	spec.FlavorFungibility.WhenCanBorrow = cmp.Or(spec.FlavorFungibility.WhenCanBorrow, kueue.MayStopSearch)
	spec.FlavorFungibility.WhenCanPreempt = cmp.Or(spec.FlavorFungibility.WhenCanPreempt, kueue.TryNextFlavor)
	if spec.Preemption == nil {
		spec.Preemption = &kueue.ClusterQueuePreemption{}
	}
	p := spec.Preemption
	p.ReclaimWithinCohort = cmp.Or(p.ReclaimWithinCohort, kueue.PreemptionPolicyNever)
	p.WithinClusterQueue = cmp.Or(p.WithinClusterQueue, kueue.PreemptionPolicyNever)
	if p.BorrowWithinCohort == nil {
		p.BorrowWithinCohort = &kueue.BorrowWithinCohort{}
	}
	p.BorrowWithinCohort.Policy = cmp.Or(p.BorrowWithinCohort.Policy, kueue.BorrowWithinCohortPolicyNever)
	setWeight(spec.FairSharing)
}

func setWeight(f *kueue.FairSharing) {
	if f != nil && f.Weight == nil {
		f.Weight = resource.NewQuantity(1, resource.DecimalSI)
	}
}

// setJobSetDefaults sets the defaults of the JobSet controller's webhook that decide admission.
func setJobSetDefaults(js *jobSet) {
	for i := range js.Spec.ReplicatedJobs {
		spec := &js.Spec.ReplicatedJobs[i].Template.Spec
		spec.CompletionMode = new(ptr.Deref(spec.CompletionMode, batchv1.IndexedCompletion))
		spec.Template.Spec.RestartPolicy = cmp.Or(spec.Template.Spec.RestartPolicy, corev1.RestartPolicyOnFailure)
	}
}
