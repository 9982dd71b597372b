// Package lab is what the comparison of whole and staged admission runs: tenants with queues that share accelerators of two kinds, and
// staged JobSets drawn from a seed.
package lab

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	// GPU is the resource that is compared.
	GPU = corev1.ResourceName("nvidia.com/gpu")

	a100, h100 = "a100", "h100"
	poolLabel  = "accelerator"
	queueName  = "queue"
	perNode    = 8
	cohort     = "lab"
)

// A tenant has a namespace, a ClusterQueue of the same name with quota of its own, and a LocalQueue that leads to it.
type tenant struct {
	name             string
	cpus, a100, h100 int64
}

func tenants() []tenant {
	return []tenant{{"research", 128, 24, 16}, {"product", 128, 24, 8}, {"platform", 128, 16, 8}}
}

// Quota is how many accelerators all tenants have together. Each may borrow what the others do not use.
func Quota() int64 {
	var sum int64
	for _, t := range tenants() {
		sum += t.a100 + t.h100
	}
	return sum
}

// NodePools are the nodes. There are twice as many accelerators as quota, so that a pod with quota never waits for a node on which
// others have left too little: what is compared is quota.
func NodePools() []controlplane.NodePool {
	list := func(gpus int64) corev1.ResourceList {
		resources := corev1.ResourceList{corev1.ResourceCPU: amount(192), corev1.ResourceMemory: resource.MustParse("2Ti")}
		if gpus > 0 {
			resources[GPU] = amount(gpus)
		}
		return resources
	}
	var a, h int64
	for _, t := range tenants() {
		a, h = a+t.a100, h+t.h100
	}
	taints := []corev1.Taint{{Key: string(GPU), Value: "present", Effect: corev1.TaintEffectNoSchedule}}
	return []controlplane.NodePool{
		{Name: "cpu", Count: 3, Allocatable: list(0)},
		{Name: a100, Count: int(2 * a / perNode), Labels: map[string]string{poolLabel: a100}, Taints: taints, Allocatable: list(perNode)},
		{Name: h100, Count: int(2 * h / perNode), Labels: map[string]string{poolLabel: h100}, Taints: taints, Allocatable: list(perNode)},
	}
}

// Queues are the flavors and the objects of the tenants. Preemption is off.
func Queues() *snapshot.Snapshot {
	all := &snapshot.Snapshot{}
	for _, name := range []string{"cpu", a100, h100} {
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		if name != "cpu" {
			flavor.Spec.NodeLabels = map[string]string{poolLabel: name}
			flavor.Spec.Tolerations = []corev1.Toleration{{Key: string(GPU), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		}
		all.ResourceFlavors = append(all.ResourceFlavors, flavor)
	}
	for _, t := range tenants() {
		all.Namespaces = append(all.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.name, UID: types.UID(t.name)}})
		all.ClusterQueues = append(all.ClusterQueues, t.clusterQueue())
		all.LocalQueues = append(all.LocalQueues, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: queueName, UID: types.UID(t.name + "/" + queueName)},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.name)},
		})
	}
	return all
}

func (t *tenant) clusterQueue() *kueue.ClusterQueue {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.name, UID: types.UID(t.name)}}
	q.Spec.CohortName = cohort
	q.Spec.QueueingStrategy = kueue.BestEffortFIFO
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{
		sample.ResourceGroup(corev1.ResourceCPU, "cpu", fmt.Sprint(t.cpus)),
		sample.ResourceGroup(GPU, a100, fmt.Sprint(t.a100), h100, fmt.Sprint(t.h100)),
	}
	return q
}

func amount(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
