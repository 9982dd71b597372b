// Package testenv sets a whole Tranche up for the integration tests, the e2e tests and the demo: the real control plane, the
// manifests from config as a user applies them, and the real manager binary under its own identity.
package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// ManagerUser is the identity of the manager that config/rbac gives its rights to.
const ManagerUser = "system:serviceaccount:" + apis.SystemNamespace + ":" + apis.ManagerServiceAccount

// A World is a control plane with Tranche's manifests installed.
type World struct {
	// Plane is the control plane.
	Plane *controlplane.ControlPlane
	// Admin may do everything.
	Admin client.WithWatch
	// Root is the root of the repository.
	Root string
	// AdminKubeconfig is the path of a kubeconfig file for Admin.
	AdminKubeconfig string
}

// Start brings a control plane up with these nodes and installs Tranche's manifests, all but the manager itself. On a control plane with Kueue, the
// CRDs of queues are Kueue's, and the tests themselves apply what the mode needs that they are about: only the JobSet CRD is Tranche's.
func Start(ctx context.Context, config controlplane.Config) (*World, error) {
	w, err := StartBare(ctx, config)
	if err != nil || config.Kueue != nil {
		return w, err
	}
	if err := w.Install(ctx); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

// StartBare brings a control plane up with these nodes, and the CRDs of Start. Nothing is held before Install.
func StartBare(ctx context.Context, config controlplane.Config) (*World, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	crds := filepath.Join(root, "config", "crd")
	if config.Kueue != nil {
		crds = filepath.Join(crds, "jobset.x-k8s.io_jobsets.yaml")
	}
	config.CRDs = append(config.CRDs, crds)
	config.Users = append(config.Users, ManagerUser)
	plane, err := controlplane.Start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	w := &World{Plane: plane, Root: root}
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, plane.Stop())
	}
	return w, nil
}

// connect lets the admin talk to the control plane.
func (w *World) connect() error {
	var err error
	if w.Admin, err = w.client(w.Plane.AdminConfig()); err != nil {
		return err
	}
	w.AdminKubeconfig = filepath.Join(w.Plane.WorkDir(), "admin.kubeconfig")
	if err := w.Plane.Kubeconfig(w.AdminKubeconfig, ""); err != nil {
		return fmt.Errorf("write kubeconfig of the admin: %w", err)
	}
	return nil
}

// Install installs Tranche's manifests, all but the manager itself, and waits until the admission policies are in force.
func (w *World) Install(ctx context.Context) error {
	for _, overlay := range []string{"config/rbac", "config/policies"} {
		if err := w.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(w.Root, overlay)); err != nil {
			return err
		}
	}
	return w.awaitGuards(ctx)
}

// awaitGuards waits until the API server acts on the policies, which takes it a moment after they are created.
func (w *World) awaitGuards(ctx context.Context) error {
	probe := func(ctx context.Context) (bool, error) {
		js := probeJobSet()
		if err := w.Admin.Create(ctx, js, client.DryRunAll); err != nil || js.Spec.ReplicatedJobs[0].Template.Labels[apis.HoldLabel] == "" {
			return false, nil //nolint:nilerr // not yet in force
		}
		forged := probeJobSet()
		forged.Annotations = map[string]string{apis.StartedAnnotation: "true"}
		if w.Admin.Create(ctx, forged, client.DryRunAll) == nil {
			return false, nil
		}
		// kubectl applies the policy for ResourceFlavors after all others that refuse an object: once it acts, so do they.
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: js.Name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"-": ""}}}
		if w.Admin.Create(ctx, flavor, client.DryRunAll) == nil {
			return false, nil
		}
		job := &batchv1.Job{ObjectMeta: js.ObjectMeta, Spec: js.Spec.ReplicatedJobs[0].Template.Spec}
		job.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
		if err := w.Admin.Create(ctx, job, client.DryRunAll); err != nil || !ptr.Deref(job.Spec.Suspend, false) {
			return false, nil //nolint:nilerr // not yet in force
		}
		queued := &batchv1.Job{ObjectMeta: js.ObjectMeta, Spec: probeJobSet().Spec.ReplicatedJobs[0].Template.Spec}
		queued.Labels = map[string]string{apis.QueueLabel: "probe"}
		if err := w.Admin.Create(ctx, queued, client.DryRunAll); err != nil || queued.Labels[apis.HoldLabel] != apis.HoldQueued {
			return false, nil //nolint:nilerr // not yet in force
		}
		queued.ResourceVersion, queued.Labels[apis.StageLabel] = "", "forged"
		return w.Admin.Create(ctx, queued, client.DryRunAll) != nil, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, readyEvery, readyTimeout, true, probe); err != nil {
		return fmt.Errorf("wait until the guards are in force: %w", err)
	}
	return nil
}

func probeJobSet() *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "guards-probe", Labels: map[string]string{apis.QueueLabel: "probe"},
	}}
	job := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "example.com/probe"}},
	}}}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{ReplicatedJob: jobset.ReplicatedJob{Name: "main", Replicas: 1, Template: job}}}
	return js
}

// ServeVisibility applies config/visibility, and points its Service to the address of a manager on this machine, where nothing runs inside the cluster.
func (w *World) ServeVisibility(ctx context.Context, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	return errors.Join(
		w.Kubectl(ctx, "apply", "--server-side", "-k", w.VisibilityOverlay()),
		w.Kubectl(ctx, "-n", apis.SystemNamespace, "patch", "service", "tranche-visibility", "--type=merge",
			"-p", `{"spec":{"type":"ExternalName","externalName":"localhost","selector":null,"clusterIP":null,"clusterIPs":null}}`),
		w.Kubectl(ctx, "patch", "apiservice", "v1beta2.visibility.kueue.x-k8s.io", "--type=merge", "-p", `{"spec":{"service":{"port":`+port+`}}}`),
	)
}

// VisibilityOverlay returns the directory with the objects of the visibility API.
func (w *World) VisibilityOverlay() string { return filepath.Join(w.Root, "config", "visibility") }

// InstallPodGroups installs the CRDs by which schedulers other than that of Kubernetes know gangs, and waits until they are served: those
// of these API groups, or all of them. A manager that runs already ends when it notices.
func (w *World) InstallPodGroups(groups ...string) error {
	dir := filepath.Join(w.Root, "test", "testenv", "podgroups")
	paths := []string{dir}
	if len(groups) > 0 {
		paths = nil
	}
	for _, group := range groups {
		paths = append(paths, filepath.Join(dir, group+"_podgroups.yaml"))
	}
	_, err := envtest.InstallCRDs(w.Plane.AdminConfig(), envtest.CRDInstallOptions{
		Paths: paths, ErrorIfPathMissing: true, MaxTime: readyTimeout, PollInterval: readyEvery,
	})
	if err != nil {
		return fmt.Errorf("install the CRDs of PodGroups: %w", err)
	}
	return nil
}

// Stop ends everything.
func (w *World) Stop() error { return errors.Join(races(w.Plane.WorkDir()), w.Plane.Stop()) }

// Kubectl runs the kubectl of the control plane as admin.
func (w *World) Kubectl(ctx context.Context, args ...string) error {
	_, err := w.KubectlOutput(ctx, args...)
	return err
}

// KubectlOutput runs the kubectl of the control plane as admin and returns what it prints.
func (w *World) KubectlOutput(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.Plane.BinDir(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.AdminKubeconfig)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl %v: %w: %s", args, err, stderr.String())
	}
	return out, nil
}

// As returns a client for a user.
func (w *World) As(user string, groups ...string) (client.WithWatch, error) {
	return w.client(w.Plane.UserConfig(user, groups...))
}

func (w *World) client(config *rest.Config) (client.WithWatch, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: scheme})
}

// CreateNamespace makes a namespace with these labels, if there is none of the name.
func (w *World) CreateNamespace(ctx context.Context, name string, labels map[string]string) error {
	err := w.Admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// Scheme knows everything that tests read and write.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// Root finds the root of the repository above the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "rules_test.go")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the root of the repository: no rules_test.go above the working directory")
		}
	}
}
