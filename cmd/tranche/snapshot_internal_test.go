package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
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
