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

func binaries() []binary {
	return []binary{
		{name: "etcd", pkg: "go.etcd.io/etcd/server/v3", linkedAs: "server"},
		{name: "kube-apiserver", pkg: "k8s.io/kubernetes/cmd/kube-apiserver"},
		{name: "kube-controller-manager", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager"},
		{name: "kube-scheduler", pkg: "k8s.io/kubernetes/cmd/kube-scheduler"},
		{name: "kubectl", pkg: "k8s.io/kubernetes/cmd/kubectl"},
		{name: "kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
		{name: "jobset", pkg: "sigs.k8s.io/jobset"},
		{name: "pdeathsig", pkg: "./pdeathsig"},
	}
}

func manifests() []manifest {
	return []manifest{
		{"sigs.k8s.io/jobset", "config/components/crd/bases", "manifests/jobset/crd"},
		{"sigs.k8s.io/jobset", "config/components/rbac/role.yaml", "manifests/jobset/role.yaml"},
		{"sigs.k8s.io/jobset", "config/components/webhook/manifests.yaml", "manifests/jobset/webhooks.yaml"},
		{"sigs.k8s.io/kwok", "kustomize/rbac/role.yaml", "manifests/kwok/role.yaml"},
	}
}

// recipe is everything that shapes the result.
type recipe struct {
	module string   // directory of this module
	flags  []string // of go build
	key    string   // hash of all of it
}

func newRecipe(ctx context.Context, module string) (*recipe, error) {
	stamps, err := versionStamps(ctx, module)
	if err != nil {
		return nil, err
	}
	r := &recipe{module: module, flags: []string{"-trimpath", "-ldflags=-s -w " + stamps}}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.GOOS, runtime.GOARCH, runtime.Version(), r.flags, binaries(), manifests())
	sources, err := filepath.Glob(filepath.Join(module, "pdeathsig", "*.go"))
	if err != nil {
		return nil, fmt.Errorf("list the sources of pdeathsig: %w", err)
	}
	for _, path := range append(sources, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")) {
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

// versionStamps returns the linker flags that make each program report the version of its module. A flag for a package that
// a program does not contain does nothing, so that all programs can be built with the same ones, in one go.
func versionStamps(ctx context.Context, module string) (string, error) {
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
	for _, m := range manifests() {
		if err := r.copyManifests(ctx, m, dir); err != nil {
			return err
		}
	}
	control := &job{title: "the test control plane", module: r.module, dir: dir, flags: r.flags, binaries: binaries()}
	if err := control.run(ctx); err != nil {
		return err
	}
	for _, b := range binaries() {
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
