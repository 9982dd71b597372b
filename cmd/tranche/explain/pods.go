package explain

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/dashboard/detail"
	"github.com/tranche-dev/tranche/lifecycle/podstate"
)

// pendingPods returns why pods of an admitted quota Workload are missing or not ready: a sentence for each reason, with the number of pods and the name of one.
// There is none if all are ready, if nothing is known yet, or if the user may not read pods: the answer is one without it.
func (c *cluster) pendingPods(ctx context.Context, w *kueue.Workload) []string {
	isTrue := func(conditionType string) bool {
		return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
	}
	var ofPods, ofJobs client.ListOption
	switch jobSet, job := w.Labels[apis.JobSetLabel], w.Labels[apis.JobLabel]; {
	case !isTrue(kueue.WorkloadAdmitted) || isTrue(kueue.WorkloadPodsReady) || isTrue(kueue.WorkloadFinished) || isTrue(kueue.WorkloadEvicted):
		return nil
	case jobSet != "":
		ofPods = client.MatchingLabels{jobset.JobSetNameKey: jobSet}
		ofJobs = ofPods
	case job != "":
		ofPods, ofJobs = client.MatchingLabels{batchv1.JobNameLabel: job}, client.MatchingFields{"metadata.name": job}
	default:
		return nil
	}
	isOfStage := func(labels map[string]string) bool {
		return slices.ContainsFunc(w.Spec.PodSets, func(set kueue.PodSet) bool { return string(set.Name) == labels[apis.PodSetLabel] })
	}
	var pods podstate.Reasons
	var jobs podstate.Lacking
	// What may not be read adds nothing.
	_ = detail.Each(ctx, c, &corev1.PodList{}, func(pod *corev1.Pod) {
		if isOfStage(pod.Labels) {
			pods.Add(pod)
		}
	}, client.InNamespace(w.Namespace), ofPods)
	_ = detail.Each(ctx, c, &batchv1.JobList{}, func(job *batchv1.Job) {
		if isOfStage(job.Spec.Template.Labels) {
			jobs.Add(job)
		}
	}, client.InNamespace(w.Namespace), ofJobs)
	sentences, _ := detail.Explain(ctx, c, &pods, &jobs)
	return sentences
}
