package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	unknown := filepath.Join(t.TempDir(), "unknown.yaml")
	write(t, unknown, "apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\nstageAdmision: Safe\n")
	invalid := filepath.Join(t.TempDir(), "invalid.yaml")
	write(t, invalid, "apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\nstageAdmission: Careless\n")
	cases := map[string]struct {
		args []string
		// want is a part of the output, or of the error where fails is set.
		want  string
		fails bool
	}{
		"help lists the verbs":               {[]string{"--help"}, "manager", false},
		"help of the manager has an example": {[]string{"manager", "--help"}, "tranche manager --config", false},
		"help of version":                    {[]string{"version", "--help"}, "Print the version", false},
		"version":                            {[]string{"version"}, versionLine(), false},
		"version as a flag":                  {[]string{"--version"}, versionLine(), false},
		"help of pending":                    {[]string{"pending", "--help"}, "tranche pending --cluster-queue", false},
		"help of explain":                    {[]string{"explain", "--help"}, "tranche explain -n", false},
		"two kinds of queue":                 {[]string{"pending", "--queue=a", "--cluster-queue=b"}, "[cluster-queue queue]", true},
		"nothing to explain":                 {[]string{"explain"}, "accepts 1 arg(s)", true},
		"no cluster to ask":                  {[]string{"explain", "x", "--kubeconfig", "nowhere.kubeconfig"}, "nowhere.kubeconfig", true},
		"an unknown verb":                    {[]string{"manage"}, `unknown command "manage"`, true},
		"an unknown flag":                    {[]string{"manager", "--conf=x"}, "unknown flag: --conf", true},
		"an argument too many":               {[]string{"manager", "now"}, `unknown command "now"`, true},
		"a file that is not there":           {[]string{"manager", "--config", "nowhere.yaml"}, "nowhere.yaml", true},
		"an unknown field":                   {[]string{"manager", "--config", unknown}, "stageAdmision", true},
		"an invalid field":                   {[]string{"manager", "--config", invalid}, "stageAdmission", true},
		"a kubeconfig that is not there":     {[]string{"manager", "--kubeconfig", "nowhere.kubeconfig"}, "nowhere.kubeconfig", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := newCommand()
			cmd.SetArgs(c.args)
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			if (err != nil) != c.fails {
				t.Fatalf("err = %v, want a failure: %t", err, c.fails)
			}
			got := out.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want something with %q", got, c.want)
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
