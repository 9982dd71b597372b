package lab

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Queued returns a JobSet that Tranche admits stage by stage.
func Queued(js *jobsetapi.JobSet) {
	js.Labels = map[string]string{apis.QueueLabel: queueName}
}

// Whole returns the quota Workload that Kueue creates for a JobSet: one pod set for each ReplicatedJob, with all of its pods. It has the
// name of the JobSet.
func Whole(js *jobsetapi.JobSet) *kueue.Workload {
	w := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: js.Name},
	}
	w.Spec.QueueName = queueName
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{
			Name: kueue.NewPodSetReference(job.Name), Count: job.Replicas * podsOf(job), Template: *job.Template.Spec.Template.DeepCopy(),
		})
	}
	return w
}

func podsOf(job *jobsetapi.ReplicatedJob) int32 { return ptr.Deref(job.Template.Spec.Parallelism, 1) }

// Reclaimable returns the pods whose quota Kueue releases before a JobSet has finished: those of Jobs that have succeeded.
func Reclaimable(js *jobsetapi.JobSet) []kueue.ReclaimablePod {
	succeeded := map[string]int32{}
	for i := range js.Status.ReplicatedJobsStatus {
		succeeded[js.Status.ReplicatedJobsStatus[i].Name] = js.Status.ReplicatedJobsStatus[i].Succeeded
	}
	var pods []kueue.ReclaimablePod
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		if n := succeeded[job.Name]; n > 0 {
			pods = append(pods, kueue.ReclaimablePod{Name: kueue.NewPodSetReference(job.Name), Count: n * podsOf(job)})
		}
	}
	return pods
}

// Resume starts a JobSet with the node labels and tolerations of the flavors that it was admitted with.
func Resume(js *jobsetapi.JobSet, admission *kueue.Admission) {
	js.Spec.Suspend = new(false)
	flavors := map[string]*kueue.ResourceFlavor{}
	for _, flavor := range Queues().ResourceFlavors {
		flavors[flavor.Name] = flavor
	}
	for i := range js.Spec.ReplicatedJobs {
		pod := &js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		for _, assignment := range admission.PodSetAssignments {
			if string(assignment.Name) != js.Spec.ReplicatedJobs[i].Name {
				continue
			}
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, GPU} {
				if flavor := flavors[string(assignment.Flavors[name])]; flavor != nil {
					place(pod, flavor)
				}
			}
		}
	}
}

func place(pod *corev1.PodSpec, flavor *kueue.ResourceFlavor) {
	if pod.NodeSelector == nil {
		pod.NodeSelector = map[string]string{}
	}
	maps.Copy(pod.NodeSelector, flavor.Spec.NodeLabels)
	pod.Tolerations = append(pod.Tolerations, flavor.Spec.Tolerations...)
}
