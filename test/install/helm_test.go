// Package install_test installs, upgrades and uninstalls Tranche on a real API server as documented: with Helm 3 and Helm 4, with
// make and kubectl, and with the tranche binary.
package install_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	poll     = 100 * time.Millisecond
	patience = 2 * time.Minute

	jobSetCRD   = "jobsets.jobset.x-k8s.io"
	workloadCRD = "workloads.kueue.x-k8s.io"
	// maxReleaseBytes is how large Helm's record of a release may be: the API server takes 1 MiB in a Secret.
	maxReleaseBytes = 1 << 20
)

// A shell runs commands against an API server, in the root of the repository.
type shell struct {
	root string
	env  []string
}

// TestHelm installs the chart with each helm on a cluster with and without the JobSet project's CRD.
func TestHelm(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	plane, err := controlplane.Start(t.Context(), controlplane.Config{Without: []string{
		controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok, controlplane.JobSet,
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	sh := newShell(t, plane, root)
	upstream := filepath.Join(controlplane.UpstreamCRDs(plane.BinDir()), "*.yaml")
	files, err := filepath.Glob(upstream)
	if err != nil || len(files) == 0 {
		t.Fatalf("find the JobSet project's CRD: %v %v", files, err)
	}
	for name, helm := range map[string]helm{
		"Helm 3": {path: helmPath(t, root, "tools/helm3/go.mod"), takeOver: []string{"--take-ownership"}},
		"Helm 4": {path: helmPath(t, root, "tools/go.mod"), takeOver: []string{"--take-ownership", "--force-conflicts"}},
	} {
		helm.shell = sh
		t.Run(name, func(t *testing.T) {
			t.Run("without the CRD of JobSet", func(t *testing.T) { helm.lifeCycle(t, nil) })
			t.Run("with the CRD of JobSet", func(t *testing.T) { helm.lifeCycle(t, files) })
		})
	}
}

// A helm is one version of it.
type helm struct {
	*shell
	path string
	// takeOver are the flags by which it replaces objects of others.
	takeOver []string
}

// dashboardObjects returns which objects of the dashboard exist.
func (h helm) dashboardObjects(t *testing.T) string {
	t.Helper()
	return h.kubectl(t, "get", "--ignore-not-found", "-o", "name", "--namespace=tranche-system", "service/tranche-dashboard", "clusterrolebinding/tranche-dashboard-auth-delegator")
}

// lifeCycle installs, upgrades, uninstalls and installs again.
func (h helm) lifeCycle(t *testing.T, upstream []string) {
	t.Helper()
	for _, file := range upstream {
		h.kubectl(t, "apply", "--server-side", "-f", file)
	}
	h.run(t, "install", "charts/tranche", "--create-namespace")
	h.expectSize(t)
	if got := h.hasKEPFields(t); got != (upstream == nil) {
		t.Errorf("after the installation the CRD of JobSets has gangConfig: %t, with the JobSet project's CRD there before: %t", got, upstream != nil)
	}
	if upstream != nil {
		h.run(t, "upgrade", "charts/tranche", append([]string{"--set=crds.takeOver=true"}, h.takeOver...)...)
		if !h.hasKEPFields(t) {
			t.Error("crds.takeOver did not replace the JobSet project's CRD")
		}
	}
	before := h.uids(t)

	newer := h.newerChart(t)
	h.run(t, "upgrade", newer, "--set=dashboard.enable=true")
	if got := strings.Fields(h.dashboardObjects(t)); len(got) != 2 {
		t.Errorf("with dashboard.enable there are %v", got)
	}
	for _, name := range []string{jobSetCRD, workloadCRD} {
		if got := h.kubectl(t, "get", "crd", name, "-o", "jsonpath={.spec.names.categories}"); !strings.Contains(got, "upgraded") {
			t.Errorf("the upgrade of the release did not upgrade the CRD %s: categories %s", name, got)
		}
	}

	// As kubectl replace does it, which writes the CRD as it is in a file.
	h.kubectl(t, "annotate", "crd", jobSetCRD, "helm.sh/resource-policy-", "meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-")
	h.kubectl(t, "label", "crd", jobSetCRD, "app.kubernetes.io/managed-by-")
	h.run(t, "upgrade", newer, "--set=dashboard.enable=false")
	if got := h.dashboardObjects(t); got != "" {
		t.Errorf("without dashboard.enable there are %s", got)
	}
	h.expectSame(t, before, "an upgrade after its annotations were lost")

	h.uninstall(t)
	h.expectSame(t, before, "uninstalling the release")
	if left := h.kubectl(t, "get", "validatingadmissionpolicies,mutatingadmissionpolicies", "-o", "name"); strings.Contains(left, "tranche-hold") || strings.Contains(left, "tranche-guard") {
		t.Errorf("policies are left after uninstalling: %s", left)
	}

	h.run(t, "install", "charts/tranche", "--create-namespace")
	h.expectSame(t, before, "installing again")
	h.run(t, "upgrade", "charts/tranche", "--set=crds.keep=false")
	h.uninstall(t)
	h.awaitNoCRDs(t)
	if left := h.kubectl(t, "get", "validatingadmissionpolicies,mutatingadmissionpolicies", "-o", "name"); strings.Contains(left, "tranche") {
		t.Errorf("policies are left after uninstalling without crds.keep: %s", left)
	}
}

func (h helm) run(t *testing.T, verb, chart string, flags ...string) {
	t.Helper()
	h.command(t, h.path, append([]string{verb, "tranche", chart, "--namespace", "tranche-system"}, flags...)...)
}

func (h helm) uninstall(t *testing.T) {
	t.Helper()
	h.command(t, h.path, "uninstall", "tranche", "--namespace", "tranche-system")
}

// expectSize checks that Helm's record of the release fits into a Secret, with room for the chart to grow.
func (h helm) expectSize(t *testing.T) {
	t.Helper()
	encoded := h.kubectl(t, "get", "secret", "-n", "tranche-system", "sh.helm.release.v1.tranche.v1", "-o", "jsonpath={.data.release}")
	size := len(encoded) * 3 / 4
	t.Logf("the record of the release has %d bytes", size)
	if size > maxReleaseBytes*3/4 {
		t.Errorf("the record of the release has %d bytes, the API server takes %d", size, maxReleaseBytes)
	}
}

func (h helm) hasKEPFields(t *testing.T) bool {
	t.Helper()
	return h.kubectl(t, "get", "crd", jobSetCRD, "-o",
		"jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.gangConfig.type}") == "object"
}

// newerChart is a copy of the chart whose CRDs have changed.
func (h helm) newerChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tranche")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(h.root, "charts", "tranche"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "files", "crds.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const names = "\n  names:\n    kind:"
	changed := bytes.ReplaceAll(content, []byte("\n  names:\n"), []byte("\n  names:\n    categories: [upgraded]\n"))
	changed = bytes.ReplaceAll(changed, []byte("    categories: [upgraded]\n    categories:\n"), []byte("    categories:\n    - upgraded\n"))
	if bytes.Equal(content, changed) {
		t.Fatalf("no CRD of the chart has %q", names)
	}
	if err := os.WriteFile(file, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// uids are those of the CRDs: one that is deleted and made again has lost all its objects.
func (h helm) uids(t *testing.T) string {
	t.Helper()
	return h.kubectl(t, "get", "crd", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}")
}

func (h helm) expectSame(t *testing.T, before, after string) {
	t.Helper()
	if got := h.uids(t); got != before || strings.Count(got, "\n") < 9 {
		t.Errorf("after %s the CRDs are\n%s\nwant\n%s", after, got, before)
	}
}

func (h helm) awaitNoCRDs(t *testing.T) {
	t.Helper()
	// The API server deletes the objects of a CRD first. It backs off when it cannot list them, as shortly after the CRD was changed.
	const poll, patience = time.Second, 5 * time.Minute
	var left string
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(context.Context) (bool, error) {
		left = h.kubectl(t, "get", "crd", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp} {.status.conditions}{\"\\n\"}{end}")
		return strings.TrimSpace(left) == "", nil
	})
	if err != nil {
		t.Fatalf("wait until there are no CRDs: %v, left are\n%s", err, left)
	}
}

func newShell(t *testing.T, plane *controlplane.ControlPlane, root string) *shell {
	t.Helper()
	kubeconfig := filepath.Join(plane.WorkDir(), "install.kubeconfig")
	if err := plane.Kubeconfig(kubeconfig, ""); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return &shell{root: root, env: append(os.Environ(),
		"KUBECONFIG="+kubeconfig, "PATH="+plane.BinDir()+":"+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home,
	)}
}

// helmPath builds a helm.
func helmPath(t *testing.T, root, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile="+module, "-n", "helm")
	cmd.Dir = root
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build helm of %s: %v\n%s", module, err, problems.String())
	}
	return strings.TrimSpace(string(out))
}

func (s *shell) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return s.command(t, "kubectl", args...)
}

// command fails the test if the command fails, and returns what it prints.
func (s *shell) command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := s.try(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (s *shell) try(ctx context.Context, name string, args ...string) (string, error) {
	if filepath.Base(name) == name {
		for _, entry := range s.env {
			if path, ok := strings.CutPrefix(entry, "PATH="); ok {
				name = lookPath(path, name)
			}
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = s.root, s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func lookPath(path, name string) string {
	for _, dir := range filepath.SplitList(path) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
			return filepath.Join(dir, name)
		}
	}
	return name
}

// eventually waits until a named fact holds.
func eventually(t *testing.T, fact string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), poll, patience, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("wait until %s: %v", fact, err)
	}
}
