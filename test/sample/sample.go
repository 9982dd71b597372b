// Package sample makes the ReplicatedJobs of the JobSets that tests run on the fake nodes of a control plane, quotas, and a small cluster as YAML.
package sample

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// Amounts makes a list of pairs of a resource and an amount, such as "cpu", "4", "memory", "1Ti".
func Amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// ResourceGroup makes one of a single resource. The pairs are a flavor and its nominal quota, such as "h100", "8".
func ResourceGroup(name corev1.ResourceName, pairs ...string) kueue.ResourceGroup {
	group := kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{name}}
	for i := 0; i < len(pairs); i += 2 {
		group.Flavors = append(group.Flavors, kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(pairs[i]), Resources: []kueue.ResourceQuota{{Name: name, NominalQuota: resource.MustParse(pairs[i+1])}},
		})
	}
	return group
}

// ReplicatedJob makes one with a Job of so many pods, none of which is tried again, for the caller to change. The fate of a pod is what its
// annotations tell the fake nodes; package controlplane declares them.
func ReplicatedJob(name string, pods int32, requests corev1.ResourceList, fate map[string]string) jobsetapi.ReplicatedJob {
	r := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: name, Replicas: 1}}
	r.Template.Spec = batchv1.JobSpec{Parallelism: &pods, Completions: &pods, BackoffLimit: new(int32(0))}
	r.Template.Spec.Template.Annotations = fate
	r.Template.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/" + name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
		}},
	}
	return r
}
