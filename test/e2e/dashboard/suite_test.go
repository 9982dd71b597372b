// Package dashboard_test looks at the page of the real binary in a real browser, while a real manager runs JobSets.
package dashboard_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/browser"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/invariants"
	_ "github.com/tranche-dev/tranche/test/progress"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	gpu = corev1.ResourceName("nvidia.com/gpu")

	poll        = 50 * time.Millisecond
	patience    = 60 * time.Second
	specTimeout = 2 * time.Minute

	// markup would run a script if the page took a text for HTML.
	markup = `<img src=x onerror="document.title='injected'">`
)

var (
	env     *testenv.World
	auditor *invariants.Auditor
	window  *browser.Browser
	// address is the URL of the dashboard of the administrator.
	address string
	// managerAddress is the URL of the dashboard of the manager.
	managerAddress string
)

func TestDashboard(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	SetDefaultEventuallyPollingInterval(poll)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Dashboard in a browser")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	suite, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	var err error
	env, err = testenv.Start(suite, controlplane.Config{NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 2, Labels: map[string]string{"pool": "cpu"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti")},
		{Name: "a100", Count: 2, Labels: map[string]string{"accelerator": "a100"}, Allocatable: sample.Amounts("cpu", "256", "memory", "1Ti", string(gpu), "64")},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return env.Stop() })
	auditor, err = invariants.Start(suite, env.Admin)
	Expect(err).NotTo(HaveOccurred())
	port, err := controlplane.FreePort()
	Expect(err).NotTo(HaveOccurred())
	serves := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	managerAddress = "https://" + serves + "/"
	Expect(env.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(env.Root, "config/dashboard"))).To(Succeed())
	manager, err := env.StartManager(suite, testenv.ManagerOptions{Settings: map[string]any{
		"dashboard":     map[string]any{"enable": true, "bindAddress": serves},
		"expectedStart": map[string]any{"interval": "1s"},
		"fairSharing":   map[string]any{"preemptionStrategies": []string{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
	}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return manager.Stop() })
	window, err = browser.Start(suite)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { Expect(window.Stop(ctx)).To(Succeed()) }, NodeTimeout(patience))
	makeQueues(ctx)
	submitJobSets(ctx)
	address = serve("--kubeconfig", env.AdminKubeconfig)
}, NodeTimeout(5*time.Minute))

// makeQueues makes a Cohort of two ClusterQueues, one of which borrows from the other.
func makeQueues(ctx context.Context) {
	for name, label := range map[string]map[string]string{"cpu": nil, "a100": {"accelerator": "a100"}} {
		Expect(env.Admin.Create(ctx, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: label}})).To(Succeed())
	}
	Expect(env.Admin.Create(ctx, &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "research"}})).To(Succeed())
	for name, gpus := range map[string]string{"vision": "16", "speech": "32"} {
		Expect(env.CreateNamespace(ctx, "team-"+name, nil)).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
			CohortName: "research", NamespaceSelector: &metav1.LabelSelector{}, FairSharing: &kueue.FairSharing{Weight: new(resource.MustParse("2"))},
			ResourceGroups: []kueue.ResourceGroup{group("cpu", corev1.ResourceCPU, "64"), group("a100", gpu, gpus)},
		}})).To(Succeed())
		Expect(env.Admin.Create(ctx, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-" + name, Name: "training"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})).To(Succeed())
	}
}

func group(flavor kueue.ResourceFlavorReference, resource corev1.ResourceName, amount string) kueue.ResourceGroup {
	return kueue.ResourceGroup{CoveredResources: []corev1.ResourceName{resource}, Flavors: []kueue.FlavorQuotas{{
		Name: flavor, Resources: []kueue.ResourceQuota{{Name: resource, NominalQuota: sample.Amounts("x", amount)["x"]}},
	}}}
}

// submitJobSets makes one JobSet that runs its second stage on borrowed GPUs, two that wait, and one without a queue whose status has markup.
func submitJobSets(ctx context.Context) {
	create(ctx, "team-vision", "fine-tune", stage{"download", "4", "", "2s", ""}, stage{"train", "4", "40", "", "download"}, stage{"evaluate", "2", "2", "", "train"})
	Eventually(func(g Gomega) { g.Expect(stateOf(ctx, g, "team-vision", "fine-tune")).To(ContainSubstring("train")) }).WithContext(ctx).Should(Succeed())
	create(ctx, "team-vision", "large", stage{"train", "2", "24", "", ""})
	create(ctx, "team-speech", "secret-model", stage{"train", "2", "30", "", ""})
	Eventually(func(g Gomega) {
		g.Expect(stateOf(ctx, g, "team-vision", "large")).To(ContainSubstring("WaitingForQuota"))
		g.Expect(stateOf(ctx, g, "team-speech", "secret-model")).To(ContainSubstring("WaitingForQuota"))
	}).WithContext(ctx).Should(Succeed())
	hostile := newJobSet("team-vision", "hostile", stage{"main", "1", "", "", ""})
	delete(hostile.Labels, apis.QueueLabel)
	hostile.Spec.Suspend = new(true)
	Expect(env.Admin.Create(ctx, hostile)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(hostile), hostile)).To(Succeed())
		hostile.Status.Conditions = append(hostile.Status.Conditions, metav1.Condition{
			Type: "StageAdmitted", Status: metav1.ConditionFalse, Reason: "Hostile", Message: markup, LastTransitionTime: metav1.Now(),
		})
		g.Expect(env.Admin.Status().Update(ctx, hostile)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// A stage is a ReplicatedJob of one pod that starts after another one has completed. It runs until the end unless runs limits its time. The limit of
// two hours bounds the expected starts of others.
type stage struct{ name, cpus, gpus, runs, after string }

func create(ctx context.Context, namespace, name string, stages ...stage) {
	GinkgoHelper()
	Expect(env.Admin.Create(ctx, newJobSet(namespace, name, stages...))).To(Succeed())
}

func newJobSet(namespace, name string, stages ...stage) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "training", apis.MaxExecTimeLabel: "7200"}}}
	for _, s := range stages {
		requests := sample.Amounts("cpu", s.cpus)
		if s.gpus != "" {
			requests[gpu] = sample.Amounts("x", s.gpus)["x"]
		}
		fate := map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}
		if s.runs != "" {
			fate = map[string]string{controlplane.FakeRunTime: s.runs}
		}
		r := sample.ReplicatedJob(s.name, 1, requests, fate)
		if s.after != "" {
			r.DependsOn = []jobset.DependsOn{{Name: s.after, Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	return js
}

// stateOf returns the reason and the message of the condition StageAdmitted.
func stateOf(ctx context.Context, g Gomega, namespace, name string) string {
	var js jobsetapi.JobSet
	g.Expect(env.Admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &js)).To(Succeed())
	for _, c := range js.Status.Conditions {
		if c.Type == "StageAdmitted" {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// serve runs `tranche dashboard` until the suite ends, and returns the URL that it prints.
func serve(flags ...string) string {
	GinkgoHelper()
	cmd := exec.Command(filepath.Join(env.Root, "bin", "tranche"), append([]string{"dashboard"}, flags...)...)
	cmd.Stderr = GinkgoWriter
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		// An open page would report that its stream of events ends.
		Expect(window.Open(ctx, "about:blank")).To(Succeed())
		Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed(), "a signal ends the dashboard without an error")
	}, NodeTimeout(patience))
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	found := regexp.MustCompile(`^Dashboard of .*: (http://\w+\.localhost:\d+/\?token=\w+)\n$`).FindStringSubmatch(line)
	Expect(found).To(HaveLen(2), line)
	return found[1]
}

// kubeconfigOf writes a kubeconfig of a user that may read JobSets, LocalQueues and quota Workloads of one namespace. Its cluster has markup as its name.
func kubeconfigOf(ctx context.Context, user, namespace string) string {
	GinkgoHelper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{"kueue.x-k8s.io"}, Resources: []string{"workloads", "localqueues"}, Verbs: []string{"get", "list", "watch"}},
	}}
	Expect(env.Admin.Create(ctx, role)).To(Succeed())
	Expect(env.Admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})).To(Succeed())
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(env.Plane.Kubeconfig(path, user)).To(Succeed())
	config, err := clientcmd.LoadFromFile(path)
	Expect(err).NotTo(HaveOccurred())
	current := config.Contexts[config.CurrentContext]
	current.Namespace = namespace
	config.Clusters[markup] = config.Clusters[current.Cluster]
	current.Cluster = markup
	Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

var _ = AfterEach(func(ctx SpecContext) {
	errors, err := window.Errors(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(errors).To(BeEmpty(), "the page reports errors")
	violations, err := auditor.Violations(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(violations).To(BeEmpty(), "the auditor found breaches of the invariants")
}, NodeTimeout(patience))

// seeElement waits until the page has an element of a CSS selector with this text.
func seeElement(ctx context.Context, selector, text string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var texts []string
		g.Expect(window.Run(ctx, fmt.Sprintf("return [...document.querySelectorAll(%q)].map((e) => e.innerText)", selector), &texts)).To(Succeed())
		g.Expect(texts).To(ContainElement(text))
	}).WithContext(ctx).Should(Succeed())
}

// see waits until the text of the page has all of these parts.
func see(ctx context.Context, parts ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		text, err := window.Text(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		for _, part := range parts {
			g.Expect(text).To(ContainSubstring(part))
		}
	}).WithContext(ctx).Should(Succeed())
}

// open shows a view.
func open(ctx context.Context, url, view string) {
	GinkgoHelper()
	Expect(window.Open(ctx, url+"#/"+view)).To(Succeed())
}

// take writes a screenshot to the directory of the environment variable SCREENSHOTS, for the documents.
func take(ctx context.Context, name string) {
	GinkgoHelper()
	picture, err := window.Screenshot(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(len(picture)).To(BeNumerically(">", 10_000), "the window is empty")
	if dir := os.Getenv("SCREENSHOTS"); dir != "" {
		Expect(os.WriteFile(filepath.Join(dir, name), picture, 0o600)).To(Succeed())
	}
}
