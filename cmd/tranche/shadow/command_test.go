package shadow_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/shadow"
	report "github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/test/kueueday"
)

var update = flag.Bool("update", false, "write testdata/day.txt")

// run runs the verb.
func run(stdin string, args ...string) (out, warnings string, err error) {
	cmd := shadow.NewCommand("test")
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	var stdout, stderr bytes.Buffer
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

func auditLog(t *testing.T, level string) string {
	t.Helper()
	var log bytes.Buffer
	if err := kueueday.Recorded().AuditLog(&log, level); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// TestRecordedDay prints the report on the audit log of a day. The page about the migration shows the same text.
func TestRecordedDay(t *testing.T) {
	log := auditLog(t, "RequestResponse")
	out, warnings, err := run(log, "--audit-log", "-")
	if err != nil || warnings != "" {
		t.Fatal(err, warnings)
	}
	golden := filepath.Join("testdata", "day.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	page, err := os.ReadFile("../../../docs/migrate-from-kueue.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```\n"+out+"```\n") {
		t.Error("docs/migrate-from-kueue.md shows another report: copy testdata/day.txt")
	}
}

// TestWide prints all JobSets of each list, and otherwise the same.
func TestWide(t *testing.T) {
	log := auditLog(t, "RequestResponse")
	text, _, err := run(log, "--audit-log", "-")
	if err != nil {
		t.Fatal(err)
	}
	wide, _, err := run(log, "--audit-log", "-", "-o", "wide")
	if err != nil {
		t.Fatal(err)
	}
	before, after, isShort := strings.Cut(text, "and 20 more: see -o wide\n")
	if more := strings.Count(wide, "\n") - strings.Count(before+after, "\n"); !isShort || more != 20 || !strings.HasSuffix(wide, after) {
		t.Errorf("%d more lines, want the 20 others:\n%s", more, wide)
	}
}

// TestSources reads the same day from a compressed log, and from standard input as JSON.
func TestSources(t *testing.T) {
	log := auditLog(t, "RequestResponse")
	path := filepath.Join(t.TempDir(), "audit.log.gz")
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write([]byte(log)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, compressed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ofFile, _, err := run("", "--audit-log", path, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	ofInput, _, err := run(log, "--audit-log", "-", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ofInput, ofFile); diff != "" {
		t.Errorf("standard input and a compressed file differ:\n%s", diff)
	}
	var r report.Report
	if err := json.Unmarshal([]byte(ofFile), &r); err != nil {
		t.Fatal(err)
	}
	if r.JobSets.Total != 36 || r.JobSets.Staged != 24 || r.Error.MaxSeconds != 0 {
		t.Errorf("%+v, error %+v", r.JobSets, r.Error)
	}
}

// TestSnapshot reports on the objects that are left at the end of the same day, as text and as YAML.
func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	day := kueueday.Recorded()
	err := day.Snapshot(day.Begin.Add(24*time.Hour)).Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, warnings, err := run("", "--snapshot", dir)
	if err != nil || warnings != "" {
		t.Fatal(err, warnings)
	}
	if want := ": 36 JobSets, 24 with several stages; 36 finished, 0 running, 0 pending.\n"; !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
	ofYAML, _, err := run("", "--snapshot", dir, "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	var r report.Report
	if err := yaml.UnmarshalStrict([]byte(ofYAML), &r); err != nil {
		t.Fatal(err)
	}
	if r.JobSets.Total != 36 || r.JobSets.Staged != 24 || r.Error.Compared != 36 {
		t.Errorf("%+v, error %+v", r.JobSets, r.Error)
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	manifest := "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a, namespace: b}\nspec: {replicatedJobs: [{name: a, template: {}}]}\n"
	metadata := auditLog(t, "Metadata")
	mixed := strings.SplitAfterN(auditLog(t, "RequestResponse"), "\n", 2)[0] + metadata
	cases := map[string]struct {
		in   string
		args []string
		want []string
	}{
		"no file":              {"", []string{"--audit-log", filepath.Join(dir, "nowhere")}, []string{"read the audit log", "nowhere: no such file"}},
		"no snapshot":          {"", []string{"--snapshot", filepath.Join(dir, "nowhere")}, []string{"read the snapshot", "nowhere: no such file"}},
		"level Metadata":       {metadata, []string{"--audit-log", "-"}, []string{"events of jobsets.jobset.x-k8s.io are at level Metadata", "level RequestResponse is needed", "level: RequestResponse\n"}},
		"queues only":          {mixed, []string{"--audit-log", "-"}, []string{"events of jobsets.jobset.x-k8s.io are at level Metadata"}},
		"text":                 {"hello\n", []string{"--audit-log", "-"}, []string{"standard input:1: not an audit event in JSON", "--audit-log-format=json"}},
		"half an event":        {auditLog(t, "RequestResponse")[:5000], []string{"--audit-log", "-"}, []string{"not an audit event in JSON", "unexpected end"}},
		"another object":       {`{"kind":"Pod","apiVersion":"v1"}` + "\n", []string{"--audit-log", "-"}, []string{`apiVersion "v1" and kind "Pod"`}},
		"an empty log":         {"", []string{"--audit-log", "-"}, []string{"no event has a JobSet", "level: RequestResponse\n"}},
		"half compressed":      {"\x1f\x8b\x08", []string{"--audit-log", "-"}, []string{"standard input: unexpected EOF"}},
		"manifests":            {manifest, []string{"--snapshot", "-"}, []string{"JobSet b/a has no metadata.creationTimestamp", "tranche snapshot"}},
		"both standard input":  {"", []string{"--snapshot", "-", "--audit-log", "-"}, []string{"name a file for one of them"}},
		"a time for a log":     {"", []string{"--audit-log", "-", "--for", "1m"}, []string{"--for is how long to watch a cluster"}},
		"metrics for a log":    {"", []string{"--audit-log", "-", "--metrics-bind-address", ":0"}, []string{"--metrics-bind-address serves metrics while a cluster is watched"}},
		"replays all the time": {"", []string{"--report-interval", "1ms"}, []string{"--report-interval is 1ms: it must be at least 1s"}},
		"a negative time":      {"", []string{"--for", "-1m"}, []string{"--for is -1m0s"}},
		"no JobSet to keep":    {"", []string{"--limit", "0"}, []string{"--limit is 0"}},
		"an unknown format":    {"", []string{"-o", "xml"}, []string{"must be one of text, wide, json, yaml"}},
		"an argument":          {"", []string{"now"}, []string{`"now"`}},
		"no configuration":     {"", []string{"--config", filepath.Join(dir, "nowhere")}, []string{"read --config", "no such file"}},
		"wrong configuration":  {"", []string{"--config", "command_test.go"}, []string{"command_test.go: "}},
		"log and a kubeconfig": {"", []string{"--audit-log", "-", "--kubeconfig", "k"}, []string{"none of the others can be"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, _, err := run(c.in, c.args...)
			if err == nil || out != "" {
				t.Fatalf("error %v, output %q", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want one with %q", err, want)
				}
			}
			// The program gives mistakes in arguments their exit code.
			if isUsage := len(c.args) == 1 || c.args[0] == "-o" || name == "log and a kubeconfig"; !isUsage && exitcode.Of(err) != exitcode.BadInput {
				t.Errorf("exit code %d", exitcode.Of(err))
			}
		})
	}
}
