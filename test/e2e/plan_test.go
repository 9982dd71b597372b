package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/plan"
)

var _ = Describe("tranche plan", func() {
	It("names what a change of a queue makes happen, and nothing else", func(ctx SpecContext) {
		t, other := newTeam(ctx, "100", "8"), newTeam(ctx, "100", "8")
		submit(ctx, t.newJobSet("low", replicatedJob{name: "low", cpus: "1", gpus: "8"}))
		t.expectStages(ctx, "low", "low=ready")
		submit(ctx, other.newJobSet("calm", replicatedJob{name: "calm", cpus: "1", gpus: "8"}))
		other.expectStages(ctx, "calm", "calm=ready")
		t.createUrgent(ctx, "6")
		t.expectStages(ctx, "urgent", "urgent=waiting")
		submit(ctx, t.newJobSet("small", replicatedJob{name: "small", cpus: "1", gpus: "4"}))
		t.expectStages(ctx, "small", "small=waiting")

		queue := clusterQueue(t.namespace, "100", "10")
		queue.APIVersion, queue.Kind = kueue.SchemeGroupVersion.String(), "ClusterQueue"
		queue.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		p, code := planOf(ctx, queue)
		Expect(code).To(Equal(3))
		Expect(p.Objects).To(HaveExactElements(HaveField("Action", plan.Update)))
		Expect(p.Objects[0].Fields).To(ConsistOf(
			plan.Field{Path: "spec.preemption.withinClusterQueue", Before: "Never", After: "LowerPriority"},
			plan.Field{Path: "spec.resourceGroups[1].flavors[a100].resources[nvidia.com/gpu].nominalQuota", Before: "8", After: "10"},
		))
		named := map[string]plan.Kind{}
		for i := range p.Consequences {
			Expect(p.Consequences[i].Namespace).To(Equal(t.namespace))
			named[p.Consequences[i].JobSet] = p.Consequences[i].Kind
		}
		Expect(named).To(Equal(map[string]plan.Kind{"low": plan.Evicted, "urgent": plan.NewlyAdmitted, "small": plan.NewlyAdmitted}))
		Expect(p.Consequences).To(HaveLen(3))

		change, err := json.Marshal(map[string]any{"spec": map[string]any{"preemption": queue.Spec.Preemption, "resourceGroups": queue.Spec.ResourceGroups}})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Admin.Patch(ctx, queue, client.RawPatch(types.MergePatchType, change))).To(Succeed())
		t.expectStages(ctx, "urgent", "urgent=ready")
		t.expectStages(ctx, "small", "small=ready")
		t.expectStages(ctx, "low", "low=waiting")
		other.expectStages(ctx, "calm", "calm=ready")
		for name, isEvicted := range map[string]bool{"low": true, "urgent": false, "small": false} {
			Expect(stateOf(t.workload(ctx, Default, name, name))).To(WithTransform(func(state map[string]string) bool {
				_, has := state[kueue.WorkloadPreempted]
				return has
			}, Equal(isEvicted)), name)
		}
		Expect(stateOf(other.workload(ctx, Default, "calm", "calm"))).NotTo(HaveKey(kueue.WorkloadEvicted))
		t.expectReserved(ctx, "10")

		again, code := planOf(ctx, queue)
		Expect(code).To(BeZero(), "%v", again.Consequences)
	}, SpecTimeout(specTimeout))
})

// planOf runs tranche plan on the cluster, with the manifest of a queue.
func planOf(ctx context.Context, queue *kueue.ClusterQueue) (plan.Plan, int) {
	GinkgoHelper()
	return answerOf(ctx, queue, "plan", "-f", "-")
}

// answerOf runs tranche plan or tranche what-if on the cluster, with a manifest on standard input, and returns its answer and its exit code.
func answerOf(ctx context.Context, manifest any, args ...string) (p plan.Plan, code int) {
	GinkgoHelper()
	input, err := json.Marshal(manifest)
	Expect(err).NotTo(HaveOccurred())
	return ask(ctx, input, append(args, "--kubeconfig", env.AdminKubeconfig)...)
}

// ask runs tranche plan or tranche what-if.
func ask(ctx context.Context, input []byte, args ...string) (p plan.Plan, code int) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append(args, "-o", "json")...) // #nosec G204 -- arguments of the tests
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &stderr
	if err := cmd.Run(); err != nil {
		exit, isExit := errors.AsType[*exec.ExitError](err)
		Expect(isExit).To(BeTrue(), "%v", err)
		code = exit.ExitCode()
	}
	Expect(json.Unmarshal(out.Bytes(), &p)).To(Succeed(), "%s%s", &out, &stderr)
	return p, code
}
