package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/pending"
	"github.com/tranche-dev/tranche/snapshot/collect"
	"github.com/tranche-dev/tranche/test/document"
)

const visibilityAPI = "/apis/visibility.kueue.x-k8s.io/v1beta2"

// installVisibility applies config/visibility and points its Service to a port of this machine, where nothing runs inside the cluster.
func installVisibility(ctx context.Context, address string) {
	GinkgoHelper()
	Expect(env.ServeVisibility(ctx, address)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(env.Kubectl(ctx, "delete", "-k", env.VisibilityOverlay())).To(Succeed())
	})
}

// freeAddress returns an unused address on loopback.
func freeAddress() string {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer l.Close() //nolint:errcheck // it was never used
	return l.Addr().String()
}

// A reader sends requests to the visibility API as a user, through the API server.
type reader struct{ client kubernetes.Interface }

func readerAs(user string) reader {
	GinkgoHelper()
	config := env.Plane.AdminConfig()
	if user != "" {
		config = env.Plane.UserConfig(user)
	}
	c, err := kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	return reader{c}
}

func (r reader) read(ctx context.Context, path string, query ...string) (*visibility.PendingWorkloadsSummary, error) {
	request := r.client.CoreV1().RESTClient().Get().AbsPath(visibilityAPI + path)
	for _, q := range query {
		name, value, _ := strings.Cut(q, "=")
		request.Param(name, value)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	var summary visibility.PendingWorkloadsSummary
	return &summary, json.Unmarshal(body, &summary)
}

// places writes pending quota Workloads as NAME in-cluster-queue/in-local-queue.
func places(summary *visibility.PendingWorkloadsSummary) []string {
	all := []string{}
	for i := range summary.Items {
		w := &summary.Items[i]
		all = append(all, fmt.Sprintf("%s %s %d/%d", w.Name, w.LocalQueueName, w.PositionInClusterQueue, w.PositionInLocalQueue))
	}
	return all
}

func explanationOf(summary *visibility.PendingWorkloadsSummary) visibilityapi.Explanation {
	GinkgoHelper()
	Expect(summary.Items).To(HaveLen(1))
	var x visibilityapi.Explanation
	Expect(json.Unmarshal([]byte(summary.Items[0].Annotations[apis.ExplanationAnnotation]), &x)).To(Succeed())
	return x
}

var _ = Describe("The visibility API", Ordered, func() {
	var (
		t             *tenant
		admin         reader
		cqPath, lqOf  string
		pendingByName func(name string) string
	)

	BeforeAll(func(ctx SpecContext) {
		address := freeAddress()
		installVisibility(ctx, address)
		startManager(ctx, map[string]any{"visibility": map[string]any{"enable": true, "bindAddress": address}})
		admin = readerAs("")
		t = newQueue(ctx)
		t.onlyOnDemand(ctx, "4", func(*kueue.ClusterQueueSpec) {})
		other := t.localQueue.DeepCopy()
		other.ObjectMeta = metav1.ObjectMeta{Namespace: t.namespace, Name: "other"}
		Expect(env.adminClient.Create(ctx, other)).To(Succeed())
		cqPath = "/clusterqueues/" + t.clusterQueue.Name + "/pendingworkloads"
		lqOf = "/namespaces/" + t.namespace + "/localqueues/"
		pendingByName = func(name string) string {
			return "fieldSelector=metadata.namespace=" + t.namespace + ",metadata.name=" + name
		}

		expect(ctx, create(ctx, t.workload("holder", "3")), "Admitted=True Admitted")
		for i, cpus := range []string{"2", "3", "4"} {
			w := t.urgent("w"+strconv.Itoa(i), cpus, int32(10-i))
			if i == 1 {
				w.Spec.QueueName = "other"
			}
			expect(ctx, create(ctx, w), "tranche.dev/Waiting=True WaitingForQuota")
		}
		Eventually(func(g Gomega) {
			summary, err := admin.read(ctx, cqPath)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(summary.Items).To(HaveLen(3))
		}).WithContext(ctx).Should(Succeed())
	}, NodeTimeout(2*patience))

	It("lists the positions in both queues, page by page", func(ctx SpecContext) {
		for query, want := range map[string][]string{
			"":                 {"w0 queue 0/0", "w1 other 1/0", "w2 queue 2/1"},
			"limit=1":          {"w0 queue 0/0"},
			"limit=2 offset=1": {"w1 other 1/0", "w2 queue 2/1"},
			"offset=3":         {},
		} {
			summary, err := admin.read(ctx, cqPath, strings.Fields(query)...)
			Expect(err).NotTo(HaveOccurred(), query)
			Expect(places(summary)).To(Equal(want), query)
		}
		Eventually(func(g Gomega) {
			summary, err := admin.read(ctx, lqOf+"queue/pendingworkloads", "offset=1")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(places(summary)).To(Equal([]string{"w2 queue 2/1"}))
			g.Expect(summary.Items[0].Priority).To(BeEquivalentTo(8))
			x := explanationOf(summary)
			g.Expect(x.Reason).To(Equal("WaitingForQuota"))
			g.Expect(x.Message).To(HavePrefix("waits for quota in ClusterQueue " + t.clusterQueue.Name))
			g.Expect(x.Alternatives).To(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("reports which limit blocks a quota Workload, and which JobSets hold the quota", func(ctx SpecContext) {
		summary, err := admin.read(ctx, cqPath, pendingByName("w1"))
		Expect(err).NotTo(HaveOccurred())
		Expect(places(summary)).To(Equal([]string{"w1 other 1/0"}))
		x := explanationOf(summary)
		Expect(x.Reason).To(Equal("WaitingForQuota"))
		Expect(x.Message).To(Equal(find(fresh(ctx, t.workload("w1", "3")), apis.WaitingCondition).Message))
		short := x.Alternatives[0].Shortages[0]
		Expect([]string{short.Needed.String(), short.Free.String(), short.Missing.String()}).To(Equal([]string{"3", "1", "2"}))
		Expect(short.Constraint.Kind).To(Equal(visibilityapi.ClusterQueue))
		Expect(short.Constraint.Limit).To(Equal(visibilityapi.NominalQuota))
		Expect(short.Holders).To(HaveLen(1))
		Expect(short.Holders[0].String()).To(Equal(t.namespace + "/holder"))

		By("omitting those of other queues and those that hold quota")
		for _, name := range []string{"w1", "holder"} {
			summary, err = admin.read(ctx, lqOf+"queue/pendingworkloads", "fieldSelector=metadata.name="+name)
			Expect(err).NotTo(HaveOccurred())
			Expect(summary.Items).To(BeEmpty(), name)
		}
	}, SpecTimeout(patience))

	It("omits objects of other namespaces if a user may only read a LocalQueue", func(ctx SpecContext) {
		stranger := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "visibility-"}}
		Expect(env.adminClient.Create(ctx, stranger)).To(Succeed())
		lq := &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: stranger.Name, Name: "queue"},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.clusterQueue.Name)},
		}
		Expect(env.adminClient.Create(ctx, lq)).To(Succeed())
		w := t.workload("waits", "4")
		w.Namespace = stranger.Name
		expect(ctx, create(ctx, w), "tranche.dev/Waiting=True WaitingForQuota")
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, w)).To(Succeed()) })
		allow(ctx, stranger.Name, "researcher")
		Eventually(func(g Gomega) {
			summary, err := readerAs("researcher").read(ctx, "/namespaces/"+stranger.Name+"/localqueues/queue/pendingworkloads", "fieldSelector=metadata.name=waits")
			g.Expect(err).NotTo(HaveOccurred())
			holder := explanationOf(summary).Alternatives[0].Shortages[0].Holders[0]
			g.Expect(holder.String()).To(BeEmpty())
			g.Expect(holder.Amount.String()).To(Equal("3"))
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("is printed by tranche pending and tranche explain", func(ctx SpecContext) {
		tranche := func(kubeconfig string, args ...string) string {
			cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append(args, "--kubeconfig", kubeconfig)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr // no ConfigMap has the configuration of this manager, which is a warning
			out, err := cmd.Output()
			if err != nil {
				return err.Error() + ": " + string(out) + stderr.String()
			}
			return string(out)
		}
		table := strings.Split(strings.TrimSpace(tranche(env.AdminKubeconfig, "pending", "--cluster-queue", t.clusterQueue.Name)), "\n")
		Expect(table).To(HaveLen(4))
		Expect(strings.Fields(table[0])).To(HaveExactElements("CLUSTERQUEUE-POSITION", "LOCALQUEUE-POSITION", "NAMESPACE", "NAME", "QUEUE", "PRIORITY", "AGE", "OWNER", "STAGE", "EXPECTED-START"))
		Expect(strings.Fields(table[3])[:6]).To(HaveExactElements("2", "1", t.namespace, "w2", "queue", "8"))
		for _, row := range table[1:] { // no manager writes starts on what belongs to no JobSet
			Expect(row).To(HaveSuffix("unknown: no maximum execution time: Workload " + t.namespace + "/holder"))
		}
		Expect(tranche(env.AdminKubeconfig, "pending", "-n", t.namespace, "--queue", "other")).To(ContainSubstring("w1"))
		Eventually(func() string {
			return tranche(env.AdminKubeconfig, "pending", "-n", t.namespace, "--queue", "other", "-o", "wide")
		}).WithContext(ctx).Should(
			MatchRegexp(`(?m) REASON +MESSAGE$(?s:.*)` + t.namespace + ` +w1 .* WaitingForQuota +waits for quota in ClusterQueue ` + t.clusterQueue.Name))
		var list pending.List
		Expect(yaml.UnmarshalStrict([]byte(tranche(env.AdminKubeconfig, "pending", "-n", t.namespace, "--queue", "other", "-o", "yaml")), &list)).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
		Expect(list.Items[0].Name).To(Equal("w1"))
		Expect(list.Items[0].ClusterQueue).To(Equal(t.clusterQueue.Name))
		Expect(list.Items[0].Position).To(Equal(&pending.Position{InClusterQueue: 1}))

		By("completing names of the cluster")
		complete := func(args ...string) []string {
			out, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"),
				append([]string{"__complete", args[0], "--kubeconfig", env.AdminKubeconfig, "-n", t.namespace}, args[1:]...)...).Output()
			Expect(err).NotTo(HaveOccurred())
			return strings.Fields(string(out))
		}
		Expect(complete("pending", "--queue", "oth")).To(HaveExactElements("other", ":4"))
		Expect(complete("pending", "--cluster-queue", t.clusterQueue.Name)).To(HaveExactElements(t.clusterQueue.Name, ":4"))
		Expect(complete("pending", "-o", "")).To(HaveExactElements("text", "wide", "json", "yaml", ":4"))
		Expect(complete("explain", "w1")).To(HaveExactElements("w1", ":4"))
		Expect(complete("explain", "workload/w1")).To(HaveExactElements("workload/w1", ":4"))
		Expect(complete("snapshot", "-n", t.namespace)).To(HaveExactElements(t.namespace, ":4"))
		Expect(complete("dashboard", "-n", t.namespace)).To(HaveExactElements(t.namespace, ":4"))
		for _, verb := range []string{"takeover", "hand-back"} {
			args := func(words ...string) *exec.Cmd {
				return exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append([]string{"__complete", verb, "--kubeconfig", env.AdminKubeconfig}, words...)...)
			}
			out, err := args(t.clusterQueue.Name).Output()
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Fields(string(out))).To(HaveExactElements(t.clusterQueue.Name, ":4"))
			out, err = args(t.clusterQueue.Name, t.clusterQueue.Name).Output()
			Expect(err).NotTo(HaveOccurred())
			Expect(strings.Fields(string(out))).To(HaveExactElements(":4"), "it is named already")
		}

		By("completing words of kubectl by the commands of docs/researcher.md")
		home := GinkgoT().TempDir()
		Expect(os.MkdirAll(filepath.Join(home, ".local", "bin"), 0o700)).To(Succeed())
		asPlugin := func(script string) []string {
			shell := exec.CommandContext(ctx, "bash", "-euc", script)
			shell.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG="+env.AdminKubeconfig, "PATH="+strings.Join([]string{
				filepath.Join(home, ".local", "bin"), filepath.Join(env.Root, "bin"), env.Plane.BinDir(), os.Getenv("PATH"),
			}, string(os.PathListSeparator)))
			out, err := shell.Output()
			Expect(err).NotTo(HaveOccurred(), script)
			return strings.Fields(string(out))
		}
		blocks, err := document.Blocks(env.Root)
		Expect(err).NotTo(HaveOccurred())
		i := slices.IndexFunc(blocks, func(b document.Block) bool { return strings.Contains(b.Text, "kubectl_complete-tranche") })
		Expect(i).To(BeNumerically(">=", 0))
		asPlugin(strings.Join(blocks[i].Commands()[:3], "\n"))
		Expect(asPlugin("kubectl_complete-tranche pending -n " + t.namespace + " --queue oth")).To(HaveExactElements("other", ":4"))
		Expect(asPlugin("kubectl tranche version")).To(ContainElement("tranche"))

		w1 := output.Wrap(strings.Join([]string{
			"Workload " + t.namespace + "/w1",
			"  position 1 in its ClusterQueue, 0 in LocalQueue other (0 is next), priority 9",
			"  WaitingForQuota: waits for quota in ClusterQueue " + t.clusterQueue.Name + ": needs 3 cpu of flavor " + onDemand + ": 1 of 4 free",
			"  cpu of flavor " + onDemand + ": needs 3, 1 free, 2 missing",
			"    limit: nominalQuota of ClusterQueue " + t.clusterQueue.Name + " is 4",
			"    held by Workload " + t.namespace + "/holder: 3 in ClusterQueue " + t.clusterQueue.Name + "\n",
		}, "\n"))
		more := w1 + output.Wrap("  expected start: unknown: no maximum execution time: Workload "+t.namespace+"/holder\n"+
			"  any one of these would let it in now:\n"+
			"    1. raise nominalQuota of cpu of flavor "+onDemand+" in ClusterQueue "+t.clusterQueue.Name)
		Expect(tranche(env.AdminKubeconfig, "explain", "-n", t.namespace, "w1")).To(ContainSubstring(more))
		Expect(tranche(env.AdminKubeconfig, "explain", "-n", t.namespace, "holder")).To(ContainSubstring("  is admitted in ClusterQueue \"" + t.clusterQueue.Name + "\", but not all pods are ready yet"))
		Expect(tranche(env.AdminKubeconfig, "explain", "-n", t.namespace, "missing")).To(ContainSubstring(`no JobSet, Job or quota Workload "missing"`))

		By("printing JSON")
		var report struct {
			Workloads []struct {
				Name        string
				Explanation visibilityapi.Explanation
			}
		}
		text, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", "-n", t.namespace, "w1", "-o", "json", "--kubeconfig", env.AdminKubeconfig).Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(text, &report)).To(Succeed())
		Expect(report.Workloads).To(HaveLen(1))
		Expect(report.Workloads[0].Name).To(Equal("w1"))
		Expect(report.Workloads[0].Explanation.Alternatives).To(HaveLen(1))

		By("running it as a plugin of kubectl")
		plugins := GinkgoT().TempDir()
		Expect(os.Symlink(filepath.Join(env.Root, "bin", "tranche"), filepath.Join(plugins, "kubectl-tranche"))).To(Succeed())
		GinkgoT().Setenv("PATH", plugins+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := env.KubectlOutput(ctx, "tranche", "pending", "-n", t.namespace, "--queue", "other")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(ContainSubstring("w1"))

		By("asking the LocalQueue for a user who may not read the ClusterQueue")
		allow(ctx, t.namespace, "explainer", "tranche-pending-workloads-localqueue-viewer", "tranche-queue-viewer", "tranche-workload-viewer")
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(env.Plane.Kubeconfig(kubeconfig, "explainer")).To(Succeed())
		Eventually(func() string { return tranche(kubeconfig, "explain", "-n", t.namespace, "w1") }).WithContext(ctx).Should(And(
			HavePrefix(w1), ContainSubstring("What would let it in is not shown: this needs the right to list "), ContainSubstring("clusterqueues.kueue.x-k8s.io")))
		Expect(tranche(kubeconfig, "pending", "--cluster-queue", t.clusterQueue.Name)).To(ContainSubstring("forbidden"))
		Expect(tranche(kubeconfig, "pending", "-n", t.namespace, "--queue", "other")).To(MatchRegexp(
			`(?m)^1 +0 +` + t.namespace + ` +w1 .* -\nExpected starts that the manager has not written are not shown: this needs the right to list .*clusterqueues\.kueue\.x-k8s\.io`))

		By("saying the same from a snapshot")
		dir := filepath.Join(GinkgoT().TempDir(), "snapshot")
		taken := tranche(env.AdminKubeconfig, "snapshot", "-o", dir)
		Expect(dir).To(BeADirectory(), taken)
		out, err = exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", "w1", "-n", t.namespace, "--snapshot", dir).Output()
		Expect(err).NotTo(HaveOccurred())
		Expect(string(out)).To(HavePrefix(more))

		By("taking a snapshot for a user who may read all objects, but not the visibility API")
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: t.namespace + "-reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: collect.ReaderRole},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reader"}},
		}
		Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, binding)).To(Succeed()) })
		kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(env.Plane.Kubeconfig(kubeconfig, "reader")).To(Succeed())
		Eventually(func() string { return tranche(kubeconfig, "explain", "-n", t.namespace, "w1") }).WithContext(ctx).Should(ContainSubstring(more))
		rows := tranche(kubeconfig, "pending", "-n", t.namespace, "-o", "wide")
		Expect(rows).To(MatchRegexp(`(?m)^1 +0 +` + t.namespace + ` +w1 +other +9 .* unknown: no maximum execution time: Workload ` + t.namespace + `/holder +` +
			t.clusterQueue.Name + ` +WaitingForQuota +waits for quota`))
		Expect(tranche(kubeconfig, "pending", "--cluster-queue", t.clusterQueue.Name, "--limit", "1", "--offset", "1")).To(And(
			ContainSubstring(" w1 "), Not(ContainSubstring(" w0 ")), Not(ContainSubstring(" w2 "))))
	}, SpecTimeout(patience))

	It("is readable only with the RBAC permission", func(ctx SpecContext) {
		allow(ctx, t.namespace, "member")
		Eventually(func(g Gomega) {
			summary, err := readerAs("member").read(ctx, lqOf+"other/pendingworkloads")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(places(summary)).To(Equal([]string{"w1 other 1/0"}))
		}).WithContext(ctx).Should(Succeed())
		_, err := readerAs("member").read(ctx, cqPath)
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		_, err = readerAs("outsider").read(ctx, lqOf+"other/pendingworkloads")
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	}, SpecTimeout(patience))

	It("rejects an invalid request with the reason", func(ctx SpecContext) {
		for question, want := range map[string]string{
			"/clusterqueues/nowhere/pendingworkloads":              `clusterqueues.visibility.kueue.x-k8s.io "nowhere" not found`,
			lqOf + "nowhere/pendingworkloads":                      `localqueues.visibility.kueue.x-k8s.io "nowhere" not found`,
			cqPath + "?limit=-1":                                   `limit: "-1" must be a whole number of 0 or more`,
			cqPath + "?offset=-2":                                  `offset: "-2" must be a whole number of 0 or more`,
			cqPath + "?limit=many":                                 `limit: "many" must be a whole number of 0 or more`,
			cqPath + "?limit=10001":                                "limit: 10001 must be at most 10000",
			cqPath + "?fieldSelector=metadata.name=w1":             "must give metadata.name, and metadata.namespace for a ClusterQueue",
			cqPath + "?fieldSelector=spec.priority=1":              `the field is "spec.priority", but must be metadata.name or metadata.namespace`,
			lqOf + "other/pendingworkloads?fieldSelector=metadata": "fieldSelector: invalid selector",
		} {
			path, query, _ := strings.Cut(question, "?")
			var parameters []string
			if query != "" {
				parameters = append(parameters, query)
			}
			_, err := admin.read(ctx, path, parameters...)
			Expect(err).To(MatchError(ContainSubstring(want)), question)
		}
	}, SpecTimeout(patience))

	It("is printed by tranche explain --watch when it changes", func(ctx SpecContext) {
		addPending := func(name string, priority int32) {
			GinkgoHelper()
			w := create(ctx, t.urgent(name, "4", priority))
			DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, w)).To(Succeed()) })
			expect(ctx, w, "tranche.dev/Waiting=True WaitingForQuota")
		}
		addPending("watched", -1)
		out := gbytes.NewBuffer()
		cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "explain", "-n", t.namespace, "watched", "--watch", "--interval=1s", "--kubeconfig", env.AdminKubeconfig)
		cmd.Stdout, cmd.Stderr = out, GinkgoWriter
		Expect(cmd.Start()).To(Succeed())
		Eventually(out).WithContext(ctx).Should(gbytes.Say(t.namespace + `/watched\n  position 3 in its ClusterQueue`))
		addPending("earlier", 0)
		Eventually(out).WithContext(ctx).Should(gbytes.Say(`position 4 in its ClusterQueue`))
		Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Expect(cmd.Wait()).To(Succeed())
		answers := strings.Split(string(out.Contents()), "Workload "+t.namespace+"/watched\n")
		Expect(slices.Compact(slices.Clone(answers))).To(Equal(answers), "the same answer is printed once")
	}, SpecTimeout(patience))
})

// allow gives a user roles in one namespace: by default the role that may read the pending list of LocalQueues.
func allow(ctx context.Context, namespace, user string, roles ...string) {
	GinkgoHelper()
	if len(roles) == 0 {
		roles = []string{"tranche-pending-workloads-localqueue-viewer"}
	}
	for _, role := range roles {
		Expect(env.adminClient.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
	}
}
