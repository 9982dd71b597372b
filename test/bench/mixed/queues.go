package mixed

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	queueName = "main"
	cohort    = "mixed"
	cpuFlavor = "cpu"
	gpuFlavor = "gpu"
	// cpusPerGPU is enough for all initializers: only GPUs are short.
	cpusPerGPU = 16
)

// Queues are the objects of the tenants: BestEffortFIFO, borrowing without limits, no preemption.
func (s *Shape) Queues() *snapshot.Snapshot {
	all := &snapshot.Snapshot{}
	for _, name := range []string{cpuFlavor, gpuFlavor} {
		all.ResourceFlavors = append(all.ResourceFlavors, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}})
	}
	for i := range s.Tenants {
		t := &s.Tenants[i]
		all.Namespaces = append(all.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.Name, UID: types.UID(t.Name)}})
		all.ClusterQueues = append(all.ClusterQueues, t.clusterQueue())
		all.LocalQueues = append(all.LocalQueues, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.Name, Name: queueName, UID: types.UID(t.Name + "/" + queueName)},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.Name)},
		})
	}
	return all
}

func (t *Tenant) clusterQueue() *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: t.Name, UID: types.UID(t.Name)},
		Spec: kueue.ClusterQueueSpec{
			CohortName: cohort, QueueingStrategy: kueue.BestEffortFIFO, NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{
				sample.ResourceGroup(corev1.ResourceCPU, cpuFlavor, fmt.Sprint(t.GPUs*cpusPerGPU)), sample.ResourceGroup(GPU, gpuFlavor, fmt.Sprint(t.GPUs)),
			},
		},
	}
}
