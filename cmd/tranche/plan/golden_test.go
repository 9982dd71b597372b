package plan_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/plan"
	"github.com/tranche-dev/tranche/snapshot"
)

var update = flag.Bool("update", false, "write the goldens")

// recorded is where the recorded changes are. The tests of package simulator make their worlds come true.
const recorded = "../../../plan/testdata"

// run runs a command, and returns its output and its exit code.
func run(t *testing.T, cmd *cobra.Command, args ...string) (out string, code int, err error) {
	t.Helper()
	var text bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&text)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.ExecuteContext(t.Context())
	code = 0
	if err != nil {
		code = exitcode.Of(err)
	}
	return text.String(), code, err
}

// TestRecordedPlans compares the plans of the recorded changes in all formats with their goldens.
func TestRecordedPlans(t *testing.T) {
	worlds, err := filepath.Glob(filepath.Join(recorded, "*", "snapshot"))
	if err != nil || len(worlds) < 10 {
		t.Fatalf("%d recorded changes: %v", len(worlds), err)
	}
	codes := map[string]int{
		"quota-raised": 2, "queue-held": 2, "resumed": 2, "lending-limit": 2, "not-evicted": 2, "can-fit-again": 2,
	}
	for _, world := range worlds {
		dir := filepath.Dir(world)
		name := filepath.Base(dir)
		want, isMild := codes[name]
		if !isMild {
			want = 3
		}
		for format, file := range map[string]string{"text": "plan.txt", "markdown": "plan.md", "json": "plan.json"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				args := []string{"-f", filepath.Join(dir, "queues.yaml"), "--prune", "--snapshot", world, "-o", format}
				out, code, err := run(t, plan.NewCommand("test"), args...)
				if code != want {
					t.Fatalf("exit code %d, want %d: %v", code, want, err)
				}
				again, _, _ := run(t, plan.NewCommand("test"), args...)
				if diff := cmp.Diff(out, again); diff != "" {
					t.Errorf("the second answer differs: -first +second\n%s", diff)
				}
				golden(t, filepath.Join(dir, file), out)
			})
		}
	}
}

// TestWide prints all names, the quota Workloads and the times.
func TestWide(t *testing.T) {
	args := []string{"quota", "ml/default/gpu=3", "--snapshot", filepath.Join(recorded, "quota-cut", "snapshot"), "-o", "wide"}
	out, _, err := run(t, plan.NewWhatIfCommand("test"), args...)
	if exitcode.Of(err) != 3 {
		t.Fatal(err)
	}
	golden(t, "testdata/wide.txt", out)
}

// TestWhatIfAnswers compares the answers to what-if questions with their goldens.
func TestWhatIfAnswers(t *testing.T) {
	world := filepath.Join(recorded, "quota-raised", "snapshot")
	nodes := snapshotOf(t, "testdata/nodes.yaml")
	for name, c := range map[string]struct {
		world    string
		question []string
		code     int
	}{
		"quota-up":      {world, []string{"quota", "ml/default/gpu=8"}, 2},
		"quota-down":    {world, []string{"quota", "ml/default/gpu=3"}, 3},
		"submit":        {world, []string{"submit", "-f", "testdata/jobset.yaml"}, 2},
		"node-loss":     {nodes, []string{"node-loss", "-l", "zone=b"}, 3},
		"node-loss-all": {nodes, []string{"node-loss", "-l", "gpu=a100"}, 3},
	} {
		for format, extension := range map[string]string{"text": ".txt", "markdown": ".md", "json": ".json"} {
			t.Run(name+extension, func(t *testing.T) {
				out, code, err := run(t, plan.NewWhatIfCommand("test"), append(c.question, "--snapshot", c.world, "-o", format)...)
				if code != c.code {
					t.Fatalf("exit code %d, want %d: %v", code, c.code, err)
				}
				golden(t, filepath.Join("testdata", name+extension), out)
			})
		}
	}
}

// snapshotOf writes manifests as a snapshot that was taken at a fixed time.
func snapshotOf(t *testing.T, manifests string) (dir string) {
	t.Helper()
	file, err := os.Open(manifests)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() //nolint:errcheck // the file is only read
	s, err := snapshot.ReadStream(manifests, file)
	if err != nil {
		t.Fatal(err)
	}
	s.TakenAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	dir = t.TempDir()
	if err := s.Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(dir, name)) }, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

// TestExitCodes asks for changes from which nothing follows, something mild and something bad.
func TestExitCodes(t *testing.T) {
	world := filepath.Join(recorded, "quota-raised", "snapshot")
	for quota, want := range map[string]int{"ml/default/gpu=4": 0, "ml/default/gpu=5": 0, "ml/default/gpu=8": 2, "ml/default/gpu=3": 3} {
		out, code, err := run(t, plan.NewWhatIfCommand("test"), "quota", quota, "--snapshot", world)
		if code != want {
			t.Errorf("%s: exit code %d, want %d: %v\n%s", quota, code, want, err, out)
		}
	}
}

// TestHalfSnapshot plans from snapshots that lack a file. An answer that the missing objects may change has the exit code of an error, unless it is bad
// anyway.
func TestHalfSnapshot(t *testing.T) {
	world := filepath.Join(recorded, "quota-raised", "snapshot")
	const notCertain = "the plan is not certain: the snapshot lacks jobs; of what it has follows: "
	for _, c := range []struct {
		missing, quota string
		code           int
		want           string
		isPlanned      bool
	}{
		{"jobs.batch", "5", 1, notCertain + "nothing follows", true},
		{"jobs.batch", "8", 1, notCertain, true},
		{"jobs.batch", "3", 3, "the change does harm: ", true},
		{"jobs.batch", "4", 0, "", true}, // nothing changes
		{"nodes", "5", 0, "", true},
		{"nodes", "8", 2, "the change has consequences: ", true},
		{"clusterqueues.kueue.x-k8s.io", "5", 1, "the snapshot lacks clusterqueues: what follows from a change is not known", false},
		{"workloads.kueue.x-k8s.io", "4", 1, "the snapshot lacks workloads: what follows from a change is not known", false},
	} {
		t.Run(c.missing+" "+c.quota, func(t *testing.T) {
			dir := t.TempDir()
			files, err := filepath.Glob(filepath.Join(world, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if filepath.Base(file) != c.missing+".jsonl" {
					copyFile(t, file, dir)
				}
			}
			out, code, err := run(t, plan.NewWhatIfCommand("test"), "quota", "ml/default/gpu="+c.quota, "--snapshot", dir)
			if code != c.code || err != nil && !strings.HasPrefix(err.Error(), c.want) || (out != "") != c.isPlanned {
				t.Errorf("exit code %d, error %v, want %d and %q\n%s", code, err, c.code, c.want, out)
			}
		})
	}
}

// TestBadInput gives flags, snapshots and manifests that cannot be answered about.
func TestBadInput(t *testing.T) {
	dir := filepath.Join(recorded, "quota-raised")
	world, queues := filepath.Join(dir, "snapshot"), filepath.Join(dir, "queues.yaml")
	half, old, anonymized := t.TempDir(), t.TempDir(), t.TempDir()
	taken, err := snapshot.ReadDir(os.DirFS(world))
	if err != nil {
		t.Fatal(err)
	}
	if err := taken.Write(func(name string) (io.WriteCloser, error) { return os.Create(filepath.Join(anonymized, name)) }, snapshot.NewAnonymizer()); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(world, "workloads.kueue.x-k8s.io.jsonl"), half)
	metadata := copyFile(t, filepath.Join(world, "snapshot.json"), old)
	content, err := os.ReadFile(metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(metadata, bytes.ReplaceAll(content, []byte("v1alpha1"), []byte("v0")), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--until is -1h0m0s, must be positive":   {"-f", queues, "--snapshot", world, "--until", "-1h"},
		"--max-workloads is 0, must be positive": {"-f", queues, "--snapshot", world, "--max-workloads", "0"},
		"the tree of ClusterQueue ml has 3 quota Workloads, more than 2 (--max-workloads): no simulated answer": {"-f", queues, "--snapshot", world, "--max-workloads", "2"},
		"read the snapshot: stat nowhere":  {"-f", queues, "--snapshot", "nowhere"},
		"read the manifests: stat nowhere": {"-f", "nowhere", "--snapshot", world},
		"snapshot.json is missing, so that neither the version nor the time of the snapshot is known": {"-f", queues, "--snapshot", half},
		`the format is "Snapshot" of "snapshot.tranche.dev/v0"`:                                       {"-f", queues, "--snapshot", old},
		"the names in the snapshot are pseudonyms":                                                    {"-f", queues, "--snapshot", anonymized},
		"nowhere.kubeconfig":                          {"-f", queues, "--kubeconfig", "nowhere.kubeconfig"},
		"--config-map is \"x\": write NAMESPACE/NAME": {"-f", queues, "--config-map", "x"},
		"standard input can be read only once":        {"-f", "-", "--snapshot", "-"},
		"is given twice, in " + queues:                {"-f", queues, "-f", queues, "--snapshot", world},
	} {
		t.Run(want, func(t *testing.T) {
			out, code, err := run(t, plan.NewCommand("test"), args...)
			if code != 1 || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("exit code %d, error %v, want 1 and %s\n%s", code, err, want, out)
			}
		})
	}
}

func copyFile(t *testing.T, path, dir string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestUnknownWhatIf: a mistyped question is an error, and not the exit code of no consequences.
func TestUnknownWhatIf(t *testing.T) {
	cmd := plan.NewWhatIfCommand("test")
	cmd.SetArgs([]string{"quotas"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "quotas") {
		t.Errorf("the error is %v", err)
	}
}
