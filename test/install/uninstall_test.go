package install_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

// A cluster has Tranche installed, and a queue with 2 CPUs.
type cluster struct {
	*shell
	*testenv.World
}

// TestUninstall goes through the ways of docs/admin.md in turn: deploy an image, uninstall and keep what runs, install again, and uninstall
// everything.
func TestUninstall(t *testing.T) {
	w, err := testenv.Start(t.Context(), controlplane.Config{NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 2, Allocatable: sample.Amounts("cpu", "64", "memory", "256Gi")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{shell: newShell(t, w.Plane, w.Root), World: w}
	t.Run("make deploy runs the image", c.deploys)
	c.doctor(t, false, "no manager has led yet", "there is no ResourceFlavor", "there are 0 ClusterQueues and 0 LocalQueues")
	manager := c.start(t)
	c.createQueues(t)
	t.Run("tranche doctor", c.examinesItself)
	t.Run("uninstall keeps what runs", func(t *testing.T) { c.keepsRunning(t, manager) })
	t.Run("install again", c.installsAgain)
	t.Run("another CRD of JobSets", c.keepsOrder)
	t.Run("a manager without CRDs is not ready", c.unready)
	t.Run("uninstall everything", c.removesEverything)
}

func (c *cluster) deploys(t *testing.T) {
	const image = "registry.example.com:5000/team/tranche:v9"
	c.command(t, "make", "deploy", "IMAGE="+image)
	if got := c.kubectl(t, "get", "deployment", "-n", "tranche-system", "tranche-manager", "-o", "jsonpath={.spec.template.spec.containers[*].image}"); got != image {
		t.Errorf("the manager runs %q, want %q", got, image)
	}
	if got := c.kubectl(t, "get", "configmap", "-n", "tranche-system", "tranche-guards", "-o", "jsonpath={.data.groupStartImage}"); got != image {
		t.Errorf("pods of groups wait in %q, want %q", got, image)
	}
}

// start runs the real manager, in addition to the pods of its Deployment, which fake nodes only pretend to run.
func (c *cluster) start(t *testing.T) *testenv.Manager {
	t.Helper()
	m, err := c.StartManager(t.Context(), testenv.ManagerOptions{Settings: map[string]any{"leaderElection": map[string]any{"leaderElect": true}}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (c *cluster) createQueues(t *testing.T) {
	t.Helper()
	quota := kueue.ResourceQuota{Name: corev1.ResourceCPU, NominalQuota: sample.Amounts("cpu", "2")[corev1.ResourceCPU]}
	for _, object := range []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}},
		&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
				Flavors:          []kueue.FlavorQuotas{{Name: "cpu", Resources: []kueue.ResourceQuota{quota}}},
			}},
		}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}},
		&kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "all"}},
	} {
		if err := c.Admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *cluster) keepsRunning(t *testing.T, manager *testenv.Manager) {
	t.Helper()
	// The second stage is created held while no manager runs any longer.
	runs := queued("runs", "main", 1, map[string]string{controlplane.FakeReadyAfter: "5s", controlplane.FakeExit: controlplane.FakeExitNever}, "first", "second")
	waits := queued("waits", "main", 2, nil, "only")
	c.create(t, runs)
	eventually(t, "the first stage runs", func() bool { return len(c.pods(t, runs)) == 1 })
	job := queuedJob("index")
	c.createJob(t, job)
	eventually(t, "the queued Job runs", func() bool { return len(c.podsOfJob(t, job)) == 1 })
	indexing := c.podsOfJob(t, job)[0]
	c.create(t, waits)
	c.awaitWorkload(t, waits)
	if err := manager.Stop(); err != nil {
		t.Fatal(err)
	}
	c.doctor(t, false, "no manager has led since", "-> start a manager")
	first := c.pods(t, runs)[0]
	eventually(t, "the second stage is held", func() bool {
		held := c.kubectl(t, "get", "jobs", "-n", "team", "-o", "jsonpath={.items[?(@.spec.suspend==true)].metadata.name}")
		return strings.Contains(held, "runs-second-0") && !strings.Contains(held, "runs-first-0")
	})

	out, err := c.try(t.Context(), "bin/tranche", "uninstall", "--check")
	for _, want := range []string{"Deployment tranche-system/tranche-manager", "tranche-hold-jobs", "1 JobSet with running stages", "1 held Job", "1 JobSet pending or suspended", "1 queued Job running", "ClusterQueue", "4 Workloads"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("uninstall --check does not name %q, or did not fail (%v):\n%s", want, err, out)
		}
	}
	if out, err := c.try(t.Context(), "bin/tranche", "uninstall"); err == nil {
		t.Errorf("uninstall did not refuse to begin while Tranche is installed:\n%s", out)
	}

	c.kubectl(t, "delete", "-k", "config/default")
	if out := c.command(t, "bin/tranche", "uninstall"); !strings.Contains(out, "removed the finalizer "+kueue.ResourceInUseFinalizerName+" of ") {
		t.Errorf("uninstall does not name the finalizer that it removes:\n%s", out)
	}
	if got := c.finalizers(t); got != "" {
		t.Errorf("finalizers are left: %s", got)
	}
	eventually(t, "the second stage runs", func() bool { return len(c.pods(t, runs)) == 2 })
	kept := false
	for _, pod := range c.pods(t, runs) {
		kept = kept || pod.UID == first.UID && pod.DeletionTimestamp == nil
	}
	if !kept {
		t.Error("the pod of the first stage did not go on")
	}
	if now := c.podsOfJob(t, job); len(now) != 1 || now[0].UID != indexing.UID || now[0].DeletionTimestamp != nil {
		t.Error("the pod of the queued Job did not go on")
	}
	c.get(t, waits)
	if !ptr.Deref(waits.Spec.Suspend, false) {
		t.Error("a JobSet that waited for quota has started")
	}
	c.delete(t, waits)
}

// installsAgain checks that the API server acts on the parameters of policies that were deleted and are there again.
func (c *cluster) installsAgain(t *testing.T) {
	c.kubectl(t, "apply", "--server-side", "-k", "config/default")
	eventually(t, "JobSets are held again", func() bool {
		js := queued("probe", "main", 1, nil, "only")
		return c.Admin.Create(t.Context(), js, client.DryRunAll) == nil && ptr.Deref(js.Spec.Suspend, false)
	})
	// The API server reads new parameters.
	for _, without := range []string{"true", "false"} {
		c.kubectl(t, "patch", "configmap", "-n", "tranche-system", "tranche-guards", "--type=merge", "-p", `{"data":{"manageJobSetsWithoutQueueName":"`+without+`"}}`)
		eventually(t, "JobSets without a queue are held: "+without, func() bool {
			js := queued("probe", "", 1, nil, "only")
			return c.Admin.Create(t.Context(), js, client.DryRunAll) == nil && ptr.Deref(js.Spec.Suspend, false) == (without == "true")
		})
	}
	manager := c.start(t)
	c.paysForWhatRuns(t)
	js := queued("again", "main", 1, nil, "only")
	c.create(t, js)
	eventually(t, "a JobSet completes", func() bool {
		c.get(t, js)
		return js.Status.TerminalState == string(jobset.JobSetCompleted)
	})
	if err := manager.Stop(); err != nil {
		t.Fatal(err)
	}
	c.delete(t, js)
}

// paysForWhatRuns checks that a stage is charged beyond quota which the JobSet controller has started while Tranche was not installed. The first stage and a
// queued Job hold all quota.
func (c *cluster) paysForWhatRuns(t *testing.T) {
	t.Helper()
	runs := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "runs"}}
	eventually(t, "both stages are charged", func() bool {
		var list kueue.WorkloadList
		if err := c.Admin.List(t.Context(), &list, client.InNamespace("team"), client.MatchingLabels{apis.JobSetLabel: "runs"}); err != nil {
			t.Fatal(err)
		}
		admitted := 0
		for i := range list.Items {
			if apimeta.IsStatusConditionTrue(list.Items[i].Status.Conditions, kueue.WorkloadAdmitted) {
				admitted++
			}
		}
		c.get(t, runs)
		return admitted == 2 && apimeta.IsStatusConditionTrue(runs.Status.Conditions, "StageAdmitted")
	})
	if now := c.pods(t, runs); len(now) != 2 || now[0].DeletionTimestamp != nil || now[1].DeletionTimestamp != nil {
		t.Errorf("the pods of the stages did not go on: %v", now)
	}
	c.delete(t, runs)
	c.kubectl(t, "delete", "job", "-n", "team", "index", "--timeout=1m")
}

// keepsOrder applies the JobSet project's CRD over Tranche's while a JobSet runs whose order depends on a field of Tranche.
func (c *cluster) keepsOrder(t *testing.T) {
	manager := c.start(t)
	ordered := func(name string) *jobsetapi.JobSet {
		js := queued(name, "main", 1, map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}, "prepare", "train")
		js.Spec.StartupPolicy.Rules = []jobsetapi.StartupPolicyRule{{TargetReplicatedJobs: []string{"prepare"}, WaitForReplicatedJobsStatus: jobsetapi.SucceededStatus}}
		return js
	}
	before, meanwhile := ordered("before"), ordered("meanwhile")
	c.create(t, before)
	eventually(t, "the first stage runs", func() bool { return len(c.pods(t, before)) == 1 })
	fields := manager.Health + "/readyz/jobset-fields"
	if got := status(t, fields); got != http.StatusOK {
		t.Errorf("with Tranche's CRD /readyz/jobset-fields answers %d", got)
	}

	c.kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", controlplane.UpstreamCRDs(c.Plane.BinDir()))
	eventually(t, "the manager is not ready", func() bool { return status(t, fields) == http.StatusInternalServerError })
	c.doctor(t, false, "CustomResourceDefinition jobsets.jobset.x-k8s.io lacks", "spec.startupPolicy.rules", "-> apply config/crd")
	c.kubectl(t, "label", "jobset", "-n", "team", before.Name, "written=again")
	eventually(t, "the JobSet reports that it has lost its rules", func() bool {
		c.get(t, before)
		return len(before.Spec.StartupPolicy.Rules) == 0 && reasonOf(before, "SpecPruned") == "FieldsRecorded"
	})
	c.create(t, meanwhile)
	eventually(t, "a JobSet that is submitted meanwhile is refused", func() bool {
		c.get(t, meanwhile)
		return reasonOf(meanwhile, "SpecPruned") == "FieldsUnknown" && reasonOf(meanwhile, "StageAdmitted") == kueue.WorkloadQuotaReservedReasonMisconfigured
	})

	c.kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", "config/crd")
	eventually(t, "the manager is ready", func() bool { return status(t, fields) == http.StatusOK })
	pods := c.pods(t, before)
	if len(pods) != 1 || len(c.pods(t, meanwhile)) != 0 {
		t.Fatalf("%d pods of the JobSet that runs, and %d of the refused one; want 1, because its first stage has not succeeded, and 0", len(pods), len(c.pods(t, meanwhile)))
	}
	pods[0].Status.Phase = corev1.PodSucceeded
	if err := c.Admin.Status().Update(t.Context(), &pods[0]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second stage follows", func() bool {
		return slices.ContainsFunc(c.pods(t, before), func(pod corev1.Pod) bool { return pod.Labels[jobset.ReplicatedJobNameKey] == "train" })
	})
	c.get(t, meanwhile)
	if got := reasonOf(meanwhile, "SpecPruned"); got != "FieldsUnknown" {
		t.Errorf("when Tranche's CRD is back, the refused JobSet has the reason %q", got)
	}
	c.delete(t, before)
	c.delete(t, meanwhile)
	if err := manager.Stop(); err != nil {
		t.Fatal(err)
	}
}

// reasonOf returns the reason of a condition of a JobSet, or "".
func reasonOf(js *jobsetapi.JobSet, conditionType string) string {
	if c := apimeta.FindStatusCondition(js.Status.Conditions, conditionType); c != nil {
		return c.Reason
	}
	return ""
}

func (c *cluster) unready(t *testing.T) {
	manager := c.start(t)
	c.kubectl(t, "delete", "crd", "cohorts.kueue.x-k8s.io")
	eventually(t, "the manager is not ready", func() bool { return status(t, manager.Health+"/readyz/crds") == http.StatusInternalServerError })
	c.doctor(t, false, "CustomResourceDefinition cohorts.kueue.x-k8s.io does not exist", "-> apply config/crd")
	if err := manager.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.StartManager(t.Context(), testenv.ManagerOptions{}); err == nil || !strings.Contains(err.Error(), "no CRD for cohorts.kueue.x-k8s.io: apply config/crd") {
		t.Errorf("a manager without the CRD of Cohorts started, or did not say why not: %v", err)
	}
	c.kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", "config/crd")
}

func (c *cluster) removesEverything(t *testing.T) {
	manager := c.start(t)
	runs := queued("runs", "main", 1, map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}, "first", "second")
	other := queued("other", "", 1, map[string]string{controlplane.FakeExit: controlplane.FakeExitNever}, "only")
	c.create(t, runs)
	c.create(t, other)
	eventually(t, "all stages run", func() bool { return len(c.pods(t, runs)) == 2 && len(c.pods(t, other)) == 1 })
	waits := queuedJob("waits") // the stages hold all quota
	c.createJob(t, waits)
	if err := manager.Stop(); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "delete", "-k", "config/default")
	if out, err := c.try(t.Context(), "bin/tranche", "uninstall", "--everything"); err == nil || !strings.Contains(out, "not confirmed, nothing has changed") || len(c.pods(t, runs)) != 2 {
		t.Errorf("uninstall --everything did not ask, or deleted JobSets without an answer: %v\n%s", err, out)
	}
	t.Logf("uninstall:\n%s", c.command(t, "bin/tranche", "uninstall", "--everything", "--yes"))
	if left := c.kubectl(t, "get", "crd", "-o", "name"); strings.Contains(left, "kueue") || !strings.Contains(left, jobSetCRD) {
		t.Errorf("the CRDs that are left are %s, want that of JobSets and none of Kueue", left)
	}
	if left := c.kubectl(t, "get", "jobsets,pods", "-n", "team", "-o", "name"); strings.Contains(left, "runs") || !strings.Contains(left, "other") {
		t.Errorf("left are %s, want the JobSet in no queue and its pod", left)
	}
	if left := c.kubectl(t, "get", "jobs", "-n", "team", "-o", "name"); strings.Contains(left, waits.Name) {
		t.Errorf("left are %s, want no queued Job", left)
	}
	c.kubectl(t, "delete", "namespace", "team", "--timeout=1m")
	if out := c.command(t, "bin/tranche", "uninstall", "--check"); !strings.Contains(out, "Nothing of Tranche is left") {
		t.Errorf("uninstall --check: %s", out)
	}
}

// queuedJob returns a Job of one pod that runs until it is stopped.
func queuedJob(name string) *batchv1.Job {
	made := sample.ReplicatedJob("main", 1, sample.Amounts("cpu", "1"), map[string]string{controlplane.FakeExit: controlplane.FakeExitNever})
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{apis.QueueLabel: "main"}}, Spec: made.Template.Spec,
	}
}

func (c *cluster) createJob(t *testing.T, job *batchv1.Job) {
	t.Helper()
	if err := c.Admin.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) podsOfJob(t *testing.T, job *batchv1.Job) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	if err := c.Admin.List(t.Context(), &list, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// queued returns a JobSet with a stage of one pod for each name, in this order.
func queued(name, queue string, cpus int, fate map[string]string, stages ...string) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
	if queue != "" {
		js.Labels = map[string]string{apis.QueueLabel: queue}
	}
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	for _, stage := range stages {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, sample.ReplicatedJob(stage, 1, sample.Amounts("cpu", string(rune('0'+cpus))), fate))
	}
	return js
}

func (c *cluster) create(t *testing.T, js *jobsetapi.JobSet) {
	t.Helper()
	if err := c.Admin.Create(t.Context(), js); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) get(t *testing.T, js *jobsetapi.JobSet) {
	t.Helper()
	if err := c.Admin.Get(t.Context(), client.ObjectKeyFromObject(js), js); err != nil {
		t.Fatal(err)
	}
}

// delete waits until the JobSet and its pods are gone.
func (c *cluster) delete(t *testing.T, js *jobsetapi.JobSet) {
	t.Helper()
	c.kubectl(t, "delete", "jobset", "-n", js.Namespace, js.Name, "--timeout=1m")
	eventually(t, "the pods of "+js.Name+" are gone", func() bool { return len(c.pods(t, js)) == 0 })
}

func (c *cluster) pods(t *testing.T, js *jobsetapi.JobSet) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	if err := c.Admin.List(t.Context(), &pods, client.InNamespace(js.Namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name}); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

func (c *cluster) awaitWorkload(t *testing.T, js *jobsetapi.JobSet) {
	t.Helper()
	eventually(t, js.Name+" has a quota Workload", func() bool {
		var list kueue.WorkloadList
		err := c.Admin.List(t.Context(), &list, client.InNamespace(js.Namespace), client.MatchingLabels{apis.JobSetLabel: js.Name})
		return err == nil && len(list.Items) > 0
	})
}

// finalizers has those of all objects of Kueue's API.
func (c *cluster) finalizers(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(c.kubectl(t, "get", "workloads.kueue.x-k8s.io,clusterqueues,resourceflavors,admissionchecks,localqueues", "-A",
		"-o", "jsonpath={range .items[*]}{.metadata.finalizers[*]}{\" \"}{end}"))
}

func status(t *testing.T, url string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close() //nolint:errcheck // it is read to its end
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
