package lint_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/lint"
	"github.com/tranche-dev/tranche/manifest"
	"github.com/tranche-dev/tranche/snapshot"
)

var update = flag.Bool("update", false, "rewrite the expected output")

func run(t *testing.T, file string) *lint.Result {
	t.Helper()
	return runWith(t, file, lint.Options{})
}

func runWith(t *testing.T, file string, options lint.Options) *lint.Result {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, unreadable := manifest.Read(file, content)
	result, err := lint.Run(objects, unreadable, options)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func wantGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}

// TestFindings compares the findings about each file of testdata with the expected ones.
func TestFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	found := map[string]bool{}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			result := run(t, file)
			for _, f := range result.Findings {
				found[f.Rule] = true
			}
			var out bytes.Buffer
			if err := lint.WriteText(&out, result); err != nil {
				t.Fatal(err)
			}
			wantGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", out.String())
		})
	}
	for _, rule := range lint.Rules() {
		if !found[rule.ID] {
			t.Errorf("no file of testdata breaks rule %s", rule.ID)
		}
	}
}

// TestFormats compares each output format with the expected output.
func TestFormats(t *testing.T) {
	result := run(t, "testdata/old.yaml")
	for name, write := range map[string]func(io.Writer, *lint.Result) error{"text": lint.WriteText, "sarif": lint.WriteSARIF, "github": lint.WriteGitHub, "json": writeJSON} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out, result); err != nil {
				t.Fatal(err)
			}
			wantGolden(t, filepath.Join("testdata", "formats", name+".txt"), out.String())
		})
	}
}

func writeJSON(w io.Writer, result *lint.Result) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

// TestBeside finds nothing wrong with a ClusterQueue that asks for Tranche beside Kueue, where spec.stopPolicy stops Kueue only, and with jobs of kinds that
// Kueue queues.
func TestBeside(t *testing.T) {
	for _, file := range []string{"testdata/takeover.yaml", "testdata/foreign.yaml"} {
		if result := runWith(t, file, lint.Options{Engine: admission.Config{Leader: admission.LedByKueue}}); len(result.Findings) > 0 {
			t.Errorf("%s: %+v", file, result.Findings)
		}
	}
}

// TestSamples finds nothing in the samples.
func TestSamples(t *testing.T) {
	samples := os.DirFS("../config/samples")
	names, err := manifest.Files(samples)
	if err != nil {
		t.Fatal(err)
	}
	var all []*manifest.Object
	for _, name := range names {
		content, err := fs.ReadFile(samples, name)
		if err != nil {
			t.Fatal(err)
		}
		objects, unreadable := manifest.Read(name, content)
		for _, err := range unreadable {
			t.Error(err)
		}
		all = append(all, objects...)
	}
	result, err := lint.Run(all, nil, lint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range result.Findings {
		t.Errorf("%+v", result.Findings[i])
	}
	if result.Checked < 15 {
		t.Errorf("%d objects were checked, want at least 15", result.Checked)
	}
}

// TestUpgrade compares the text of objects of the previous version with the expected one. The upgraded objects have no error but those that Upgrade
// leaves, and a second upgrade changes nothing.
func TestUpgrade(t *testing.T) {
	content, err := os.ReadFile("testdata/old.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, upgraded := lint.Upgrade("old.yaml", content)
	if upgraded != 16 {
		t.Fatalf("upgraded %d objects, want 16", upgraded)
	}
	wantGolden(t, "testdata/upgrade/new.txt", string(text))
	if again, upgraded := lint.Upgrade("new.yaml", text); upgraded != 0 || string(again) != string(text) {
		t.Errorf("a second upgrade changed %d objects", upgraded)
	}
	objects, unreadable := manifest.Read("new.yaml", text)
	result, err := lint.Run(objects, unreadable, lint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range result.Findings {
		f := &result.Findings[i]
		if f.Severity == lint.Error && f.Object != "Workload team-a/topology" {
			t.Errorf("%+v", f)
		}
	}
}

// TestCluster checks manifests that refer to objects of a cluster, and replace one of them.
func TestCluster(t *testing.T) {
	file, err := os.Open("testdata/cluster/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // the file is only read
	cluster, err := snapshot.ReadStream("objects.yaml", file)
	if err != nil {
		t.Fatal(err)
	}
	for golden, options := range map[string]lint.Options{
		"testdata/cluster/with.txt": {Cluster: cluster}, "testdata/cluster/without.txt": {},
		"testdata/cluster/nodes.txt": {Cluster: cluster, Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": "spot"}}}}},
	} {
		t.Run(golden, func(t *testing.T) {
			var out bytes.Buffer
			if err := lint.WriteText(&out, runWith(t, "testdata/cluster/manifests.yaml", options)); err != nil {
				t.Fatal(err)
			}
			wantGolden(t, golden, out.String())
		})
	}
}
