package idle

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/snapshot"
)

// isAsPlanned reports whether a quota Workload is that of a stage, waits, and has the name, the owner, the queue, the priority and the limit of its JobSet.
// What else it has is compared with that of another JobSet.
func isAsPlanned(w *kueue.Workload, stage int, js *jobsetapi.JobSet, j *cluster.UserJob) bool {
	isOf := w.Labels[apis.JobUIDLabel] == string(js.UID) && w.Labels[apis.JobSetLabel] == js.Name && cluster.StageIndex(w) == stage &&
		jobsetstate.GrowthNumber(w) == 0 && len(w.OwnerReferences) == 1 && w.OwnerReferences[0].UID == js.UID && w.OwnerReferences[0].Name == js.Name
	waits := w.Status.Admission == nil && w.Status.RequeueState == nil && w.DeletionTimestamp.IsZero() && len(w.Status.AdmissionChecks) == 0 &&
		!cluster.IsFinished(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
	return isOf && waits && string(w.Spec.QueueName) == j.Queue && ptr.Deref(w.Spec.Priority, 0) == j.Priority && w.Spec.Priority != nil &&
		equality.Semantic.DeepEqual(w.Spec.PriorityClassRef, j.ClassRef()) && ptr.Equal(w.Spec.MaximumExecutionTimeSeconds, j.MaxSeconds) &&
		w.Name == jobsetstate.WorkloadName(js, j.Plan, stage, 0)
}

// areEqual reports whether two JobSets that wait differ only in names, UIDs and times, and in queues, priorities and limits, which each has in common
// with its quota Workloads.
func (known comparisons) areEqual(a, b *waiting) bool {
	if !known.areEqualJobSets(a.jobSet, b.jobSet) || len(a.workloads) != len(b.workloads) || len(a.jobs) != len(b.jobs) {
		return false
	}
	for i := range a.workloads {
		if !areEqualWorkloads(a.workloads[i], b.workloads[i]) {
			return false
		}
	}
	for i := range a.jobs {
		if !areEqualJobs(a.jobs[i], b.jobs[i], a.jobSet, b.jobSet) {
			return false
		}
	}
	return true
}

func (known comparisons) areEqualJobSets(a, b *jobsetapi.JobSet) bool {
	isFree := func(key string) bool {
		return key == apis.QueueLabel || key == apis.MaxExecTimeLabel || key == apis.PriorityClassLabel
	}
	if !areEqualMaps(a.Labels, b.Labels, isFree) || !areEqualMaps(a.Annotations, b.Annotations, never) || !slices.Equal(a.Finalizers, b.Finalizers) {
		return false
	}
	if a.Generation != b.Generation || a.Status.Restarts != b.Status.Restarts || a.Status.RestartsCountTowardsMax != b.Status.RestartsCountTowardsMax {
		return false
	}
	return areEqualConditions(a.Status.Conditions, b.Status.Conditions) && known.isSameSpec(&a.Spec, &b.Spec) &&
		equality.Semantic.DeepEqual(a.Status.ReplicatedJobsStatus, b.Status.ReplicatedJobsStatus)
}

// comparisons has the results of comparing ReplicatedJobs, by the first of each JobSet: many JobSets of a snapshot share theirs.
type comparisons map[[2]*jobsetapi.ReplicatedJob]bool

// isSameSpec compares the ReplicatedJobs only if the JobSets do not share them, and each pair once.
func (known comparisons) isSameSpec(a, b *jobsetapi.JobSetSpec) bool {
	if snapshot.IsSameSpec(a, b) {
		return true
	}
	if len(a.ReplicatedJobs) == 0 || len(a.ReplicatedJobs) != len(b.ReplicatedJobs) {
		return equality.Semantic.DeepEqual(a, b)
	}
	pair := [2]*jobsetapi.ReplicatedJob{&a.ReplicatedJobs[0], &b.ReplicatedJobs[0]}
	isSame, isKnown := known[pair]
	if !isKnown {
		isSame = equality.Semantic.DeepEqual(a.ReplicatedJobs, b.ReplicatedJobs)
		known[pair] = isSame
	}
	if !isSame {
		return false
	}
	restOfA, restOfB := *a, *b
	restOfA.ReplicatedJobs, restOfB.ReplicatedJobs = nil, nil
	return equality.Semantic.DeepEqual(&restOfA, &restOfB)
}

func areEqualWorkloads(a, b *kueue.Workload) bool {
	isFree := func(key string) bool { return key == apis.JobUIDLabel || key == apis.JobSetLabel }
	if !areEqualMaps(a.Labels, b.Labels, isFree) || !areEqualMaps(a.Annotations, b.Annotations, never) || !slices.Equal(a.Finalizers, b.Finalizers) {
		return false
	}
	if a.Generation != b.Generation || !ptr.Equal(a.Spec.Active, b.Spec.Active) || !isSameOwner(&a.OwnerReferences[0], &b.OwnerReferences[0]) {
		return false
	}
	isSame := len(a.Spec.PodSets) > 0 && len(a.Spec.PodSets) == len(b.Spec.PodSets) && &a.Spec.PodSets[0] == &b.Spec.PodSets[0]
	return areEqualConditions(a.Status.Conditions, b.Status.Conditions) && (isSame || equality.Semantic.DeepEqual(a.Spec.PodSets, b.Spec.PodSets)) &&
		equality.Semantic.DeepEqual(a.Status.ReclaimablePods, b.Status.ReclaimablePods)
}

// isSameOwner compares owners without their names and UIDs.
func isSameOwner(a, b *metav1.OwnerReference) bool {
	return a.Kind == b.Kind && a.APIVersion == b.APIVersion && ptr.Equal(a.Controller, b.Controller) && ptr.Equal(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

// areEqualConditions compares conditions without times, messages and generations.
func areEqualConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
}

func areEqualJobs(a, b *batchv1.Job, ofA, ofB *jobsetapi.JobSet) bool {
	suffixOfA, isNamedA := strings.CutPrefix(a.Name, ofA.Name)
	suffixOfB, isNamedB := strings.CutPrefix(b.Name, ofB.Name)
	if !isNamedA || !isNamedB || suffixOfA != suffixOfB || !isLabeledAs(a, ofA) || !isLabeledAs(b, ofB) {
		return false
	}
	isFree := func(key string) bool {
		return key == jobset.JobSetNameKey || key == jobset.JobSetUIDKey || key == jobset.JobKey
	}
	if !areEqualMaps(a.Labels, b.Labels, isFree) || !areEqualMaps(a.Annotations, b.Annotations, isFree) || !slices.Equal(a.Finalizers, b.Finalizers) {
		return false
	}
	areEqualStates := slices.EqualFunc(a.Status.Conditions, b.Status.Conditions, func(a, b batchv1.JobCondition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
	return areEqualStates && len(a.OwnerReferences) == 1 && len(b.OwnerReferences) == 1 && isSameOwner(&a.OwnerReferences[0], &b.OwnerReferences[0]) &&
		areEqualTemplates(&a.Spec.Template, &b.Spec.Template) && equality.Semantic.DeepEqual(withoutTemplate(&a.Spec), withoutTemplate(&b.Spec))
}

// isLabeledAs reports whether the labels of a Job name its JobSet.
func isLabeledAs(job *batchv1.Job, js *jobsetapi.JobSet) bool {
	return job.Labels[jobset.JobSetNameKey] == js.Name && job.Labels[jobset.JobSetUIDKey] == string(js.UID)
}

// areEqualTemplates compares pod templates without the labels and annotations that the controllers of JobSets and Jobs write.
func areEqualTemplates(a, b *corev1.PodTemplateSpec) bool {
	if !areEqualMaps(a.Labels, b.Labels, isIdentity) || !areEqualMaps(a.Annotations, b.Annotations, isIdentity) {
		return false
	}
	isSame := len(a.Spec.Containers) > 0 && len(a.Spec.Containers) == len(b.Spec.Containers) && &a.Spec.Containers[0] == &b.Spec.Containers[0]
	if !isSame {
		return equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
	}
	restOfA, restOfB := a.Spec, b.Spec
	restOfA.Containers, restOfB.Containers = nil, nil
	return equality.Semantic.DeepEqual(&restOfA, &restOfB)
}

// isIdentity reports whether a label or an annotation of a pod template says of which JobSet and Job it is.
func isIdentity(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == "jobset.sigs.k8s.io" || domain == "batch.kubernetes.io" || key == "job-name" || key == "controller-uid"
}

// withoutTemplate returns the spec of a Job without its pod template, and without its selector, which is its UID.
func withoutTemplate(spec *batchv1.JobSpec) *batchv1.JobSpec {
	rest := *spec
	rest.Template, rest.Selector = corev1.PodTemplateSpec{}, nil
	return &rest
}

func never(string) bool { return false }

// areEqualMaps compares labels or annotations, of some keys only whether they exist.
func areEqualMaps(a, b map[string]string, isFree func(key string) bool) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, exists := b[key]; !exists || other != value && !isFree(key) {
			return false
		}
	}
	return true
}
