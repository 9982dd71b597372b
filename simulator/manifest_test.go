package simulator_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

const manifests = `# the queues of a cluster
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata:
  name: a100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  name: research
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - name: nvidia.com/gpu
        nominalQuota: 4
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  namespace: team-a
  name: default
spec:
  clusterQueue: research
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata:
  name: high
value: 10
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
---
# nothing but a comment
`

func readManifests(t *testing.T, files map[string]string) (*simulator.Manifests, error) {
	t.Helper()
	tree := fstest.MapFS{}
	for name, content := range files {
		tree[name] = &fstest.MapFile{Data: []byte(content)}
	}
	m := &simulator.Manifests{}
	return m, m.Read(tree)
}

func run(t *testing.T, text string, m *simulator.Manifests) []string {
	t.Helper()
	s, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	result, err := simulator.Run(s, m)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Violations) > 0 {
		t.Error(result.Violations)
	}
	return result.Lines[:len(result.Lines)-1]
}

func TestManifests(t *testing.T) {
	m, err := readManifests(t, map[string]string{"cluster/queues.yaml": manifests, "README.md": "kind: not read"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Deployment web (cluster/queues.yaml)"}, m.Skipped); diff != "" {
		t.Errorf("skipped: -want +got\n%s", diff)
	}
	const text = "# The queues are those of the cluster.\n" +
		"submit low queue=default namespace=team-a pods=2*nvidia.com/gpu:2 run=1m\n" +
		"submit high queue=default namespace=team-a pods=2*nvidia.com/gpu:2 class=high run=1m\n" +
		"change queue research a100:nvidia.com/gpu=8 at=30s\n"
	want := []string{
		"0m admit high on a100",
		"0m refuse low QuotaFits: waits for quota in ClusterQueue research: needs 4 nvidia.com/gpu of flavor a100: 0 of 4 free",
		"30s admit low on a100",
		"1m finish high",
		"1m30s finish low",
		"held research a100 nvidia.com/gpu 0/8",
	}
	// The manifests can be used again: a run does not change them.
	for range 2 {
		if diff := cmp.Diff(want, run(t, text, m)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestManifestsOfTheSamples(t *testing.T) {
	m := &simulator.Manifests{}
	if err := m.Read(os.DirFS("../config/samples")); err != nil {
		t.Fatal(err)
	}
	lines := run(t, "# A job in the queues that the README installs.\nsubmit a queue=default namespace=team-a pods=nvidia.com/gpu:1\nrun until=1m\n", m)
	if !strings.Contains(strings.Join(lines, "\n"), "held ") {
		t.Errorf("no queue: %v", lines)
	}
}

func TestManifestProblems(t *testing.T) {
	cases := map[string]struct {
		content string
		want    []string
	}{
		"an unknown field":    {"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: a}\nspec: {clusterQueu: b}\n", []string{"a.yaml", "LocalQueue a", "clusterQueu"}},
		"a field twice":       {"apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: a}\nspec: {clusterQueue: b, clusterQueue: c}\n", []string{"clusterQueue"}},
		"an older version":    {"apiVersion: kueue.x-k8s.io/v1beta1\nkind: LocalQueue\nmetadata: {name: a}\n", []string{"v1beta1", "write it in kueue.x-k8s.io/v1beta2"}},
		"the second document": {manifests + "---\nspec: {}\n", []string{"a.yaml:42", "no kind"}},
		"no YAML":             {"a: [\n", []string{"a.yaml:1", "no YAML"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := readManifests(t, map[string]string{"a.yaml": c.content})
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want something with %q", err, part)
				}
			}
		})
	}
}

// TestRunProblems are problems that only show when the scenario runs.
func TestRunProblems(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"a setting out of range":    {"config stage-admission=Fast\n", []string{"Fast", "Safe"}},
		"an unknown class":          {"submit a queue=ml pods=gpu:1 class=high\n", []string{"line 2", `WorkloadPriorityClass "high" does not exist`}},
		"a change of nothing":       {"change queue ml gpu=1\n", []string{"line 2", "queue ml does not exist"}},
		"a removal of nothing":      {"remove flavor a100\n", []string{"line 2", "flavor a100 does not exist"}},
		"a default flavor too much": {"flavor a100\nqueue ml a100:gpu=1\nchange queue ml gpu=2\n", []string{"line 4", "FLAVOR:RESOURCE"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := scenario.Parse("# story\n" + c.text)
			if err != nil {
				t.Fatal(err)
			}
			_, err = simulator.Run(s, nil)
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want something with %q", err, part)
				}
			}
		})
	}
}

// TestNamespacesHaveTheirName matches the label that the API server gives each Namespace, whether or not a manifest declares the Namespace.
func TestNamespacesHaveTheirName(t *testing.T) {
	text := strings.Replace(manifests, "namespaceSelector: {}", "namespaceSelector:\n    matchLabels:\n      kubernetes.io/metadata.name: team-a", 1)
	declared := "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: team-a\n  labels:\n    tier: gold\n"
	for name, files := range map[string]map[string]string{
		"declared":     {"queues.yaml": text, "namespace.yaml": declared},
		"not declared": {"queues.yaml": text},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := readManifests(t, files)
			if err != nil {
				t.Fatal(err)
			}
			got := run(t, "# story\nsubmit a queue=default namespace=team-a stages=train(nvidia.com/gpu=1)\nrun until=1m\n", m)
			if want := "0m admit a/train on a100"; got[0] != want {
				t.Errorf("got %q, want %q", got[0], want)
			}
		})
	}
}
