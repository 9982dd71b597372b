package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// binary is one program of the control plane.
type binary struct {
	name     string // what it is called in the directory of binaries
	pkg      string // its main package
	linkedAs string // what the go command calls it, if that is not its name
}

// manifest is a file or a directory of a module that is kept next to the binary that needs it.
type manifest struct {
	module, path, keptAs string
}

// A product is what one run builds from one module: programs, and the manifests that are kept next to them.
type product struct {
	title     string
	module    string   // directory of the module below this one
	prefix    string   // of the name of its directory in bin
	sources   []string // patterns of the files in the module that are built besides those of other modules
	stamps    func(ctx context.Context, module string) (string, error)
	binaries  []binary
	manifests []manifest
}

// controlPlane is what all tests with a control plane need.
func controlPlane() *product {
	return &product{
		title: "the test control plane", sources: []string{"pdeathsig/*.go", "realnode/*.go", "payload/*.go"}, stamps: controlPlaneStamps,
		binaries: controlPlaneBinaries(), manifests: controlPlaneManifests(),
	}
}

// kueue is Kueue's manager and its command line. Its module is one of its own, because it asks for versions that the control plane is not built from.
func kueue() *product {
	const module, components = "sigs.k8s.io/kueue", "config/components/"
	return &product{
		title: "Kueue", module: "kueue", prefix: "kueue-", stamps: kueueStamps,
		binaries: []binary{
			{name: "kueue", pkg: module + "/cmd/kueue"},
			{name: "kueuectl", pkg: module + "/cmd/kueuectl"},
		},
		manifests: []manifest{
			{module, components + "crd/bases", "manifests/kueue/crd"},
			{module, components + "webhook/manifests.yaml", "manifests/kueue/webhooks.yaml"},
			{module, components + "rbac/role.yaml", "manifests/kueue/role.yaml"},
			{module, components + "rbac/leader_election_role.yaml", "manifests/kueue/leader_election_role.yaml"},
			{module, components + "rbac/manager_secrets_role.yaml", "manifests/kueue/manager_secrets_role.yaml"},
			{module, components + "rbac/manager_clusterprofiles_role.yaml", "manifests/kueue/manager_clusterprofiles_role.yaml"},
			{module, components + "rbac/metrics_auth_role.yaml", "manifests/kueue/metrics_auth_role.yaml"},
		},
	}
}

// schedulers are other schedulers of gangs. Their module is one of its own, since they are built from an older version of Kubernetes.
func schedulers() *product {
	const volcano = "volcano.sh/volcano"
	return &product{
		title: "other schedulers", module: "schedulers", prefix: "schedulers-", sources: []string{"coscheduling/*.go"},
		stamps: func(context.Context, string) (string, error) { return "", nil }, // their versions are not read
		binaries: []binary{
			{name: "coscheduling", pkg: "./coscheduling"},
			{name: "volcano", pkg: volcano + "/cmd/scheduler", linkedAs: "scheduler"},
			{name: "volcano-controllers", pkg: volcano + "/cmd/controller-manager", linkedAs: "controller-manager"},
		},
		manifests: []manifest{
			{volcano, "config/crd/volcano/bases", "manifests/volcano/crd"},
			{volcano, "config/crd/jobflow/bases", "manifests/volcano/crd"},
			{volcano, "installer/helm/chart/volcano/config/volcano-scheduler.conf", "manifests/volcano/scheduler.conf"},
		},
	}
}

func controlPlaneBinaries() []binary {
	binaries := []binary{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", linkedAs: "server"},
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
		{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
		{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
		{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
		{name: "jobset", pkg: "sigs.k8s.io/jobset"},
		{name: "pdeathsig", pkg: "./pdeathsig"},
	}
	if runtime.GOOS != "linux" {
		return binaries
	}
	return append(binaries,
		binary{name: "kubelet", pkg: "k8s.io/kubernetes/cmd/kubelet"},
		binary{name: "realnode", pkg: "./realnode"},
		binary{name: "payload", pkg: "./payload"},
	)
}

func controlPlaneManifests() []manifest {
	return []manifest{
		{"sigs.k8s.io/jobset", "config/components/crd/bases", "manifests/jobset/crd"},
		{"sigs.k8s.io/jobset", "config/components/rbac/role.yaml", "manifests/jobset/role.yaml"},
		{"sigs.k8s.io/jobset", "config/components/webhook/manifests.yaml", "manifests/jobset/webhooks.yaml"},
		{"sigs.k8s.io/kwok", "kustomize/rbac/role.yaml", "manifests/kwok/role.yaml"},
	}
}

// recipe is everything that shapes the result.
type recipe struct {
	*product

	module string   // directory of its module
	flags  []string // of go build
	key    string   // hash of all of it
}

func newRecipe(ctx context.Context, p *product, module string) (*recipe, error) {
	stamps, err := p.stamps(ctx, module)
	if err != nil {
		return nil, err
	}
	r := &recipe{product: p, module: module, flags: []string{"-trimpath", "-ldflags=-s -w " + stamps}}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.GOOS, runtime.GOARCH, runtime.Version(), r.flags, p.binaries, p.manifests)
	for _, path := range r.inputs() {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read what shapes the build: %w", err)
		}
		fmt.Fprintln(hash, filepath.Base(path), len(content))
		hash.Write(content)
	}
	r.key = hex.EncodeToString(hash.Sum(nil))[:12]
	return r, nil
}

// inputs returns the files of the module that shape the result.
func (r *recipe) inputs() []string {
	inputs := []string{filepath.Join(r.module, "go.mod"), filepath.Join(r.module, "go.sum")}
	for _, pattern := range r.sources {
		sources, _ := filepath.Glob(filepath.Join(r.module, filepath.FromSlash(pattern))) // the patterns above are well formed
		inputs = append(inputs, sources...)
	}
	return inputs
}

// kueueStamps returns the linker flags that make Kueue's programs report their version.
func kueueStamps(ctx context.Context, module string) (string, error) {
	version, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/kueue")
	return "-X sigs.k8s.io/kueue/pkg/version.GitVersion=" + version, err
}

// controlPlaneStamps returns the linker flags that make each program report the version of its module. A flag for a package that
// a program does not contain does nothing, so that all programs can be built with the same ones, in one go.
func controlPlaneStamps(ctx context.Context, module string) (string, error) {
	out, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Version}}",
		"k8s.io/kubernetes", "sigs.k8s.io/jobset", "sigs.k8s.io/kwok")
	if err != nil {
		return "", err
	}
	versions := strings.Fields(out)
	if len(versions) != 3 {
		return "", fmt.Errorf("read the pinned versions: got %q", out)
	}
	number := strings.SplitN(strings.TrimPrefix(versions[0], "v"), ".", 3)
	if len(number) != 3 {
		return "", fmt.Errorf("read the version of Kubernetes: %q is not of the form v1.2.3", versions[0])
	}
	const kubernetes = "-X k8s.io/component-base/version."
	return strings.Join([]string{
		kubernetes + "gitVersion=" + versions[0],
		kubernetes + "gitMajor=" + number[0],
		kubernetes + "gitMinor=" + number[1],
		kubernetes + "gitTreeState=clean",
		"-X sigs.k8s.io/jobset/pkg/version.GitVersion=" + versions[1],
		"-X sigs.k8s.io/kwok/pkg/consts.Version=" + strings.TrimPrefix(versions[2], "v"),
	}, " "), nil
}

// buildInto builds everything into dir.
func (r *recipe) buildInto(ctx context.Context, dir string) error {
	for _, m := range r.manifests {
		if err := r.copyManifests(ctx, m, dir); err != nil {
			return err
		}
	}
	programs := &job{title: r.title, module: r.module, dir: dir, flags: r.flags, binaries: r.binaries}
	if err := programs.run(ctx); err != nil {
		return err
	}
	for _, b := range r.binaries {
		if b.linkedAs == "" {
			continue
		}
		if err := os.Rename(filepath.Join(dir, b.linkedAs), filepath.Join(dir, b.name)); err != nil {
			return fmt.Errorf("name the binary of %s: %w", b.pkg, err)
		}
	}
	return nil
}

func (r *recipe) copyManifests(ctx context.Context, m manifest, dir string) error {
	// Nothing is compiled yet: on a new machine go list would know no directory.
	out, err := goCommand(ctx, r.module, "mod", "download", "-json", m.module)
	if err != nil {
		return err
	}
	var source struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &source); err != nil {
		return fmt.Errorf("find the source of %s: %w", m.module, err)
	}
	from, to := filepath.Join(source.Dir, filepath.FromSlash(m.path)), filepath.Join(dir, filepath.FromSlash(m.keptAs))
	files, err := filepath.Glob(filepath.Join(from, "*.yaml"))
	if err != nil {
		return fmt.Errorf("list %s of %s: %w", m.path, m.module, err)
	}
	if len(files) == 0 {
		return copyFile(from, to)
	}
	for _, file := range files {
		if err := copyFile(file, filepath.Join(to, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// copyFile drops the mode: files of the module cache are read-only, which would keep the copies from being removed.
func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("make room for %s: %w", to, err)
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	if err := os.WriteFile(to, content, 0o644); err != nil {
		return fmt.Errorf("keep manifest: %w", err)
	}
	return nil
}

func moduleDir(ctx context.Context) (string, error) {
	file, err := goCommand(ctx, "", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	if file == "" || file == os.DevNull {
		return "", errors.New("run this inside the module of the test control plane")
	}
	return filepath.Dir(file), nil
}

// goCommand runs a command of the go tool in dir and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "GOWORK=off")
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, io.Writer(&problems)
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problems.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
