package queuedjob

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Kueue writes a scheduling gate into the pod template of an elastic Job, and removes it from the pods that have quota. An adopted Job keeps the
// gate in its template until it is evicted, and then loses it with all that Kueue has added.

func hasGate(spec *corev1.PodSpec) bool {
	return slices.Contains(spec.SchedulingGates, corev1.PodSchedulingGate{Name: kueue.ElasticJobSchedulingGate})
}

// hasElasticGate reports whether the pods of a Job are created with Kueue's gate for elastic Jobs.
func hasElasticGate(job *batchv1.Job) bool { return hasGate(&job.Spec.Template.Spec) }

// ungate removes Kueue's gate from the pods of a Job that runs. The Job never has more pods than quota is charged for, unless some are about to be
// deleted.
func (w *Step) ungate(s *Snapshot) {
	if !hasElasticGate(s.Job) || s.Job.Status.Active == 0 || ptr.Deref(s.Job.Status.Ready, 0) >= s.Job.Status.Active {
		return
	}
	w.readsPods = true
	w.RequeueWithin(podsEvery)
	if len(s.Owned.Pods) > int(needed(s.Job)) {
		return
	}
	for _, pod := range s.Owned.Pods {
		if hasGate(&pod.Spec) && pod.DeletionTimestamp.IsZero() {
			w.Ungate = append(w.Ungate, pod)
		}
	}
}

// Ungated returns a copy of a pod without Kueue's gate for elastic Jobs.
func Ungated(pod *corev1.Pod) *corev1.Pod {
	after := pod.DeepCopy()
	after.Spec.SchedulingGates = slices.DeleteFunc(after.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == kueue.ElasticJobSchedulingGate })
	return after
}
