package e2e_test

import (
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/test/sample"
)

var _ = Describe("tranche what-if", func() {
	It("submit predicts for whom a JobSet would be in the way, and when it would start", func(ctx SpecContext) {
		p := &planner{}
		t := p.team(ctx, "8")
		t.patchQueue(ctx, `{"spec":{"preemption":{"withinClusterQueue":"LowerPriority"}}}`)
		t.train(ctx, "low", "8", "ready")
		important := t.newClass(ctx, "important", 10)
		submitted := func(name string, change ...func(*jobsetapi.JobSet)) *jobsetapi.JobSet {
			js := t.newJobSet(name, replicatedJob{name: name, cpus: "1", gpus: "8"})
			js.APIVersion, js.Kind = jobset.GroupVersion.String(), "JobSet"
			for _, f := range change {
				f(js)
			}
			return js
		}

		first, code := answerOf(ctx, submitted("first", ofClass(important)), "what-if", "submit", "-f", "-")
		Expect(code).To(Equal(3))
		Expect(p.named(&first)).To(Equal(map[string][]plan.Kind{"low/low": {plan.Evicted}, "first/first": {plan.NewlyAdmitted}}))
		behind, code := answerOf(ctx, submitted("behind"), "what-if", "submit", "-f", "-")
		Expect(code).To(Equal(2))
		Expect(p.named(&behind)).To(Equal(map[string][]plan.Kind{"behind/behind": {plan.Waiting}}))
		Expect(behind.Consequences[0].Blockers).To(ConsistOf("JobSet " + t.namespace + "/low"))

		By("submitting them")
		var list jobsetapi.JobSetList
		Expect(env.Admin.List(ctx, &list)).To(Succeed())
		Expect(list.Items).NotTo(ContainElement(HaveField("Name", "first")), "an answer writes nothing")
		Expect(env.Admin.Create(ctx, submitted("behind"))).To(Succeed())
		t.expectStages(ctx, "behind", "behind=waiting")
		Expect(env.Admin.Create(ctx, submitted("first", ofClass(important)))).To(Succeed())
		t.expectStages(ctx, "first", "first=ready")
		t.expectStages(ctx, "low", "low=waiting")
		t.expectStages(ctx, "behind", "behind=waiting")
	}, SpecTimeout(specTimeout))

	It("quota predicts what another quota does", func(ctx SpecContext) {
		p := &planner{}
		t := p.team(ctx, "4")
		t.train(ctx, "runs", "4", "ready")
		t.train(ctx, "waits", "2", "waiting")
		for amount, want := range map[string]map[string][]plan.Kind{"4": {}, "5": {}, "6": {"waits/waits": {plan.NewlyAdmitted}}, "1": {"waits/waits": {plan.NeverFits}}} {
			p1, _ := answerOf(ctx, nil, "what-if", "quota", t.namespace+"/a100/"+string(gpu)+"="+amount)
			Expect(p.named(&p1)).To(Equal(want), amount)
		}
		t.setQuota(ctx, "6")
		t.expectStages(ctx, "waits", "waits=ready")
	}, SpecTimeout(specTimeout))

	It("node-loss names what runs on the nodes, from the cluster and from a snapshot with pods", func(ctx SpecContext) {
		p := &planner{}
		t := p.teamOnNodes(ctx, 2)
		// They ask for no CPU: the quota of CPU that is left depends on the queues of other specs.
		t.staged(ctx, t.newJobSet("one", replicatedJob{name: "one", gpus: "64"}), "one=ready")
		other := t.newJob("other", 1, "64")
		delete(other.Spec.Template.Spec.Containers[0].Resources.Requests, corev1.ResourceCPU)
		delete(other.Spec.Template.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU)
		Expect(env.Admin.Create(ctx, other)).To(Succeed())
		t.expectJob(ctx, "other", "ready")
		lost := map[string]string{"one": t.podsOf(ctx, Default, "one", "one")[0].Spec.NodeName, "other": t.podsOfJob(ctx, Default, "other")[0].Spec.NodeName}
		Expect(lost["one"]).NotTo(Equal(lost["other"]))

		answers := map[string][]string{"the cluster": {"--kubeconfig", env.AdminKubeconfig}}
		for name, flags := range map[string][]string{"a snapshot with pods": {"--pods"}, "a snapshot without pods": nil} {
			path := filepath.Join(GinkgoT().TempDir(), "snapshot.tar.gz")
			args := append([]string{"snapshot", "--kubeconfig", env.AdminKubeconfig, "-o", path}, flags...)
			out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), args...).CombinedOutput() // #nosec G204 -- arguments of the test
			Expect(err).To(MatchError("exit status 3"), "%s", out)
			Expect(string(out)).To(ContainSubstring("1 gap"), "the manager of the tests has no ConfigMap, and nothing else is missing")
			answers[name] = []string{"--snapshot", path}
		}
		for name, from := range answers {
			for owner, node := range lost {
				loss, code := ask(ctx, nil, append([]string{"what-if", "node-loss", "-l", corev1.LabelHostname + "=" + node}, from...)...)
				Expect(loss.Objects).To(ContainElement(And(HaveField("Kind", "Node"), HaveField("Name", node), HaveField("Action", plan.Delete))), name)
				if name == "a snapshot without pods" {
					Expect(loss.Consequences).To(BeEmpty(), name)
					continue
				}
				Expect(code).To(Equal(3), name)
				Expect(p.named(&loss)).To(Equal(map[string][]plan.Kind{map[string]string{"one": "one/one", "other": "other/"}[owner]: {plan.Evicted}}), name)
				Expect(loss.Consequences[0].Reason).To(Equal(kueue.WorkloadEvictedDueToNodeFailures), name)
				Expect(loss.Consequences[0].Again).To(BeNil(), name)
			}
		}
	}, SpecTimeout(specTimeout))
})

// teamOnNodes adds a team with a flavor of its own, and the quota of some nodes with 64 GPUs.
func (p *planner) teamOnNodes(ctx SpecContext, nodes int) team {
	GinkgoHelper()
	t := p.team(ctx, "0")
	flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}, Spec: kueue.ResourceFlavorSpec{
		NodeLabels:  map[string]string{"accelerator": "a100", t.namespace: "here"},
		Tolerations: []corev1.Toleration{{Key: string(gpu), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
	}}
	Expect(env.Admin.Create(ctx, flavor)).To(Succeed())
	var list corev1.NodeList
	Expect(env.Admin.List(ctx, &list)).To(Succeed())
	left := nodes
	for i := range list.Items {
		if node := list.Items[i].Name; left > 0 && list.Items[i].Labels["accelerator"] == "a100" {
			left--
			t.labelNode(ctx, node)
			DeferCleanup(func(ctx SpecContext) { t.unlabelNode(ctx, node) }, NodeTimeout(patience))
		}
	}
	Expect(left).To(BeZero())
	queue := clusterQueue(t.namespace, "100", "0")
	queue.Spec.ResourceGroups[1].Flavors[0].Name = kueue.ResourceFlavorReference(flavor.Name)
	queue.Spec.ResourceGroups[1].Flavors[0].Resources[0].NominalQuota = sample.Amounts("x", "128")["x"]
	apply(ctx, manifest(kueue.SchemeGroupVersion.String(), "ClusterQueue", queue.ObjectMeta, map[string]any{"spec": queue.Spec}))
	return t
}
