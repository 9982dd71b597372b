package jobsetstate

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Misuse returns what the user has to change before a JobSet can be queued, or "".
func Misuse(js *jobsetapi.JobSet) string {
	if problem := cmp.Or(MisuseOfAdopted(js), prebuiltWorkload(js)); problem != "" {
		return problem
	}
	for i := range js.Spec.ReplicatedJobs {
		if r := &js.Spec.ReplicatedJobs[i]; r.Template.Labels[apis.HoldLabel] != apis.HoldValue && !isMarked(r) {
			return fmt.Sprintf("spec.replicatedJobs[%d].template.metadata.labels: the JobSet is not held, so its Jobs start without quota:"+
				" it was created before Tranche's admission policies were in force; delete it and submit it again", i)
		}
	}
	return ""
}

// IsForeign reports whether a JobSet names a queue and none of its Jobs is held, so that it can only have been created before the admission policies.
func IsForeign(js *jobsetapi.JobSet) bool {
	isHeld := func(r jobsetapi.ReplicatedJob) bool { return r.Template.Labels[apis.HoldLabel] != "" }
	return apis.QueueNameOf(js.Labels) != "" && !slices.ContainsFunc(js.Spec.ReplicatedJobs, isHeld) && !IsMarked(js)
}

// IsMarked reports whether the manager has made a JobSet hold its Jobs that was created before the admission policies.
func IsMarked(js *jobsetapi.JobSet) bool {
	return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return isMarked(&r) })
}

func isMarked(r *jobsetapi.ReplicatedJob) bool {
	return r.Template.Spec.Template.Annotations[apis.HeldAnnotation] != ""
}

// MisuseOfSuspended does what MisuseOfAdopted does for a JobSet that was suspended when Tranche was installed. The admission policies write what its
// gangs and groups need when a JobSet is created.
func MisuseOfSuspended(js *jobsetapi.JobSet) string {
	if problem := cmp.Or(MisuseOfAdopted(js), prebuiltWorkload(js)); problem != "" {
		return problem
	}
	asks := js.Spec.GangConfig != nil || js.Spec.GroupSchedulingConfig != nil || js.Annotations[apis.GangAnnotation] != "" || js.Annotations[apis.GroupStartAnnotation] != ""
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		if ptr.Deref(r.Template.Spec.ManualSelector, false) {
			return fmt.Sprintf("spec.replicatedJobs[%d].template.spec.manualSelector is not supported in a queued JobSet: delete it, and submit it again without the field", i)
		}
		asks = asks || r.GangConfig != nil || r.Template.Annotations[apis.GangAnnotation] != "" || r.Template.Annotations[apis.GroupStartAnnotation] != ""
	}
	if asks {
		return "the JobSet asks for gangs or groups, and was created before Tranche's admission policies were in force, which prepare these: delete it and submit it again"
	}
	return ""
}

// MisuseOfAdopted does what Misuse does for a JobSet that ran when Tranche was installed, whose Jobs are not held.
func MisuseOfAdopted(js *jobsetapi.JobSet) string {
	queue, label := apis.QueueNameOf(js.Labels), apis.QueueLabel
	if own := js.Labels[apis.OwnQueueLabel]; own != "" {
		label = apis.OwnQueueLabel
		if other := js.Labels[apis.QueueLabel]; other != "" && other != own {
			return fmt.Sprintf("metadata.labels: %s is %q and %s is %q: remove one of them, or submit the JobSet again with one",
				apis.OwnQueueLabel, own, apis.QueueLabel, other)
		}
	}
	if queue == "" {
		return fmt.Sprintf("the JobSet names no LocalQueue: set the label %s", apis.QueueLabel)
	}
	if len(validation.IsDNS1123Subdomain(queue)) > 0 {
		return fmt.Sprintf("metadata.labels: %q in %s is no name of a LocalQueue: suspend the JobSet and name one that exists in its namespace",
			queue, label)
	}
	if by := ptr.Deref(js.Spec.ManagedBy, jobset.JobSetControllerName); by != jobset.JobSetControllerName {
		return fmt.Sprintf("spec.managedBy is %q: only JobSets run by %q can be queued", by, jobset.JobSetControllerName)
	}
	if restartsInPlace(js) && isStaged(js) {
		return "spec.failurePolicy.restartStrategy is InPlaceRestart: the pods of such a JobSet wait for those of all its stages, so that it must be of" +
			" one stage; delete it, and submit it again without spec.startupPolicy and dependsOn, or with restartStrategy Recreate"
	}
	for i := range js.Spec.ReplicatedJobs {
		if by := ptr.Deref(js.Spec.ReplicatedJobs[i].Template.Spec.ManagedBy, batchv1.JobControllerName); by != batchv1.JobControllerName {
			return fmt.Sprintf("spec.replicatedJobs[%d].template.spec.managedBy is %q: the Job controller makes no pods for it; delete the JobSet and"+
				" submit it again without the field", i, by)
		}
	}
	return ""
}

func prebuiltWorkload(js *jobsetapi.JobSet) string {
	if IsStarted(js) || PrebuiltWorkloadOf(js) == "" {
		return ""
	}
	return fmt.Sprintf("metadata: %s is not supported, because the manager makes the quota Workloads of a JobSet: submit it again without", apis.PrebuiltWorkloadKey)
}

// PrebuiltWorkloadOf returns the name of the Workload that was made for a JobSet by others, or "".
func PrebuiltWorkloadOf(js *jobsetapi.JobSet) string {
	return cmp.Or(js.Labels[apis.PrebuiltWorkloadKey], js.Annotations[apis.PrebuiltWorkloadKey])
}

func restartsInPlace(js *jobsetapi.JobSet) bool {
	return js.Spec.FailurePolicy != nil && js.Spec.FailurePolicy.RestartStrategy == jobset.InPlaceRestart
}

// isStaged reports whether a JobSet has several stages.
func isStaged(js *jobsetapi.JobSet) bool {
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder && len(js.Spec.ReplicatedJobs) > 1
	return inOrder || slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return len(r.DependsOn) > 0 })
}

// TopologyMisuse returns what the user has to change in the annotations by which a JobSet asks Kueue to place its pods, or "".
func TopologyMisuse(js *jobsetapi.JobSet) string {
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		if _, err := workloadstatus.JobSetTopology(&r.Template.Spec.Template, r.Replicas); err != nil {
			return fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.metadata.annotations: %v; delete the JobSet and submit it again", i, err)
		}
	}
	return ""
}
