package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

func TestSnapshotFlags(t *testing.T) {
	existing := t.TempDir()
	cases := map[string]struct {
		args []string
		want string
	}{
		"a wrong ConfigMap":   {[]string{"--config-map", "tranche-manager"}, `--config-map is "tranche-manager": write NAMESPACE/NAME`},
		"a directory that is": {[]string{"-o", existing}, existing + " exists: remove it"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetArgs(append([]string{"snapshot"}, c.args...))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) || exitcode.Of(err) != exitcode.BadInput {
				t.Errorf("error %v with exit code %d, want %q with %d", err, exitcode.Of(err), c.want, exitcode.BadInput)
			}
		})
	}
}

// The role that messages name must allow reading every kind.
func TestSnapshotReaderRole(t *testing.T) {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "user_roles.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{}
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Name != collect.ReaderRole {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				allowed[rule.APIGroups[0]+"/"+resource] = len(rule.ResourceNames) == 0
			}
		}
	}
	for _, kind := range snapshot.Kinds() {
		if !allowed[kind.GVK.Group+"/"+kind.Resource] {
			t.Errorf("%s may not read %s", collect.ReaderRole, kind.FullResource())
		}
	}
}

// TestSnapshotDocument compares the output that docs/admin.md shows with that of the command, for as many objects.
func TestSnapshotDocument(t *testing.T) {
	objects := map[string]int{
		"namespaces": 8, "nodes": 2, "resourceflavors": 4, "workloadpriorityclasses": 1, "priorityclasses": 2, "clusterqueues": 3, "localqueues": 3,
		"jobsets": 1, "jobs": 1, "workloads": 1,
	}
	var out strings.Builder
	progress := snapshotfile.NewProgress(&out)
	dir := t.TempDir()
	w := &snapshot.Writer{Create: func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }}
	for _, kind := range snapshot.Kinds() {
		if err := w.Begin(kind); err != nil {
			t.Fatal(err)
		}
		for range objects[kind.Resource] {
			if err := w.Add(snapshot.NewObject(kind)); err != nil {
				t.Fatal(err)
			}
		}
		progress.Report(kind.FullResource(), int64(objects[kind.Resource]), 0)
	}
	progress.Finish()
	about := &snapshot.Snapshot{TakenAt: time.Date(2026, 11, 23, 9, 28, 23, 0, time.UTC)}
	if err := summarize(&out, "orion", 18_022, w, about); err != nil {
		t.Fatal(err)
	}
	complete := out.String()
	out.Reset()
	if err := snapshotfile.PrintGaps(&out, []snapshot.Gap{{
		Resource: "nodes", Reason: `User "observer" cannot list resource "nodes" in API group "" at the cluster scope`,
		Cure: "ask for the right to list nodes, for example by a ClusterRoleBinding to the ClusterRole tranche-snapshot-reader",
	}}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "admin.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range []string{"```\n$ bin/tranche snapshot -o orion\n" + complete + "```\n", "```\n" + out.String() + "```\n"} {
		if !strings.Contains(string(page), block) {
			t.Errorf("docs/admin.md shows another output: copy\n%s", block)
		}
	}
}
