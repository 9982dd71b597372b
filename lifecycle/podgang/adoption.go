package podgang

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// Pods that Kueue has ungated, and their Workload, are adopted as a gang that has started. The pod sets keep the names that Kueue gave them until the gang
// is evicted.

// AdoptedGang returns the gang of a pod that Kueue has ungated, or false if the pod cannot be adopted: a PodGroup describes its gang, and Kueue has
// admitted the pod by itself.
func AdoptedGang(pod *corev1.Pod) (podgroup.Ref, bool) {
	member := pod.DeepCopy()
	metav1.SetMetaDataLabel(&member.ObjectMeta, apis.PodGroupMemberLabel, apis.PodGroupMemberValue)
	ref, ok := podgroup.RefOf(member)
	return ref, ok && (ref.Kind == podgroup.Kueue || ref.Kind == podgroup.Single)
}

// AdoptedPod returns a pod that Kueue has ungated as a member of its gang, or nil if it is not known which pod set of the Workload pays for it.
func AdoptedPod(pod *corev1.Pod, w *kueue.Workload) *corev1.Pod {
	podSet := pod.Labels[apis.PodSetLabel]
	if _, ok := AdoptedGang(pod); !ok || !slices.ContainsFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return string(p.Name) == podSet }) {
		return nil
	}
	after := pod.DeepCopy()
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.PodGroupMemberLabel, apis.PodGroupMemberValue)
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.AdmissionAnnotation, admissionOf(w)+"/"+podSet)
	return after
}

// AdoptedWorkload returns a Workload of Kueue as the quota Workload of a gang that has started.
func AdoptedWorkload(w *kueue.Workload, gang podgroup.Ref) *kueue.Workload {
	after := adoption.Marked(w)
	metav1.SetMetaDataLabel(&after.ObjectMeta, apis.PodGroupKey, gang.Label())
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.PodGroupKey, gang.String())
	started := after.CreationTimestamp.Time
	if admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		started = admitted.LastTransitionTime.Time
	}
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, apis.StartedAnnotation, workloadstatus.Started(started))
	return after
}

// adoptedNames returns the pod sets of an adopted quota Workload by the shapes of their pods. Those of other quota Workloads have the names of the
// shapes.
func adoptedNames(w *kueue.Workload) map[kueue.PodSetReference]kueue.PodSetReference {
	if w.Annotations[apis.AdoptedAnnotation] == "" {
		return nil
	}
	names := map[kueue.PodSetReference]kueue.PodSetReference{}
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		names[kueue.PodSetReference(shapeOf(&corev1.Pod{Spec: p.Template.Spec}))] = p.Name
	}
	return names
}
