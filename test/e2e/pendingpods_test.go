package e2e_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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
		explain := func(ctx context.Context) (string, error) {
			out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", "pending", "-n", t.namespace, "--kubeconfig", env.AdminKubeconfig).CombinedOutput()
			return strings.Join(strings.Fields(string(out)), " "), err // lines are wrapped
		}
		Eventually(ctx, explain).Should(And(
			MatchRegexp(`2 pods, such as pending-nowhere-0-0-\w+: no node: 0/12 nodes are available: 4 node\(s\) didn.t match`),
			MatchRegexp(`pod pending-lost-0-0-\w+: no node: .*persistentvolumeclaim "gone" not found`),
		))
	}, SpecTimeout(specTimeout))
})
