package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BinariesVariable names the environment variable that gives the directory of the binaries, for machines that have them
// already.
const BinariesVariable = "TRANCHE_CLUSTER_BIN"

// KueueVariable does the same for the directory of Kueue's binaries.
const KueueVariable = "TRANCHE_KUEUE_BIN"

// SchedulersVariable does the same for the directory of other schedulers.
const SchedulersVariable = "TRANCHE_SCHEDULERS_BIN"

const (
	modulePath = "github.com/tranche-dev/tranche"
	loopback   = "127.0.0.1"
)

// BuildDir returns the directory of the binaries: the one that BinariesVariable names, or else the one that the module
// test/cluster builds. The first build takes minutes and reports its progress on standard error.
func BuildDir(ctx context.Context) (string, error) {
	if dir := os.Getenv(BinariesVariable); dir != "" {
		return dir, nil
	}
	return build(ctx, "the control plane")
}

// KueueDir returns the directory of Kueue's manager and command line: the one that KueueVariable names, or else the one that the module
// test/cluster/kueue builds. The first build takes minutes.
func KueueDir(ctx context.Context) (string, error) {
	if dir := os.Getenv(KueueVariable); dir != "" {
		return dir, nil
	}
	return build(ctx, "Kueue", "-kueue")
}

// SchedulersDir returns the directory of Coscheduling and Volcano: the one that SchedulersVariable names, or else the one that the module
// test/cluster/schedulers builds. The first build takes minutes.
func SchedulersDir(ctx context.Context) (string, error) {
	if dir := os.Getenv(SchedulersVariable); dir != "" {
		return dir, nil
	}
	return build(ctx, "other schedulers", "-schedulers")
}

// build runs the command build of test/cluster.
func build(ctx context.Context, title string, flags ...string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", append([]string{"run", "-trimpath", "./build"}, flags...)...) // #nosec G204 -- constants
	command.Dir = filepath.Join(root, "test", "cluster")
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &teed{problems: &problems}
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("build %s in test/cluster: %w\n%s", title, err, strings.TrimSpace(problems.String()))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	return lines[len(lines)-1], nil
}

// teed shows the progress of a build and keeps it for the error.
type teed struct{ problems *bytes.Buffer }

func (t *teed) Write(content []byte) (int, error) {
	t.problems.Write(content)
	return os.Stderr.Write(content)
}

// UpstreamCRDs returns the directory, next to the binaries, that holds the stock JobSet CRD.
func UpstreamCRDs(binDir string) string {
	return filepath.Join(binDir, "manifests", "jobset", "crd")
}

// repositoryRoot returns the nearest directory upwards that holds the root module.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module "+modulePath+"\n") {
			return dir, nil
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("find the repository: %w", err)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the repository: no go.mod of %s upwards of here; set %s to the binaries", modulePath, BinariesVariable)
		}
		dir = parent
	}
}
