package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
	"github.com/tranche-dev/tranche/test/sample"
)

// A snapshotRun is one run of tranche snapshot.
type snapshotRun struct {
	code            int
	out, errors     string
	dir, kubeconfig string
}

// takeSnapshot runs tranche snapshot as a user; the empty user is the admin.
func takeSnapshot(ctx context.Context, user string, args ...string) *snapshotRun {
	GinkgoHelper()
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(env.Plane.Kubeconfig(kubeconfig, user)).To(Succeed())
	run := &snapshotRun{dir: filepath.Join(GinkgoT().TempDir(), "snapshot"), kubeconfig: kubeconfig}
	cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), append([]string{"snapshot", "--kubeconfig", kubeconfig, "-o", run.dir}, args...)...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		exit, isExit := errors.AsType[*exec.ExitError](err)
		Expect(isExit).To(BeTrue(), "%v", err)
		run.code = exit.ExitCode()
	}
	run.out, run.errors = out.String(), stderr.String()
	return run
}

func (r *snapshotRun) read() *snapshot.Snapshot {
	GinkgoHelper()
	s, err := snapshot.ReadDir(os.DirFS(r.dir))
	Expect(err).NotTo(HaveOccurred())
	return s
}

// content returns all files of the snapshot.
func (r *snapshotRun) content() string {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(r.dir, "*"))
	Expect(err).NotTo(HaveOccurred())
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		all.Write(text)
	}
	return all.String()
}

// connectedQueues returns how many LocalQueues name a ClusterQueue of the snapshot.
func connectedQueues(s *snapshot.Snapshot) (n int) {
	for _, local := range s.LocalQueues {
		if slices.ContainsFunc(s.ClusterQueues, func(q *kueue.ClusterQueue) bool { return q.Name == string(local.Spec.ClusterQueue) }) {
			n++
		}
	}
	return n
}

var _ = Describe("tranche snapshot", Ordered, func() {
	const namespace = "snapshots-of-orion"
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "queue-of-orion"}, Spec: kueue.ClusterQueueSpec{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "orion"}},
		ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors: []kueue.FlavorQuotas{{Name: "flavor-of-orion", Resources: []kueue.ResourceQuota{{
				Name: corev1.ResourceCPU, NominalQuota: sample.Amounts("cpu", "4")[corev1.ResourceCPU],
			}}}},
		}},
	}}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "train-orion", Labels: map[string]string{apis.QueueLabel: "queue", "owner": "orion"},
		Annotations: map[string]string{"secret-note": "orion"},
	}}

	BeforeAll(func(ctx SpecContext) {
		worker := sample.ReplicatedJob("worker", 2, sample.Amounts("cpu", "1"), nil)
		worker.Template.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: "secret-value"}}
		js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{worker}
		workload := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "work"}, Spec: kueue.WorkloadSpec{
			QueueName: "queue", PodSets: []kueue.PodSet{{Name: "main", Count: 3, Template: worker.Template.Spec.Template}},
		}}
		workload.Spec.PodSets[0].Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		objects := []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"team": "orion"}}},
			&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "flavor-of-orion"}}, queue,
			&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "queue"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "queue-of-orion"}},
			js, workload,
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}, Spec: batchv1.JobSpec{Template: *worker.Template.Spec.Template.DeepCopy()}},
		}
		config, err := os.ReadFile(filepath.Join(env.Root, "config", "manager", "config.yaml"))
		Expect(err).NotTo(HaveOccurred())
		objects = append(objects, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: "tranche-manager"}, Data: map[string]string{snapshot.ConfigKey: string(config)},
		})
		created := objects[:0:0]
		for _, object := range objects {
			err := env.adminClient.Create(ctx, object)
			if _, isConfig := object.(*corev1.ConfigMap); isConfig && apierrors.IsAlreadyExists(err) {
				continue // another spec has applied config/default
			}
			Expect(err).NotTo(HaveOccurred())
			created = append(created, object)
		}
		DeferCleanup(func(ctx SpecContext) {
			for i := range created {
				Expect(env.adminClient.Delete(ctx, created[len(created)-1-i], client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			}
		})
	}, NodeTimeout(patience))

	It("saves the objects that decide admission", func(ctx SpecContext) {
		run := takeSnapshot(ctx, "")
		Expect(run.code).To(BeZero(), "%s%s", run.out, run.errors)
		Expect(run.errors).To(MatchRegexp(`(?m)^read \d+ objects of \d+ kinds$`))
		Expect(run.out).To(MatchRegexp(`(?m)^\S+/snapshot: \d+ objects, \S+ KiB, named, taken at \S+$`))
		pending, err := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), "pending", "--snapshot", run.dir, "-n", namespace).Output() // Errors name what other specs left that is not simulated.
		Expect(err).NotTo(HaveOccurred())
		// The JobSet, of which there is no quota Workload yet, may have been created in the same second, and precede it.
		Expect(string(pending)).To(MatchRegexp(`^CLUSTERQUEUE-POSITION +LOCALQUEUE-POSITION +NAMESPACE +NAME +QUEUE +PRIORITY +AGE +OWNER +STAGE +EXPECTED-START\n\d+ +\d+ +` + namespace +
			` +work +queue +0 +\d+s +- +- +(by .* \(0s after the snapshot\)|unknown: no maximum execution time: JobSet ` + namespace + `/train-orion)\n$`))
		var s *snapshot.Snapshot
		Eventually(func(g Gomega) { // another spec may have left objects that are being deleted
			run = takeSnapshot(ctx, "")
			s = run.read()
			var queues kueue.ClusterQueueList
			g.Expect(env.adminClient.List(ctx, &queues)).To(Succeed())
			g.Expect(s.ClusterQueues).To(HaveLen(len(queues.Items)))
			for i := range queues.Items {
				g.Expect(s.ClusterQueues[i].Spec).To(BeComparableTo(queues.Items[i].Spec))
				g.Expect(s.ClusterQueues[i].UID).To(Equal(queues.Items[i].UID))
			}
			var jobSets jobsetapi.JobSetList
			g.Expect(env.adminClient.List(ctx, &jobSets)).To(Succeed())
			g.Expect(s.JobSets).To(HaveLen(len(jobSets.Items)))
			var workloads kueue.WorkloadList
			g.Expect(env.adminClient.List(ctx, &workloads)).To(Succeed())
			g.Expect(s.Workloads).To(HaveLen(len(workloads.Items)))
		}).WithContext(ctx).Should(Succeed())
		Expect(s.Configuration).NotTo(BeNil())
		Expect(s.Gaps).To(BeEmpty())
		Expect(s.Nodes).To(HaveLen(2))

		for _, found := range s.JobSets {
			if found.Namespace == namespace {
				Expect(found.Labels).To(HaveKeyWithValue(apis.QueueLabel, "queue"))
				Expect(found.Spec.ReplicatedJobs[0].Template.Labels).To(HaveKeyWithValue(apis.HoldLabel, apis.HoldValue))
				Expect(found.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Resources.Requests).To(BeComparableTo(sample.Amounts("cpu", "1")))
			}
		}
		for _, job := range s.Jobs { // those of other specs, too: Jobs are children of JobSets or wait in a queue
			Expect(job.Labels).To(Or(HaveKey(jobset.JobSetNameKey), HaveKey(apis.QueueLabel)), "Job %s/%s", job.Namespace, job.Name)
		}
		Expect(run.content()).NotTo(Or(ContainSubstring("secret-value"), ContainSubstring("secret-note"), ContainSubstring("managedFields")))
	}, SpecTimeout(patience))

	It("saves pseudonyms instead of names", func(ctx SpecContext) {
		run := takeSnapshot(ctx, "", "--anonymize")
		Expect(run.code).To(BeZero(), "%s%s", run.out, run.errors)
		Expect(run.content()).NotTo(ContainSubstring("orion"))
		s := run.read()
		Expect(s.IsAnonymized).To(BeTrue())

		// A name has the same pseudonym everywhere: as many LocalQueues name an existing ClusterQueue as in a snapshot with names.
		named := takeSnapshot(ctx, "").read()
		Expect(connectedQueues(s)).To(And(BeNumerically(">", 0), Equal(connectedQueues(named))))
	}, SpecTimeout(patience))

	It("names the rights that a user lacks, and saves the rest", func(ctx SpecContext) {
		const user = "observer-of-snapshots"
		bind(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tranche-workload-viewer"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
		var run *snapshotRun
		Eventually(func(g Gomega) {
			run = takeSnapshot(ctx, user, "-n", namespace)
			g.Expect(run.code).To(Equal(3), "%s%s", run.out, run.errors)
			g.Expect(run.out).To(ContainSubstring("      1 workloads.kueue.x-k8s.io\n"))
		}).WithContext(ctx).Should(Succeed())
		Expect(run.out).To(ContainSubstring(`missing: nodes: User "observer-of-snapshots" cannot list resource "nodes" in API group "" at the cluster scope; ` +
			"ask for the right to list nodes, for example by a ClusterRoleBinding to the ClusterRole tranche-snapshot-reader\n"))
		Expect(run.out).To(ContainSubstring("missing: jobsets.jobset.x-k8s.io in namespace " + namespace + ": User"))
		Expect(run.errors).To(HaveSuffix("tranche: the snapshot is incomplete: 17 gaps, see the lines \"missing\"\n"))
		s := run.read()
		Expect(s.Workloads).To(HaveLen(1))
		Expect(s.OnlyNamespaces).To(HaveExactElements(namespace))
		Expect(s.Gaps).To(HaveLen(17))

		By("saying what can be answered without them")
		ask := func(args ...string) (out, stderr string, code int) {
			cmd := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "tranche"), args...) // #nosec G204 -- arguments of the test
			var stdout, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &errs
			_ = cmd.Run()
			return stdout.String(), errs.String(), cmd.ProcessState.ExitCode()
		}
		explained, warnings, code := ask("explain", "-n", namespace, "work", "--snapshot", run.dir)
		Expect(code).To(BeZero(), "%s%s", explained, warnings)
		Expect(explained).To(And(HavePrefix("Workload "+namespace+"/work\n"),
			ContainSubstring("Queue positions and holders of quota are not shown: the snapshot lacks namespaces, resourceflavors")))
		Expect(warnings).To(ContainSubstring("missing: clusterqueues.kueue.x-k8s.io: User"))
		_, refusal, code := ask("pending", "--snapshot", run.dir)
		Expect(code).To(Equal(2))
		Expect(refusal).To(ContainSubstring("tranche: the snapshot lacks namespaces, resourceflavors"))
		for _, from := range [][]string{{"--snapshot", run.dir}, {"--kubeconfig", run.kubeconfig}} {
			planned, refusal, code := ask(append([]string{"plan", "-f", filepath.Join(env.Root, "config", "samples", "queues")}, from...)...)
			Expect(code).To(Equal(1), "%s", from)
			Expect(planned).To(BeEmpty())
			Expect(refusal).To(And(ContainSubstring("for example by a ClusterRoleBinding to the ClusterRole tranche-snapshot-reader"),
				ContainSubstring("what follows from a change is not known")), "%s", from)
		}

		By("granting the role that the message names")
		bind(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tranche-snapshot-reader"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})
		Eventually(func(g Gomega) {
			run = takeSnapshot(ctx, user)
			g.Expect(run.code).To(BeZero(), "%s%s", run.out, run.errors)
		}).WithContext(ctx).Should(Succeed())
	}, SpecTimeout(patience))

	It("reads a kind again if the API server has dropped the version of its first page", func(ctx SpecContext) {
		reader := &expiringReader{Reader: env.adminClient, failed: map[string]bool{}}
		config := collect.Config{
			Reader: reader, Scheme: env.adminClient.Scheme(), PageSize: 1, ConfigMap: client.ObjectKey{Namespace: apis.SystemNamespace, Name: "tranche-manager"},
		}
		var s *snapshot.Snapshot
		Eventually(func(g Gomega) { // another spec may have left a namespace that is being deleted
			var err error
			s, err = collect.Read(ctx, &config, "v1")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(reader.failed).To(HaveKey("*v1.NamespaceList"))
			var namespaces corev1.NamespaceList
			g.Expect(env.adminClient.List(ctx, &namespaces)).To(Succeed())
			g.Expect(s.Namespaces).To(HaveLen(len(namespaces.Items)))
		}).WithContext(ctx).Should(Succeed())
		Expect(s.Workloads).NotTo(BeEmpty())
		Expect(s.Configuration).NotTo(BeNil())
		Expect(s.Gaps).To(BeEmpty())
	}, SpecTimeout(patience))

	It("says how to name another ConfigMap if there is none, with the flags of the verb", func(ctx SpecContext) {
		config := collect.Config{Reader: env.adminClient, Scheme: env.adminClient.Scheme(), ConfigMap: client.ObjectKey{Namespace: namespace, Name: "missing"}}
		for _, name := range []string{"", "take a snapshot with --config-map"} {
			config.NameConfigMap = name
			s, err := collect.Read(ctx, &config, "v1")
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Gaps).To(HaveExactElements(snapshot.Gap{
				Resource: "configmaps", Namespaces: []string{namespace}, IsAbsent: true, Reason: "ConfigMap " + namespace + "/missing does not exist",
				Cure: cmp.Or(name, "name the ConfigMap of the manager with --config-map") + "; until then the defaults count",
			}))
		}
	}, SpecTimeout(patience))

	It("reads the output of kubectl, too", func(ctx SpecContext) {
		for _, format := range []string{"yaml", "json"} {
			out, err := env.KubectlOutput(ctx, "get", "clusterqueues,workloads,jobsets", "--namespace", namespace, "-o", format)
			Expect(err).NotTo(HaveOccurred())
			s, err := snapshot.ReadStream("kubectl", bytes.NewReader(out))
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Workloads).To(HaveLen(1))
			Expect(s.JobSets).To(HaveLen(1))
			Expect(s.ClusterQueues).NotTo(BeEmpty())
		}
	}, SpecTimeout(patience))
})

// An expiringReader rejects the second page of each kind once, as the API server does after it has compacted its versions.
type expiringReader struct {
	client.Reader
	failed map[string]bool
}

// List implements client.Reader.
func (r *expiringReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	all := client.ListOptions{}
	all.ApplyOptions(options)
	if kind := fmt.Sprintf("%T", list); all.Continue != "" && !r.failed[kind] {
		r.failed[kind] = true
		return apierrors.NewResourceExpired("the provided continue parameter is too old")
	}
	return r.Reader.List(ctx, list, options...)
}

// bind creates a binding until the end of the spec.
func bind(ctx context.Context, binding client.Object) {
	GinkgoHelper()
	Expect(env.adminClient.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, binding)).To(Succeed()) })
}
