package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
	samples "github.com/tranche-dev/tranche/test/sample"
)

const (
	flavorName = "default"
	podSetName = "main"
)

// queueName is the name of a ClusterQueue, and that of the namespace whose LocalQueues lead to it.
func queueName(queue int) string { return fmt.Sprintf("cq-%04d", queue) }

func localQueueName(index int) string { return fmt.Sprintf("lq-%03d", index) }

// queuesOf returns the queues and flavors, in the order of creation. The ClusterQueues have some finalizers.
func queuesOf(s *shape.Shape, finalizers ...string) []client.Object {
	objects := []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavorName}}}
	for queue := range s.Queues() {
		name := queueName(queue)
		cq := clusterQueue(s, queue)
		cq.Finalizers = finalizers
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, cq)
		for i := range s.Queue.LocalQueues {
			objects = append(objects, &kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: localQueueName(i)},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
			})
		}
	}
	return objects
}

func clusterQueue(s *shape.Shape, queue int) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: queueName(queue)}}
	cq.Spec.QueueingStrategy = s.Queue.Strategy
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	cq.Spec.Preemption = &kueue.ClusterQueuePreemption{
		ReclaimWithinCohort: s.Queue.ReclaimWithinCohort, WithinClusterQueue: s.Queue.WithinClusterQueue,
	}
	cq.Spec.CohortName = kueue.CohortReference(fmt.Sprintf("cohort-%d", s.Tree(queue)))
	cq.Spec.ResourceGroups = []kueue.ResourceGroup{samples.ResourceGroup(corev1.ResourceCPU, flavorName, s.Queue.NominalCPU.String())}
	cq.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = &s.Queue.BorrowingLimitCPU
	return cq
}

// quotaWorkload is one that asks for so many CPUs.
func quotaWorkload(namespace, name, localQueue string, c *shape.Class) *kueue.Workload {
	w := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "Workload"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
	}
	w.Spec.QueueName = kueue.LocalQueueName(localQueue)
	w.Spec.Priority = &c.Priority
	w.Spec.PodSets = []kueue.PodSet{{Name: podSetName, Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/bench",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: c.CPU}},
		}},
	}}}}
	return w
}

// admission returns the status that a manager writes for a quota Workload that it admits.
func admission(queue string, cpu resource.Quantity) *kueue.WorkloadStatus {
	return &kueue.WorkloadStatus{
		Admission: &kueue.Admission{
			ClusterQueue: kueue.ClusterQueueReference(queue),
			PodSetAssignments: []kueue.PodSetAssignment{{
				Name: podSetName, Count: ptr.To[int32](1),
				Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: flavorName},
				ResourceUsage: corev1.ResourceList{corev1.ResourceCPU: cpu},
			}},
		},
		Conditions: []metav1.Condition{
			condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "Quota reserved in ClusterQueue "+queue),
			condition(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "The quota Workload is admitted"),
		},
	}
}

// outcome returns the condition that the controller of a job writes when the job has finished.
func outcome() *kueue.WorkloadStatus {
	return &kueue.WorkloadStatus{Conditions: []metav1.Condition{
		condition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonSucceeded, "Finished by the benchmark"),
	}}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now(), ObservedGeneration: 1}
}
