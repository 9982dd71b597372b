package e2e_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("tranche explain", func() {
	It("says why the pods of an admitted stage are pending", func(ctx SpecContext) {
		t := newTeam(ctx, "100", "8")
		js := t.newJobSet("pending", replicatedJob{name: "nowhere", cpus: "1", pods: 2}, replicatedJob{name: "lost", cpus: "1"})
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "none"}
		js.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Volumes = []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "gone"}},
		}}
		submit(ctx, js)
		Eventually(ctx, explained("pending", t.namespace)).Should(And(
			MatchRegexp(`2 pods, such as pending-nowhere-0-0-\w+: no node: 0/12 nodes are available: 4 node\(s\) didn.t match`),
			MatchRegexp(`pod pending-lost-0-0-\w+: no node: .*persistentvolumeclaim "gone" not found`),
		))
	}, SpecTimeout(specTimeout))

	DescribeTable("says why Jobs of an admitted stage lack pods", func(ctx SpecContext, name, pods string, submitted func(t team) client.Object, want string) {
		t := newTeam(ctx, "100", "8")
		Expect(env.Admin.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: "few-pods"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)},
		}})).To(Succeed())
		Expect(env.Admin.Create(ctx, submitted(t))).To(Succeed())
		Eventually(ctx, explained(name, t.namespace)).Should(MatchRegexp(want + `: FailedCreate: .*exceeded quota: few-pods, requested: pods=1`))
	},
		Entry("of a JobSet", "refused", "0", func(t team) client.Object {
			return t.newJobSet("refused", replicatedJob{name: "workers", cpus: "1", replicas: 2})
		}, "2 Jobs, such as refused-workers-0, lack pods", SpecTimeout(specTimeout)),
		Entry("that are queued alone", "job/refused", "2", func(t team) client.Object { return t.newJob("refused", 3, "1") }, "Job refused lacks pods", SpecTimeout(specTimeout)),
	)
})

// explained returns what the command explain prints about an object, in one line.
func explained(name, namespace string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", name, "-n", namespace, "--kubeconfig", env.AdminKubeconfig).CombinedOutput()
		return strings.Join(strings.Fields(string(out)), " "), err
	}
}
