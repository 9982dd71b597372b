package migration_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/document"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

// page has the steps that are taken here.
const page = "docs/migrate-from-kueue.md"

// manifests are the queues of the cluster as an administrator wrote them for an earlier version of Kueue.
const manifests = `apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata:
  name: cpu
spec:
  nodeLabels:
    pool: cpu
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata:
  name: cluster
spec:
  cohort: lab
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: cpu
      resources:
      - name: cpu
        nominalQuota: 7
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata:
  namespace: team
  name: queue
spec:
  clusterQueue: cluster
`

// whatIf runs a JobSet of two stages in these queues.
const whatIf = `# A JobSet is charged one stage at a time.
submit staged queue=queue namespace=team stages=first(cpu=2)=Succeeded=>second(cpu=3) run=10m
run until=1h
`

// pageStep returns the commands of a step of the page, of which the test knows the number.
func pageStep(step, commands int) []string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(env.Root, page))
	Expect(err).NotTo(HaveOccurred())
	blocks, err := document.Blocks(env.Root)
	Expect(err).NotTo(HaveOccurred())
	// places has the step that each line belongs to.
	places, current, isInSteps := []int{}, 0, false
	number := regexp.MustCompile(`^(\d+)\. `)
	for line := range strings.Lines(string(content)) {
		switch found := number.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "#"):
			isInSteps, current = line == "## Step by step\n", 0
		case isInSteps && found != nil:
			current, err = strconv.Atoi(found[1])
			Expect(err).NotTo(HaveOccurred())
		}
		places = append(places, current)
	}
	var found []string
	for i := range blocks {
		if blocks[i].File == page && blocks[i].Language == "sh" && places[blocks[i].Line-1] == step {
			found = append(found, blocks[i].Commands()...)
		}
	}
	Expect(found).To(HaveLen(commands), "step %d of %s", step, page)
	return found
}

// onPage runs a command of the page, or of what it refers to, in the root of the repository.
func onPage(ctx context.Context, command string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = env.Root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.AdminKubeconfig, "PATH="+env.Plane.BinDir()+":"+filepath.Join(env.Root, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", command, out)
	return string(out)
}

// createQueues applies the manifests of the queues as Kueue's administrators do, and returns their directory. Kueue's Deployment stands for its manager,
// which is a process here.
func createQueues(ctx context.Context) string {
	GinkgoHelper()
	Expect(env.CreateNamespace(ctx, namespace, nil)).To(Succeed())
	queues := GinkgoT().TempDir()
	Expect(os.WriteFile(filepath.Join(queues, "queues.yaml"), []byte(manifests), 0o600)).To(Succeed())
	onPage(ctx, "kubectl apply -f "+queues)
	labels := map[string]string{"control-plane": "controller-manager"}
	Expect(env.Admin.Create(ctx, &appsv1.Deployment{ObjectMeta: kueueDeployment().ObjectMeta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "registry.k8s.io/kueue/kueue:v0.19.2"}}}},
	}})).To(Succeed())
	return queues
}

func kueueDeployment() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: controlplane.KueueNamespace, Name: "kueue-controller-manager"}}
}

// expectPrepared takes the steps that need no change of the cluster.
func expectPrepared(ctx context.Context, queues string) {
	GinkgoHelper()
	By("rewriting and checking the manifests, and trying them without a cluster")
	onPage(ctx, "tranche lint --fix -f "+queues)
	Expect(os.ReadFile(filepath.Join(queues, "queues.yaml"))).To(And(ContainSubstring("cohortName: lab"), Not(ContainSubstring("v1beta1"))))
	scenario := filepath.Join(GinkgoT().TempDir(), "what-if.txt")
	Expect(os.WriteFile(scenario, []byte(whatIf), 0o600)).To(Succeed())
	Expect(onPage(ctx, "tranche simulate "+scenario+" -f "+queues)).To(MatchRegexp(`(?s)admit +staged/first.*admit +staged/second`))

	By("finding no stored objects of earlier versions")
	stored := onPage(ctx, pageStep(2, 1)[0])
	Expect(stored).To(MatchRegexp(`clusterqueues\.kueue\.x-k8s\.io +\[v1beta2\]`))
	Expect(stored).NotTo(ContainSubstring("v1beta1"))
}

// stopKueue stops Kueue's manager, and removes its webhooks.
func stopKueue(ctx context.Context) {
	GinkgoHelper()
	By("stopping Kueue, and removing its webhooks")
	commands := pageStep(3, 3)
	onPage(ctx, commands[0])
	d := kueueDeployment()
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
	Expect(d.Spec.Replicas).To(HaveValue(BeZero()))
	Expect(env.Plane.StopComponent(controlplane.Kueue)).To(Succeed())
	for _, command := range commands[1:] {
		onPage(ctx, command)
	}
}

// removeKueue looks at the queues, applies their manifests again, and removes what is left of Kueue.
func removeKueue(ctx context.Context, queues string) {
	GinkgoHelper()
	By("looking at the queues, and removing the rest of Kueue")
	Eventually(func() string { return onPage(ctx, pageStep(6, 1)[0]) }).WithContext(ctx).Should(MatchRegexp(`(?m)^cluster +Can admit new workloads$`))
	onPage(ctx, "kubectl apply -f "+queues)
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(queue), queue)).To(Succeed())
	Expect(queue.Spec.CohortName).To(BeEquivalentTo("lab"))
	Expect(queue.Spec.StopPolicy).To(Or(BeNil(), HaveValue(Equal(kueue.None))))
	Expect(env.Admin.Delete(ctx, kueueDeployment())).To(Succeed())
	Expect(env.Admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controlplane.KueueNamespace}})).To(Succeed())
	var rest []string
	for name := range strings.FieldsSeq(onPage(ctx, "kubectl get crds -o name")) {
		if strings.HasSuffix(name, ".kueue.x-k8s.io") && (strings.Contains(name, "/multikueue") || strings.Contains(name, "/provisioningrequestconfigs")) {
			rest = append(rest, name)
		}
	}
	Expect(rest).To(HaveLen(3))
	onPage(ctx, "kubectl delete "+strings.Join(rest, " "))
}

// expectStaged submits a JobSet, whose manifest needs no change, and expects that its stages are charged one at a time.
func expectStaged(ctx context.Context) {
	GinkgoHelper()
	By("submitting a JobSet of two stages")
	js := &jobsetapi.JobSet{ObjectMeta: inQueue("staged")}
	stages := []struct {
		name string
		pods int32
	}{{"first", 2}, {"second", 3}}
	for _, stage := range stages {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, sample.ReplicatedJob(
			stage.name, stage.pods, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}))
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "first", Status: jobset.DependencyComplete}}
	Expect(env.Admin.Create(ctx, js)).To(Succeed())
	for _, stage := range stages {
		Eventually(func(g Gomega) {
			g.Expect(runningPods(ctx, g)).To(HaveLen(int(stage.pods)))
			g.Expect(reserved(ctx, g)).To(Equal(fmt.Sprint(stage.pods)))
		}).WithContext(ctx).Should(Succeed())
		for name := range runningPods(ctx, Default) {
			endPods(ctx, Default, name)
		}
	}
	Eventually(func(g Gomega) {
		g.Expect(env.Admin.Get(ctx, client.ObjectKeyFromObject(js), js)).To(Succeed())
		g.Expect(meta.IsStatusConditionTrue(js.Status.Conditions, string(jobset.JobSetCompleted))).To(BeTrue())
		g.Expect(reserved(ctx, g)).To(Equal("0"))
	}).WithContext(ctx).Should(Succeed())
}

// expectMetrics reads metrics under Kueue's names.
func expectMetrics(ctx context.Context, manager *testenv.Manager) {
	GinkgoHelper()
	By("reading metrics under Kueue's names")
	text, err := testenv.ReadMetrics(ctx, manager.Metrics)
	Expect(err).NotTo(HaveOccurred())
	for _, name := range []string{"kueue_pending_workloads", "kueue_admitted_workloads_total", "kueue_cluster_queue_resource_reservation", "kueue_cluster_queue_status"} {
		Expect(text).To(MatchRegexp(name + `\{[^}]*cluster_queue="cluster"`))
	}
	Expect(env.Kubectl(ctx, "get", "clusterrole", "tranche-metrics-reader")).To(Succeed())
}
