package e2e_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// Tenants share ClusterQueues, and messages must not reveal the objects in the namespaces of other tenants.
var _ = Describe("A tenant whose JobSet is preempted for another namespace", func() {
	It("reads why and by which rule, without names of that namespace", func(ctx SpecContext) {
		victim, other := newTeam(ctx, "100", "20"), newTeam(ctx, "0", "0")
		queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: victim.namespace}}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`))
		Expect(env.Admin.Patch(ctx, queue, patch)).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: other.namespace, Name: "shared"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(victim.namespace)},
		})).To(Succeed())
		submit(ctx, victim.fineTune("victim"))
		victim.end(ctx, "victim", "initializer", corev1.PodSucceeded)
		victim.expectStages(ctx, "victim", "trainer-node=ready")

		class := &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: 1000}
		Expect(client.IgnoreAlreadyExists(env.Admin.Create(ctx, class))).To(Succeed())
		preemptor := other.newJobSet("confidential", replicatedJob{name: "secret", cpus: "1", gpus: "20"})
		preemptor.Labels[apis.QueueLabel], preemptor.Labels[apis.PriorityClassLabel] = "shared", urgent
		submit(ctx, preemptor)
		other.expectStages(ctx, "confidential", "secret=ready")
		victim.expectEvent(ctx, "victim", "StageEvicted")
		victim.expectEvent(ctx, "victim", "StageWaiting")

		w := victim.workload(ctx, Default, "victim", "trainer-node")
		Expect(stateOf(w)).To(HaveKeyWithValue("Preempted", "True InClusterQueue"))
		var told eventsv1.EventList
		Expect(env.Admin.List(ctx, &told, client.InNamespace(victim.namespace))).To(Succeed())
		text, err := json.Marshal([]any{w.Status, victim.jobSet(ctx, Default, "victim").Status, victim.jobSet(ctx, Default, "victim").Annotations, told.Items})
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(ContainSubstring("a Workload of another namespace"))
		for _, secret := range []string{"confidential", "secret", other.namespace + "/"} {
			Expect(string(text)).NotTo(ContainSubstring(secret))
		}
	}, SpecTimeout(specTimeout))
})
