// Package lab is what the comparison of whole and staged admission runs: tenants with queues that share accelerators of two kinds, and
// staged JobSets drawn from a seed.
package lab

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/controlplane"
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

// Queues are the flavors and the objects of the tenants, in the order of creation. Preemption is off.
func Queues() []client.Object {
	objects := []client.Object{&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}}
	for _, name := range []string{a100, h100} {
		objects = append(objects, &kueue.ResourceFlavor{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: kueue.ResourceFlavorSpec{
				NodeLabels:  map[string]string{poolLabel: name},
				Tolerations: []corev1.Toleration{{Key: string(GPU), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
			},
		})
	}
	for _, t := range tenants() {
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.name}},
			t.clusterQueue(),
			&kueue.LocalQueue{
				ObjectMeta: metav1.ObjectMeta{Namespace: t.name, Name: queueName},
				Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.name)},
			},
		)
	}
	return objects
}

func (t *tenant) clusterQueue() *kueue.ClusterQueue {
	flavor := func(name string, r corev1.ResourceName, nominal int64) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{
			Name: kueue.ResourceFlavorReference(name), Resources: []kueue.ResourceQuota{{Name: r, NominalQuota: amount(nominal)}},
		}
	}
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: t.name}}
	q.Spec.CohortName = cohort
	q.Spec.QueueingStrategy = kueue.BestEffortFIFO
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	q.Spec.ResourceGroups = []kueue.ResourceGroup{
		{CoveredResources: []corev1.ResourceName{corev1.ResourceCPU}, Flavors: []kueue.FlavorQuotas{flavor("cpu", corev1.ResourceCPU, t.cpus)}},
		{
			CoveredResources: []corev1.ResourceName{GPU},
			Flavors:          []kueue.FlavorQuotas{flavor(a100, GPU, t.a100), flavor(h100, GPU, t.h100)},
		},
	}
	return q
}

func amount(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
