package integration_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

// The commands of kueuectl in the table of docs/migrate-from-kueue.md.
var _ = Describe("kueuectl", Ordered, func() {
	const namespace = "kueuectl"
	var dir string
	run := func(ctx context.Context, line string) string {
		GinkgoHelper()
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "kueuectl"), append(strings.Fields(line), "--kubeconfig", env.AdminKubeconfig)...)
		out, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "kueuectl %s: %s", line, out)
		GinkgoWriter.Printf("$ kueuectl %s\n%s", line, out)
		return string(out)
	}
	eventually := func(ctx context.Context, line string, matcher OmegaMatcher) {
		GinkgoHelper()
		Eventually(func() string { return run(ctx, line) }).WithContext(ctx).Should(matcher)
	}

	BeforeAll(func(ctx SpecContext) {
		var err error
		dir, err = controlplane.KueueDir(ctx)
		Expect(err).NotTo(HaveOccurred())
		manager, err := env.StartManager(ctx, testenv.ManagerOptions{})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() error { return manager.Stop() })
		Expect(env.CreateNamespace(ctx, namespace, nil)).To(Succeed())
		run(ctx, "create resourceflavor kueuectl")
		run(ctx, "create clusterqueue kueuectl --cohort kueuectl-cohort --nominal-quota kueuectl:nvidia.com/gpu=4")
		run(ctx, "create localqueue queue -n kueuectl -c kueuectl")
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pipeline", Labels: map[string]string{apis.QueueLabel: "queue"}}}
		never := map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
		js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{
			sample.ReplicatedJob("prepare", 1, sample.Amounts("nvidia.com/gpu", "1"), never),
			sample.ReplicatedJob("train", 1, sample.Amounts("nvidia.com/gpu", "2"), never),
		}
		js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "prepare", Status: jobset.DependencyComplete}}
		Expect(env.adminClient.Create(ctx, js)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, js)).To(Succeed()) }, NodeTimeout(patience))
		eventually(ctx, "list pods -n kueuectl --for jobset/pipeline", MatchRegexp(`pipeline-prepare-0-0-\S+ +1/1 +Running`))
	}, NodeTimeout(2*patience))

	It("lists", func(ctx SpecContext) {
		eventually(ctx, "list clusterqueue", MatchRegexp(`kueuectl +kueuectl-cohort +0 +1 +true`))
		Expect(run(ctx, "list clusterqueue --active true")).To(ContainSubstring("kueuectl-cohort"))
		eventually(ctx, "list localqueue -n kueuectl", MatchRegexp(`queue +kueuectl +0 +1`)) // its status is written after that of the ClusterQueue
		Expect(run(ctx, "list localqueue -A --clusterqueue kueuectl")).To(MatchRegexp(`kueuectl +queue +kueuectl +0 +1`))
		Expect(run(ctx, "list resourceflavor")).To(ContainSubstring("kueuectl"))
		eventually(ctx, "list workload -n kueuectl --status admitted", And(MatchRegexp(`jobset-pipeline-0-prepare-\S+ .* ADMITTED`), Not(ContainSubstring("train"))))
		Expect(run(ctx, "list workload -n kueuectl --clusterqueue kueuectl")).To(And(ContainSubstring("pipeline-0-prepare"), Not(ContainSubstring("train"))))
		for _, flag := range []string{"--localqueue queue", "--for jobset/pipeline"} {
			Expect(run(ctx, "list workload -n kueuectl "+flag)).To(And(ContainSubstring("pipeline-0-prepare"), ContainSubstring("pipeline-1-train")))
		}
		Expect(run(ctx, "list pods -n kueuectl --for job/pipeline-prepare-0")).To(ContainSubstring("pipeline-prepare-0-0"))
	}, NodeTimeout(patience))

	It("passes on to kubectl", func(ctx SpecContext) {
		GinkgoT().Setenv("PATH", env.Plane.BinDir()+string(os.PathListSeparator)+os.Getenv("PATH"))
		for _, kind := range []string{"clusterqueue", "resourceflavor", "localqueue -n kueuectl", "workload -n kueuectl"} {
			Expect(run(ctx, "get "+kind)).NotTo(BeEmpty())
			Expect(run(ctx, "describe "+kind)).To(ContainSubstring("Name:"))
		}
		Expect(run(ctx, "version")).To(ContainSubstring("Client Version: v0.19.2"))
	}, NodeTimeout(patience))

	It("stops and resumes", func(ctx SpecContext) {
		run(ctx, "stop clusterqueue kueuectl --keep-already-running")
		eventually(ctx, "list clusterqueue", MatchRegexp(`kueuectl +kueuectl-cohort +0 +1 +false`))
		run(ctx, "resume clusterqueue kueuectl")
		eventually(ctx, "list clusterqueue", MatchRegexp(`kueuectl +kueuectl-cohort +0 +1 +true`))
		run(ctx, "stop localqueue queue -n kueuectl")
		eventually(ctx, "list localqueue -n kueuectl", MatchRegexp(`queue +kueuectl +[0-9]+ +0`))
		run(ctx, "resume localqueue queue -n kueuectl")
		eventually(ctx, "list localqueue -n kueuectl", MatchRegexp(`queue +kueuectl +0 +1`))
	}, NodeTimeout(2*patience))
})
