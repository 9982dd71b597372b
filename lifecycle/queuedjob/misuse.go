package queuedjob

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// Misuse returns what the user has to change before a Job can be queued, or "". The admission policies refuse all of this when the Job is
// created; a Job that was created while they were not installed can still have it. A prebuilt Workload of a Job that runs since then is replaced.
func Misuse(job *batchv1.Job) string {
	queue, isAdopted := job.Labels[apis.QueueLabel], IsForeign(job) && !childjob.IsHeld(job)
	switch {
	case queue == "":
		return fmt.Sprintf("the Job names no LocalQueue: set the label %s", apis.QueueLabel)
	case len(validation.IsDNS1123Subdomain(queue)) > 0:
		return fmt.Sprintf("metadata.labels: %q in %s is no name of a LocalQueue: name one that exists in the namespace of the Job", queue, apis.QueueLabel)
	case !isAdopted && (job.Labels[apis.PrebuiltWorkloadKey] != "" || job.Annotations[apis.PrebuiltWorkloadKey] != ""):
		return fmt.Sprintf("metadata: %s is not supported, because the manager makes the quota Workload of a Job: submit it again without", apis.PrebuiltWorkloadKey)
	case ptr.Deref(job.Spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName:
		return fmt.Sprintf("spec.managedBy is %q: the Job controller makes no pods for it; delete the Job and submit it again without the field", *job.Spec.ManagedBy)
	}
	return ""
}

// TakenOver returns the Workload that Kueue has made for a Job as the quota Workload of the Job, or nil if it is that already, or of another owner.
func TakenOver(job *batchv1.Job, existing *kueue.Workload) *kueue.Workload {
	if !metav1.IsControlledBy(existing, job) || existing.Labels[apis.JobLabel] == job.Name && existing.Labels[apis.JobUIDLabel] == string(job.UID) {
		return nil
	}
	after := existing.DeepCopy()
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.JobLabel, job.Name)
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.JobUIDLabel, string(job.UID))
	return after
}

// Taken returns what the user has to do if the name of the quota Workload of a Job is that of a Workload of another manager, such as one that
// Kueue has left, or "".
func Taken(job *batchv1.Job, existing *kueue.Workload) string {
	if existing.Labels[apis.JobLabel] == job.Name && existing.Labels[apis.JobUIDLabel] == string(job.UID) {
		return ""
	}
	return fmt.Sprintf("the Job has no quota Workload, because a Workload %q exists that the manager has not made, as Kueue leaves them: delete it, and "+
		"remove its finalizers if it stays", existing.Name)
}

// InsteadOfMissing returns a message that a Job keeps its priority because the class that it names now does not exist, or "" if the Job got
// its priority from that class.
func InsteadOfMissing(job *batchv1.Job, kept jobsetstate.Priority) string {
	name := job.Labels[apis.PriorityClassLabel]
	if name == "" || kept.Class != nil && kept.Class.Name == name {
		return ""
	}
	return fmt.Sprintf("Label %s names WorkloadPriorityClass %q, which does not exist: the Job keeps priority %d; create the class or name another",
		apis.PriorityClassLabel, name, kept.Value)
}
