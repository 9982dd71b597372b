package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/test/controlplane"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

func TestJobSetsRunOnFakeNodes(t *testing.T) {
	plane := start(t)
	admin := newClient(t, plane.AdminConfig())

	t.Run("the nodes are what the pools ask for", func(t *testing.T) { checkNodes(t, admin) })
	t.Run("success", func(t *testing.T) {
		js := newJobSet("success", nil)
		create(t, admin, js)
		await(t, admin, js, "Completed", isFinished(jobset.JobSetCompleted))
		for _, pod := range podsOf(t, admin, js) {
			if !strings.HasPrefix(pod.Spec.NodeName, "gpu-") || pod.Status.Phase != corev1.PodSucceeded {
				t.Errorf("pod %s on node %q is %s, want it Succeeded on a node of the pool gpu", pod.Name, pod.Spec.NodeName, pod.Status.Phase)
			}
		}
	})
	t.Run("failure", func(t *testing.T) {
		js := newJobSet("failure", map[string]string{controlplane.FakeExit: controlplane.FakeExitFail})
		create(t, admin, js)
		await(t, admin, js, "Failed", isFinished(jobset.JobSetFailed))
	})
	t.Run("failure before a restart", func(t *testing.T) {
		js := newJobSet("restarted", map[string]string{controlplane.FakeExit: controlplane.FakeExitFailFirst})
		js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
		create(t, admin, js)
		await(t, admin, js, "Completed", isFinished(jobset.JobSetCompleted))
		if js.Status.Restarts != 1 {
			t.Errorf("got %d restarts, want 1", js.Status.Restarts)
		}
	})
	t.Run("delays", func(t *testing.T) { checkDelays(t, admin) })
	t.Run("identities", func(t *testing.T) { checkIdentities(t, plane, admin) })
	t.Run("restarts of components", func(t *testing.T) { checkRestarts(t, plane, admin) })
}

func checkNodes(t *testing.T, admin client.WithWatch) {
	t.Helper()
	var nodes corev1.NodeList
	if err := admin.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, node := range nodes.Items {
		pool := node.Labels["pool"]
		count[pool]++
		gpus := node.Status.Allocatable[gpu]
		if want := map[string]int64{"cpu": 0, "gpu": 8}[pool]; gpus.Value() != want {
			t.Errorf("node %s has %d GPUs, want %d", node.Name, gpus.Value(), want)
		}
	}
	if count["cpu"] != 1 || count["gpu"] != 2 || len(nodes.Items) != 3 {
		t.Errorf("got %v nodes, want 1 of the pool cpu and 2 of the pool gpu", count)
	}
}

// checkDelays runs a pod that takes measurably longer than a pod without annotations: its own timestamps record when it became Ready and
// when it terminated.
func checkDelays(t *testing.T, admin client.WithWatch) {
	t.Helper()
	js := newJobSet("delays", map[string]string{controlplane.FakeReadyAfter: "2s", controlplane.FakeRunTime: "3"})
	create(t, admin, js)
	await(t, admin, js, "Completed", isFinished(jobset.JobSetCompleted))
	for _, pod := range podsOf(t, admin, js) {
		scheduled := condition(pod, corev1.PodScheduled).LastTransitionTime
		end := pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt
		// Timestamps have whole seconds, so that a time of 2s may read as 1s.
		if ready := pod.Status.StartTime.Sub(scheduled.Time); ready < time.Second {
			t.Errorf("pod %s was Ready after %s, want at least 1s", pod.Name, ready)
		}
		if ran := end.Sub(pod.Status.StartTime.Time); ran < 2*time.Second {
			t.Errorf("pod %s ran for %s, want at least 2s", pod.Name, ran)
		}
	}
}

// checkIdentities has a service account, known by its certificate only, do what RBAC allows it and no more.
func checkIdentities(t *testing.T, plane *controlplane.ControlPlane, admin client.WithWatch) {
	t.Helper()
	const user = "system:serviceaccount:tranche-system:tranche-manager"
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "manager", Namespace: metav1.NamespaceDefault},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "tranche-system", Name: "tranche-manager"}},
	}
	create(t, admin, binding)
	manager := newClient(t, plane.UserConfig(user))
	eventually(t, "the manager may list Jobs", func() error {
		return manager.List(t.Context(), &batchv1.JobList{}, client.InNamespace(metav1.NamespaceDefault))
	})
	if err := manager.Create(t.Context(), newJobSet("forbidden", nil)); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer created a JobSet: got error %v, want Forbidden", err)
	}
	if err := manager.List(t.Context(), &batchv1.JobList{}, client.InNamespace("kube-system")); err == nil || !strings.Contains(err.Error(), user) {
		t.Errorf("got error %v, want one that names %s", err, user)
	}
}

func checkRestarts(t *testing.T, plane *controlplane.ControlPlane, admin client.WithWatch) {
	t.Helper()
	kill, stop := plane.KillComponent, plane.StopComponent
	steps := []struct {
		name string
		end  func(string) error
	}{
		{controlplane.JobSet, kill},
		{controlplane.JobSet, stop},
		{controlplane.Kwok, stop},
		{controlplane.Scheduler, kill},
		{controlplane.ControllerManager, kill},
		{controlplane.APIServer, stop},
		{controlplane.Etcd, kill},
	}
	for _, step := range steps {
		before := plane.PID(step.name)
		if err := step.end(step.name); err != nil {
			t.Fatal(err)
		}
		if before == 0 || runs(before) || plane.PID(step.name) != 0 {
			t.Fatalf("%s: process %d is still there, or there was none", step.name, before)
		}
		if err := plane.StartComponent(t.Context(), step.name); err != nil {
			t.Fatal(err)
		}
	}
	js := newJobSet("after-restarts", nil)
	eventually(t, "a JobSet can be created", func() error { return admin.Create(t.Context(), js) })
	await(t, admin, js, "Completed", isFinished(jobset.JobSetCompleted))
}

func TestStartNeedsTheJobSetCRD(t *testing.T) {
	plane, err := controlplane.Start(t.Context(), controlplane.Config{})
	if err == nil {
		_ = plane.Stop()
	}
	if err == nil || !strings.Contains(err.Error(), "Config.CRDs") {
		t.Errorf("got error %v, want one that says how to install the JobSet CRD", err)
	}
}

// start starts a control plane with two pools and the stock JobSet CRD.
func start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	begin := time.Now()
	plane, err := controlplane.Start(t.Context(), config(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %s", time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	return plane
}

func config(ctx context.Context) controlplane.Config {
	bin, err := controlplane.BuildDir(ctx)
	if err != nil {
		panic(err)
	}
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	gpus := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), gpu: resource.MustParse("8")}
	taint := corev1.Taint{Key: string(gpu), Value: "present", Effect: corev1.TaintEffectNoSchedule}
	return controlplane.Config{
		BinDir: bin,
		CRDs:   []string{controlplane.UpstreamCRDs(bin)},
		NodePools: []controlplane.NodePool{
			{Name: "cpu", Count: 1, Labels: map[string]string{"pool": "cpu"}, Allocatable: cpu},
			{Name: "gpu", Count: 2, Labels: map[string]string{"pool": "gpu"}, Allocatable: gpus, Taints: []corev1.Taint{taint}},
		},
	}
}

// newJobSet returns a JobSet of two Jobs with one pod of 4 GPUs each.
func newJobSet(name string, annotations map[string]string) *jobset.JobSet {
	amount := resource.MustParse("4")
	template := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{BackoffLimit: new(int32), Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Tolerations:   []corev1.Toleration{{Key: string(gpu), Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "main", Image: "none",
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{gpu: amount}},
			}},
		},
	}}}
	return &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       jobset.JobSetSpec{ReplicatedJobs: []jobset.ReplicatedJob{{Name: "work", Replicas: 2, Template: template}}},
	}
}

func newClient(t *testing.T, config *rest.Config) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, jobset.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, admin client.Client, object client.Object) {
	t.Helper()
	if err := admin.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// await watches a JobSet until it is as wanted, and leaves its last state in js.
func await(t *testing.T, admin client.WithWatch, js *jobset.JobSet, wanted string, is func(*jobset.JobSet) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watcher, err := admin.Watch(ctx, &jobset.JobSetList{}, client.InNamespace(js.Namespace), client.MatchingFields{"metadata.name": js.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if seen, ok := event.Object.(*jobset.JobSet); ok && event.Type != watch.Deleted {
			*js = *seen
			if is(js) {
				return
			}
		}
	}
	t.Fatalf("JobSet %s is not %s: %+v", js.Name, wanted, js.Status)
}

func isFinished(with jobset.JobSetConditionType) func(*jobset.JobSet) bool {
	return func(js *jobset.JobSet) bool { return meta.IsStatusConditionTrue(js.Status.Conditions, string(with)) }
}

// eventually tries again until there is no error: for what the API server learns from its own watches, RBAC for one.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait until %s: %v", what, err)
		case <-tick.C:
		}
	}
}

func podsOf(t *testing.T, admin client.Client, js *jobset.JobSet) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	err := admin.List(t.Context(), &pods, client.InNamespace(js.Namespace), client.MatchingLabels{jobset.JobSetNameKey: js.Name})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 2 {
		t.Fatalf("JobSet %s has %d pods, want 2", js.Name, len(pods.Items))
	}
	return pods.Items
}

func condition(pod corev1.Pod, with corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == with {
			return c
		}
	}
	return corev1.PodCondition{}
}

// runs reports whether there is a process with this id.
func runs(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
