package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/pending"
	"github.com/tranche-dev/tranche/test/sample"
)

// No manager runs here: the verbs answer with what a user may read.
var _ = Describe("The verbs of the binary", Ordered, func() {
	const namespace, name = "verbs", "verbs"
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{},
		ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{corev1.ResourceCPU}, Flavors: []kueue.FlavorQuotas{{
			Name: name, Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: sample.Amounts("cpu", "1")[corev1.ResourceCPU]}},
		}}}},
	}}
	verb := func(ctx context.Context, args ...string) *exec.Cmd {
		return exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), args...)
	}
	submit := func(ctx context.Context, name string) {
		GinkgoHelper()
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: kueue.WorkloadSpec{QueueName: "queue", PodSets: []kueue.PodSet{{
			Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "c", Image: "image", Resources: corev1.ResourceRequirements{Requests: sample.Amounts("cpu", "2")}}},
			}},
		}}}}
		Expect(env.adminClient.Create(ctx, w)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, w)).To(Succeed()) }, NodeTimeout(patience))
	}

	BeforeAll(func(ctx SpecContext) {
		Expect(env.CreateNamespace(ctx, namespace, nil)).To(Succeed())
		for _, o := range []client.Object{
			&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}, queue.DeepCopy(),
			&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "queue"}, Spec: kueue.LocalQueueSpec{ClusterQueue: name}},
		} {
			Expect(env.adminClient.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, o)).To(Succeed()) }, NodeTimeout(patience))
		}
	}, NodeTimeout(patience))

	DescribeTable("pending --watch prints each change, until a signal ends it", func(ctx SpecContext, signal syscall.Signal, format string, names func(out []byte) []string) {
		cmd := verb(ctx, "pending", "-n", namespace, "--watch", "--interval", "1s", "-o", format, "--kubeconfig", env.AdminKubeconfig)
		out := gbytes.NewBuffer()
		cmd.Stdout, cmd.Stderr = out, GinkgoWriter
		Expect(cmd.Start()).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		Eventually(func() []string { return names(out.Contents()) }).WithContext(ctx).Should(HaveLen(1), "the answer before the change")
		submit(ctx, "first-"+format)
		Eventually(func() []string { return names(out.Contents()) }).WithContext(ctx).Should(HaveExactElements(Not(ContainSubstring("first")), ContainSubstring("first-"+format)))
		Expect(cmd.Process.Signal(signal)).To(Succeed())
		Eventually(ended).WithContext(ctx).Should(Receive(BeNil()), "the exit code is 0")
	},
		Entry("as text", SpecTimeout(patience), syscall.SIGINT, "text", func(out []byte) []string {
			var answers []string
			for answer := range bytes.SplitSeq(out, []byte("CLUSTERQUEUE-POSITION")) {
				if text := string(answer); len(answers) > 0 || text != "" {
					answers = append(answers, text)
				}
			}
			return answers
		}),
		Entry("as JSON documents", SpecTimeout(patience), syscall.SIGTERM, "json", func(out []byte) []string {
			var answers []string
			for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
				var list pending.List
				if decoder.Decode(&list) != nil {
					return answers
				}
				text := ""
				for i := range list.Items {
					text += list.Items[i].Name + " "
				}
				answers = append(answers, text)
			}
		}),
	)

	It("lint refuses what the cluster lacks, and accepts what it has", func(ctx SpecContext) {
		run, manifest := takeSnapshot(ctx, ""), filepath.Join(GinkgoT().TempDir(), "größe.yaml")
		Expect(run.code).To(BeElementOf(0, 3), "%s; only the ConfigMap of a manager may be missing", run.errors)
		for want, change := range map[int]string{0: name, 1: "nowhere"} {
			text := "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: second, namespace: " + namespace + "}\nspec: {clusterQueue: " + change + "}\n"
			Expect(os.WriteFile(manifest, []byte(text), 0o600)).To(Succeed())
			cmd := verb(ctx, "lint", "-f", manifest, "--snapshot", run.dir, "-o", "json")
			out, _ := cmd.CombinedOutput()
			Expect(cmd.ProcessState.ExitCode()).To(Equal(want), string(out))
			if want == 1 {
				Expect(string(out)).To(And(ContainSubstring("größe.yaml"), ContainSubstring("missing-queue"), ContainSubstring("there is no ClusterQueue nowhere")))
			}
		}
	}, SpecTimeout(patience))
})
