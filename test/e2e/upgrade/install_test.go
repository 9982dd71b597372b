package upgrade_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/document"
)

// foreign is the name of a policy that no release has.
const foreign = "tranche-of-another-version"

// apply applies directories of the configuration of a release, as kubectl does.
func (r *release) apply(ctx context.Context, dirs ...string) {
	GinkgoHelper()
	for _, dir := range dirs {
		Expect(r.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(r.Root, "config", dir))).To(Succeed())
	}
}

// installPolicies applies the CRDs and policies of a release, and deletes the policies that it does not have with the command of docs/admin.md.
func (r *release) installPolicies(ctx context.Context) {
	GinkgoHelper()
	r.apply(ctx, "crd", "policies")
	blocks, err := document.Blocks(current.Root)
	Expect(err).NotTo(HaveOccurred())
	i := slices.IndexFunc(blocks, func(b document.Block) bool { return strings.HasPrefix(b.Text, "comm -13 ") })
	Expect(i).To(BeNumerically(">=", 0), "docs/admin.md has no command that deletes policies of another version")
	command := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", blocks[i].Text) // #nosec G204 -- a document of the repository
	command.Dir = r.Root
	command.Env = append(os.Environ(), "KUBECONFIG="+r.AdminKubeconfig, "PATH="+r.Plane.BinDir()+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	kinds := "mutatingadmissionpolicies,mutatingadmissionpolicybindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
	existing, err := r.KubectlOutput(ctx, "get", kinds, "-o", "name")
	Expect(err).NotTo(HaveOccurred())
	Expect(string(existing)).NotTo(ContainSubstring(foreign), string(output))
}

// installForeign creates a policy that no release has, as another version may have left it behind.
func installForeign(ctx context.Context) {
	GinkgoHelper()
	Expect(current.Admin.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: foreign}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: foreign, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	})).To(Succeed())
}

// installManager applies what belongs to the manager of a release, runs it beside the one that leads while guests come and go, and stops that one.
func (r *release) installManager(ctx context.Context) {
	GinkgoHelper()
	r.apply(ctx, "rbac", "manager")
	before := holder(ctx, Default)
	next := r.start(ctx)
	expectProgress(ctx)
	Expect(holder(ctx, Default)).To(Equal(before), "the manager that led goes on to lead beside %s", r.name)
	Expect(leader.Stop()).To(Succeed())
	Eventually(func(g Gomega) { g.Expect(holder(ctx, g)).NotTo(BeElementOf(before, "")) }).WithContext(ctx).Should(Succeed(), "%s leads", r.name)
	leader = next
	expectProgress(ctx)
}

// holder returns who has the Lease of the managers.
func holder(ctx context.Context, g Gomega) string {
	GinkgoHelper()
	var lease coordinationv1.Lease
	g.Expect(current.Admin.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: "tranche-manager"}, &lease)).To(Succeed())
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}
