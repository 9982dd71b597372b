package lint_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/lint"
	rules "github.com/tranche-dev/tranche/lint"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/document"
)

// root is the root of the repository.
const root = "../../.."

const emptyQueue = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata:\n  name: ml\nspec:\n  namespaceSelector: {}\n"

// run runs the verb, and returns its output and its error.
func run(t *testing.T, stdin string, args ...string) (output string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := lint.NewCommand()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestLint(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"good/queue.yaml": emptyQueue,
		"warned.yaml":     emptyQueue + "  stopPolicy: Hold\n",
		"wrong.yaml":      emptyQueue + "  cohort: lab\n",
		"broken.yaml":     "a: [\n---\n" + emptyQueue,
		"flavor.yaml":     "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: spot}\nspec: {nodeLabels: {pool: spot}}\n",
		"nodes.json":      `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "a", "labels": {"pool": "other"}}}]}`,
		"config.yaml":     "apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\nunknown: 1\n",
		"empty/readme.md": "",
		"old/flavor.yaml": "apiVersion: kueue.x-k8s.io/v1beta1 # old\nkind: ResourceFlavor\nmetadata: {name: spot}\n",
		"local.yaml":      "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main, namespace: team}\nspec: {clusterQueue: ml}\n",
		"other.yaml":      strings.Replace(emptyQueue, "name: ml", "name: other", 1),
		"spot.json":       `{"apiVersion": "v1", "kind": "NodeList", "items": [{"metadata": {"name": "a", "labels": {"pool": "spot"}}}]}`,
		"old/service.yml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	writeAnonymized(t, in("anonymized"))
	cases := map[string]struct {
		args     []string
		stdin    string
		wantCode int
		// wantOut and wantErr are parts of the output and of the error.
		wantOut, wantErr string
	}{
		"no findings":                 {[]string{"-f", in("good")}, "", 0, "1 object checked: 0 errors, 0 warnings", ""},
		"a warning":                   {[]string{"-f", in("warned.yaml")}, "", 0, "warned.yaml:7:3: warning: ClusterQueue ml: spec.stopPolicy", ""},
		"a warning with --strict":     {[]string{"-f", in("warned.yaml"), "--strict"}, "", 1, "", "the manifests have 1 warning"},
		"an error":                    {[]string{"-f", in("wrong.yaml")}, "", 1, "wrong.yaml:7:3: error: ClusterQueue ml: spec.cohort", "the manifests have 1 error"},
		"several files":               {[]string{"-f", in("good"), "-f", in("flavor.yaml")}, "", 0, "2 objects checked", ""},
		"the same object twice":       {[]string{"-f", in("good"), "-f", in("warned.yaml")}, "", 1, "duplicate-object", "1 error"},
		"standard input":              {[]string{"-f", "-"}, emptyQueue, 0, "1 object checked", ""},
		"annotations":                 {[]string{"-f", in("wrong.yaml"), "-o", "github"}, "", 1, "::error file=", ""},
		"nodes":                       {[]string{"-f", in("flavor.yaml"), "--nodes", in("nodes.json")}, "", 0, "none of the 1 nodes has the labels pool=spot", ""},
		"nodes that are none":         {[]string{"-f", in("flavor.yaml"), "--nodes", in("flavor.yaml")}, "", 2, "", "ResourceFlavor spot is no Node"},
		"JSON":                        {[]string{"-f", in("good"), "-o", "json"}, "", 0, "{\n  \"checked\": 1,\n  \"findings\": []\n}\n", ""},
		"YAML":                        {[]string{"-f", in("wrong.yaml"), "-o", "yaml"}, "", 1, "checked: 1\nfindings:\n- column: 3\n", ""},
		"a file that is no YAML":      {[]string{"-f", in("broken.yaml")}, "", 1, "broken.yaml:1:1: error: the document is no YAML", "1 error"},
		"the rest of that file":       {[]string{"-f", in("broken.yaml")}, "", 1, "1 object checked: 1 error", ""},
		"a directory without objects": {[]string{"-f", in("empty")}, "", 2, "", "has no files with the extension"},
		"no such file":                {[]string{"-f", in("nowhere")}, "", 2, "", "nowhere"},
		"no manifests":                {nil, "", 2, "", "name a file or a directory with manifests"},
		"a wrong configuration":       {[]string{"-f", in("good"), "--config", in("config.yaml")}, "", 2, "", "unknown"},
		"a queue of a snapshot":       {[]string{"-f", in("local.yaml"), "--snapshot", in("good")}, "", 0, "1 object checked: 0 errors", ""},
		"no queue of a snapshot":      {[]string{"-f", in("local.yaml"), "--snapshot", in("other.yaml")}, "", 1, "there is no ClusterQueue ml", "1 error"},
		"nodes of a snapshot":         {[]string{"-f", in("flavor.yaml"), "--snapshot", in("nodes.json")}, "", 0, "none of the 1 nodes has the labels pool=spot", ""},
		"nodes besides a snapshot":    {[]string{"-f", in("flavor.yaml"), "--snapshot", in("nodes.json"), "--nodes", in("spot.json")}, "", 0, "0 warnings", ""},
		"a snapshot from a stream":    {[]string{"-f", in("local.yaml"), "--snapshot", "-"}, emptyQueue, 0, "0 errors", ""},
		"two streams":                 {[]string{"-f", "-", "--snapshot", "-"}, emptyQueue, 2, "", "standard input can be read only once"},
		"a stream twice":              {[]string{"-f", "-", "-f", "-"}, emptyQueue, 2, "", "standard input can be read only once"},
		"a stream of nodes":           {[]string{"-f", "-", "--nodes", "-"}, emptyQueue, 2, "", "standard input can be read only once"},
		"no such snapshot":            {[]string{"-f", in("good"), "--snapshot", in("nowhere")}, "", 2, "", "nowhere"},
		"an anonymized snapshot":      {[]string{"-f", in("good"), "--snapshot", in("anonymized")}, "", 2, "", "are pseudonyms"},
		"a fix of standard input":     {[]string{"-f", "-", "--fix"}, emptyQueue, 2, "", "--fix needs files"},
		"a fix":                       {[]string{"-f", in("old"), "--fix"}, "", 0, "old/flavor.yaml (1 object)\nskipped: Service web", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, c.stdin, c.args...)
			code, text := 0, ""
			if err != nil {
				code, text = exitcode.Of(err), err.Error()
			}
			if code != c.wantCode || !strings.Contains(text, c.wantErr) {
				t.Errorf("exit code %d, error %q, want %d and %q", code, text, c.wantCode, c.wantErr)
			}
			if !strings.Contains(out, c.wantOut) {
				t.Errorf("got %q, want something with %q", out, c.wantOut)
			}
		})
	}
	if text, err := os.ReadFile(in("old/flavor.yaml")); err != nil || !strings.HasPrefix(string(text), "apiVersion: kueue.x-k8s.io/v1beta2 # old\n") {
		t.Errorf("the fixed file is %q, %v", text, err)
	}
}

// writeAnonymized writes a snapshot without names.
func writeAnonymized(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := &snapshot.Snapshot{TakenAt: time.Unix(1, 0)}
	create := func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }
	if err := s.Write(create, snapshot.NewAnonymizer()); err != nil {
		t.Fatal(err)
	}
}

// TestDocuments runs each command line of the verb in the blocks of the documents that needs no other file, workflows included. Output in the documents
// is that of the tests.
func TestDocuments(t *testing.T) {
	blocks, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	golden, err := os.ReadFile("lint/testdata/engine.txt")
	if err != nil {
		t.Fatal(err)
	}
	ran, compared := 0, 0
	for i := range blocks {
		for line := range strings.SplitSeq(blocks[i].Text, "\n") {
			if strings.HasPrefix(line, "testdata/") {
				compared++
				if !strings.Contains(string(golden), line+"\n") {
					t.Errorf("%s: the output has no line %s", &blocks[i], line)
				}
			}
			_, args, isLint := strings.Cut(line, "tranche lint ")
			if !isLint {
				continue
			}
			ran++
			cmd := lint.NewCommand()
			cmd.SetArgs(strings.Fields(args))
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			if err := cmd.ExecuteContext(t.Context()); err != nil {
				t.Errorf("%s: tranche lint %s: %v", &blocks[i], args, err)
			}
		}
	}
	if ran < 2 || compared < 3 {
		t.Errorf("ran %d command lines and compared %d lines of output, want at least 2 and 3", ran, compared)
	}
}

// TestDocumentRules compares the table of the document with the rules.
func TestDocumentRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "gitops.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.Rules() {
		if row := fmt.Sprintf("| `%s` | %s | %s |\n", rule.ID, rule.Severity, rule.Text); !strings.Contains(string(text), row) {
			t.Errorf("docs/gitops.md has no row %s", row)
		}
	}
}
