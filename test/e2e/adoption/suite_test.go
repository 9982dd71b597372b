// Package adoption_test installs Tranche on a cluster on which Jobs and JobSets run and wait, as Kueue leaves them.
package adoption_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	namespace = "team"

	poll = 100 * time.Millisecond
	// patience is enough for the managers of the first spec, one after the other: each is killed after its first write.
	patience    = 3 * time.Minute
	specTimeout = 5 * time.Minute
)

var (
	env *testenv.World
	// auditor begins when there are Jobs and JobSets, and before Tranche is installed.
	auditor *invariants.Auditor
)

func TestAdoption(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Objects that were there before Tranche")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	var err error
	env, err = testenv.StartBare(suite, controlplane.Config{NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 2, Labels: map[string]string{"pool": "spot"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti")},
		{Name: "reserved", Count: 1, Labels: map[string]string{"pool": "reserved"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti")},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
}, NodeTimeout(5*time.Minute))

var _ = AfterEach(func(ctx SpecContext) {
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))

// tenantClient returns a client of a user who may change JobSets, Jobs and pods in the namespace, and not their status.
func tenantClient(ctx context.Context) client.Client {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"", "batch", "jobset.x-k8s.io"}, Resources: []string{"pods", "jobs", "jobsets"}, Verbs: []string{"*"},
	}}})).To(Succeed())
	Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tenant"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	})).To(Succeed())
	config := rest.CopyConfig(env.Plane.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: "tenant"}
	tenant, err := client.New(config, client.Options{Scheme: env.Admin.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		return tenant.List(ctx, &batchv1.JobList{}, client.InNamespace(namespace))
	}).WithContext(ctx).Should(Succeed())
	return tenant
}
