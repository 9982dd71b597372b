package tranche_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// apart are the modules that the manager and the control plane of the tests have in two versions. The API server evaluates the admission policies
// with cel-go: it keeps the version that Kubernetes ships with, while Kueue's types ask for a later one.
var apart = []string{"github.com/google/cel-go", "github.com/antlr4-go/antlr/v4"}

// Everything above a module is compiled again for each version of it. With one version of golang.org/x/net a third fewer packages are compiled before the
// first demo and the first test.
func TestModulesHaveOneVersion(t *testing.T) {
	ours := versionsOf(t, ".", "./cmd/tranche", "./test/demo")
	for dir, exceptions := range map[string][]string{"test/cluster": apart, "test/cluster/kueue": nil} {
		others := versionsOf(t, dir, "tool")
		for module, version := range ours {
			other, shared := others[module]
			if shared && other != version && !slices.Contains(exceptions, module) {
				t.Errorf("%s is %s in go.mod and %s in %s/go.mod: `go get` the later one in the other directory", module, version, other, dir)
			}
		}
	}
}

// versionsOf returns the modules that the packages of a module in dir are compiled from, with their versions.
func versionsOf(t *testing.T, dir string, packages ...string) map[string]string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}"}, packages...)...) // #nosec G204 -- constants
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list in %s: %v", dir, err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			versions[module] = version
		}
	}
	return versions
}
