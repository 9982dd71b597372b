// Package shadow_test runs tranche shadow on a real API server with the stock JobSet controller and Kueue's CRDs, but without Tranche and without Kueue,
// which the tests play.
package shadow_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/shadow"
	report "github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/shadow/auditlog"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
)

const (
	root      = "../../.."
	gpu       = corev1.ResourceName("nvidia.com/gpu")
	namespace = "team-shadow"
	// viewer is the user who runs tranche shadow: that of the Deployment in config/shadow.
	viewer   = "system:serviceaccount:tranche-system:tranche-shadow"
	patience = time.Minute
	poll     = 50 * time.Millisecond
)

// TestShadow watches a cluster while a JobSet of two stages runs under quota that Kueue has admitted as a whole.
func TestShadow(t *testing.T) {
	g := NewWithT(t)
	plane := start(t)
	admin := adminOf(t, plane)
	createQueues(t, admin)
	install(t, admin)

	ctx, interrupt := context.WithCancel(t.Context())
	port, err := controlplane.FreePort()
	g.Expect(err).NotTo(HaveOccurred())
	address := fmt.Sprintf("127.0.0.1:%d", port)
	live := watch(ctx, t, plane, viewer, "-o", "json", "--metrics-bind-address", address, "--report-interval", "1s")
	g.Eventually(live.warnings.String, patience, poll).Should(ContainSubstring("watching until interrupted\n"))
	runJobSet(t, admin)
	g.Eventually(func() string { return get(ctx, t, "http://"+address+"/metrics") }, patience, poll).Should(And(
		ContainSubstring("tranche_shadow_jobsets{state=\"finished\"} 1\n"), MatchRegexp(`tranche_shadow_idle_seconds\{cause="LaterStage",resource="nvidia.com/gpu"\} [1-9]`)))
	interrupt()
	g.Eventually(live.done, patience, poll).Should(BeClosed())
	g.Expect(live.err).NotTo(HaveOccurred())
	watched := decode(t, live.out.String())
	check(t, watched)
	g.Expect(watched.Gaps).To(BeEmpty())

	logged := watch(t.Context(), t, nil, "", "--audit-log", plane.AuditLog(), "-o", "json")
	g.Eventually(logged.done, patience, poll).Should(BeClosed())
	g.Expect(logged.err).NotTo(HaveOccurred())
	fromLog := decode(t, logged.out.String())
	check(t, fromLog)
	g.Expect(fromLog.Resources[0].Held).To(BeNumerically("~", watched.Resources[0].Held, 4), "the times are those of the objects")

	verbs := requestsOf(t, plane.AuditLog(), viewer)
	t.Logf("requests of %s: %v", viewer, verbs)
	for _, needed := range []string{"list", "watch"} {
		g.Expect(verbs).To(HaveKey(needed))
		delete(verbs, needed)
	}
	delete(verbs, "get") // discovery
	g.Expect(verbs).To(BeEmpty(), "tranche shadow writes nothing")

	t.Run("some rights", func(t *testing.T) { checkSomeRights(t, plane, admin) })
	t.Run("no rights", func(t *testing.T) { checkNoRights(t, plane) })
}

// checkSomeRights lets a user watch who may only read JobSets and Jobs.
func checkSomeRights(t *testing.T, plane *controlplane.ControlPlane, admin client.Client) {
	t.Helper()
	g := NewWithT(t)
	const user = "viewer-of-jobs"
	create(t, admin, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"jobset.x-k8s.io"}, Resources: []string{"jobsets"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"list", "watch"}},
	}}, bindingOf(user, user))
	run := watch(t.Context(), t, plane, user, "--for", "1s")
	g.Eventually(run.done, patience, poll).Should(BeClosed())
	g.Expect(run.err).NotTo(HaveOccurred())
	g.Expect(run.out.String()).To(ContainSubstring("1 JobSet, 1 with several stages; 1 finished"))
	g.Expect(run.out.String()).To(ContainSubstring(`missing: workloads.kueue.x-k8s.io: User "viewer-of-jobs" cannot list resource "workloads" in API group "kueue.x-k8s.io" ` +
		"at the cluster scope (what JobSets hold is measured from their Jobs, and other jobs are not replayed); ask for the right to list and watch " +
		"workloads.kueue.x-k8s.io, for example by a ClusterRoleBinding to the ClusterRole tranche-shadow-reader of config/shadow/role.yaml\n"))
	g.Expect(run.out.String()).To(ContainSubstring("missing: clusterqueues.kueue.x-k8s.io: "))
}

func checkNoRights(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	g := NewWithT(t)
	run := watch(t.Context(), t, plane, "stranger")
	g.Eventually(run.done, patience, poll).Should(BeClosed())
	g.Expect(run.err).To(MatchError(ContainSubstring("there is nothing to report without JobSets: jobsets.jobset.x-k8s.io: ")))
	g.Expect(run.err).To(MatchError(ContainSubstring("ClusterRole tranche-shadow-reader")))
}

// start starts a control plane whose audit policy is the documented one, and also logs what the viewer requests.
func start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	g := NewWithT(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	own := "rules:\n- level: Metadata\n  users: ['" + viewer + "']\n"
	g.Expect(os.WriteFile(policy, []byte(strings.Replace(auditlog.Policy, "rules:\n", own, 1)), 0o600)).To(Succeed())
	bin, err := controlplane.BuildDir(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	crds, err := filepath.Glob(filepath.Join(root, "config", "crd", "kueue.x-k8s.io_*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	plane, err := controlplane.Start(t.Context(), controlplane.Config{
		CRDs: append(crds, controlplane.UpstreamCRDs(bin)), BinDir: bin, AuditPolicy: policy,
		NodePools: []controlplane.NodePool{{Name: "gpu", Count: 1, Allocatable: sample.Amounts("cpu", "64", "memory", "64Gi", string(gpu), "8")}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(plane.Stop()).To(Succeed()) })
	return plane
}

func adminOf(t *testing.T, plane *controlplane.ControlPlane) client.Client {
	t.Helper()
	g := NewWithT(t)
	scheme, err := query.NewScheme()
	g.Expect(err).NotTo(HaveOccurred())
	admin, err := client.New(plane.AdminConfig(), client.Options{Scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	return admin
}

func create(t *testing.T, admin client.Client, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		NewWithT(t).Expect(admin.Create(t.Context(), object)).To(Succeed())
	}
}

func createQueues(t *testing.T, admin client.Client) {
	t.Helper()
	create(t, admin,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpu}, Flavors: []kueue.FlavorQuotas{{
				Name: "gpus", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: resource.MustParse("8")}},
			}}}},
		}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "queue"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cluster"}},
	)
}

// install creates the objects of config/shadow. The pod of the Deployment does nothing on a fake node: the tests run in its place.
func install(t *testing.T, admin client.Client) {
	t.Helper()
	g := NewWithT(t)
	text, err := os.ReadFile(filepath.Join(root, "charts", "tranche", "files", "shadow.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		g.Expect(yaml.UnmarshalStrict([]byte(document), object)).To(Succeed())
		create(t, admin, object)
	}
}

func bindingOf(role, user string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
}

// runJobSet runs a JobSet that prepares on 1 GPU for 3 seconds, and then trains on 4, under a Workload as Kueue would make it.
func runJobSet(t *testing.T, admin client.Client) {
	t.Helper()
	g := NewWithT(t)
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pipeline", Labels: map[string]string{apis.QueueLabel: "queue"}}}
	js.Spec.Suspend = new(true)
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{
		sample.ReplicatedJob("prepare", 1, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: "3"}),
		sample.ReplicatedJob("train", 4, sample.Amounts(string(gpu), "1"), map[string]string{controlplane.FakeRunTime: "2"}),
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "prepare", Status: jobset.DependencyComplete}}
	create(t, admin, js)
	w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "jobset-pipeline-a1b2c"}, Spec: kueue.WorkloadSpec{QueueName: "queue"}}
	w.OwnerReferences = []metav1.OwnerReference{{APIVersion: jobset.GroupVersion.String(), Kind: "JobSet", Name: js.Name, UID: js.UID, Controller: new(true)}}
	admission := &kueue.Admission{ClusterQueue: "cluster"}
	for i := range js.Spec.ReplicatedJobs {
		r := &js.Spec.ReplicatedJobs[i]
		pods := *r.Template.Spec.Parallelism
		podSet := kueue.PodSet{Name: kueue.PodSetReference(r.Name), Count: pods, Template: *r.Template.Spec.Template.DeepCopy()}
		w.Spec.PodSets = append(w.Spec.PodSets, podSet)
		admission.PodSetAssignments = append(admission.PodSetAssignments, kueue.PodSetAssignment{
			Name: podSet.Name, Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "gpus"},
			ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(int64(pods), resource.DecimalSI)},
		})
	}
	create(t, admin, w)
	w.Status.Admission = admission
	setTrue(t, admin, w, kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted)
	before := js.DeepCopy()
	js.Spec.Suspend = new(false)
	g.Expect(admin.Patch(t.Context(), js, client.MergeFrom(before))).To(Succeed())
	g.Eventually(func() string {
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(js), js)).To(Succeed())
		return js.Status.TerminalState
	}, patience, poll).Should(Equal(string(jobset.JobSetCompleted)))
	setTrue(t, admin, w, kueue.WorkloadFinished)
}

// setTrue writes conditions as Kueue does.
func setTrue(t *testing.T, admin client.Client, w *kueue.Workload, conditions ...string) {
	t.Helper()
	for _, name := range conditions {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: name, Status: metav1.ConditionTrue, Reason: "Played", LastTransitionTime: metav1.Now(),
		})
	}
	NewWithT(t).Expect(admin.Status().Update(t.Context(), w)).To(Succeed())
}

// check checks what can be said of a report although the times vary: training held 4 GPUs while the JobSet prepared.
func check(t *testing.T, r *report.Report) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(r.JobSets).To(Equal(report.Counts{Total: 1, Staged: 1, Finished: 1}))
	g.Expect(r.Resources).To(HaveLen(1))
	gpus := r.Resources[0]
	g.Expect(gpus.Name).To(Equal(gpu))
	g.Expect(gpus.Idle[report.LaterStage]).To(BeNumerically(">=", 4*2), "4 GPUs for 3 seconds, in times of whole seconds")
	g.Expect(gpus.Used).To(BeNumerically(">=", 2+4*1))
	g.Expect(gpus.Saved).To(BeNumerically(">=", 4*2))
	g.Expect(r.Error.Compared).To(Equal(1), "%+v", r)
	g.Expect(r.Error.MaxSeconds).To(BeNumerically("<=", 2), "it was admitted at once")
	g.Expect(r.LeftOut).To(BeEmpty())
	g.Expect(r.InactiveQueues).To(BeEmpty())
}

// A shadowRun is one run of tranche shadow.
type shadowRun struct {
	out, warnings buffer
	done          chan struct{}
	err           error
}

// A buffer may be read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns what was written.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

var _ io.Writer = (*buffer)(nil)

// watch runs tranche shadow, as a user if there is a control plane.
func watch(ctx context.Context, t *testing.T, plane *controlplane.ControlPlane, user string, args ...string) *shadowRun {
	t.Helper()
	if plane != nil {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		NewWithT(t).Expect(plane.Kubeconfig(kubeconfig, user)).To(Succeed())
		args = append(args, "--kubeconfig", kubeconfig)
	}
	cmd := shadow.NewCommand("test")
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	run := &shadowRun{done: make(chan struct{})}
	cmd.SetOut(&run.out)
	cmd.SetErr(&run.warnings)
	cmd.SetArgs(args)
	go func() {
		defer close(run.done)
		run.err = cmd.ExecuteContext(ctx)
	}()
	return run
}

// get returns the body of a page, or "" if it is not served.
func get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(response.Body)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(body)
}

func decode(t *testing.T, text string) *report.Report {
	t.Helper()
	var r report.Report
	NewWithT(t).Expect(json.Unmarshal([]byte(text), &r)).To(Succeed(), "%s", text)
	return &r
}

// requestsOf counts the requests of a user in an audit log by verb.
func requestsOf(t *testing.T, path, user string) map[string]int {
	t.Helper()
	g := NewWithT(t)
	file, err := os.Open(path)
	g.Expect(err).NotTo(HaveOccurred())
	defer file.Close() //nolint:errcheck // the file is only read
	verbs := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var event struct {
			Verb string `json:"verb"`
			User struct {
				Username string `json:"username"`
			} `json:"user"`
		}
		g.Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		if event.User.Username == user {
			verbs[event.Verb]++
		}
	}
	g.Expect(lines.Err()).NotTo(HaveOccurred())
	return verbs
}
