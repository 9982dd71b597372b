package takeover

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
)

var update = flag.Bool("update", false, "write the goldens")

// tree is a cohort tree of two ClusterQueues. An administrator holds the second one.
func tree(change func(research, serving *kueue.ClusterQueue, s *state)) *state {
	s := stateOf(func(s *state) {
		s.names = append(s.names, "serving")
		s.queues["serving"] = &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "serving"}, Spec: kueue.ClusterQueueSpec{StopPolicy: new(kueue.Hold)}}
		s.queues["research"].Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		s.unsupported = []Unsupported{{
			Namespace: "team", Name: "job-elastic-5a7d3", Owner: "Job elastic", ClusterQueue: "research", HoldsQuota: true,
			Problem: "annotation kueue.x-k8s.io/workload-slice-name is not supported, because Kueue does not always stop the pods of an elastic job that is evicted: submit the job without the annotation kueue.x-k8s.io/elastic-job",
		}}
	})
	change(s.queues["research"], s.queues["serving"], s)
	return s
}

// TestGoldens compares the output of both verbs, as text and as data, with its goldens.
func TestGoldens(t *testing.T) {
	taken := func(research, serving *kueue.ClusterQueue, _ *state) {
		research.Annotations = map[string]string{apis.EngineAnnotation: apis.EngineTranche}
		serving.Annotations = map[string]string{apis.EngineAnnotation: apis.EngineTranche, apis.StopPolicyAnnotation: "Hold"}
	}
	for name, c := range map[string]struct {
		plan   func(*state) (*Plan, error)
		change func(research, serving *kueue.ClusterQueue, s *state)
		settle func(*Plan) error
		want   string
	}{
		"takeover": {planTakeover, func(_, _ *kueue.ClusterQueue, _ *state) {}, (*Plan).block, ""},
		"takeover-blocked": {planTakeover, func(research, _ *kueue.ClusterQueue, s *state) {
			research.Spec.StopPolicy = new(kueue.HoldAndDrain)
			s.kueueVersion, s.missing = "v0.18.1", []string{"training"}
		}, (*Plan).block, "what is listed above stands in the way"},
		"takeover-unfinished": {planTakeover, func(_, _ *kueue.ClusterQueue, s *state) { s.kueueVersion = "" }, func(p *Plan) error {
			return p.finish(errors.New("timed out while waiting for serving"))
		}, "timed out while waiting for serving"},
		"hand-back": {planHandBack, taken, func(p *Plan) error { return p.finish(nil) }, ""},
		"hand-back-part": {planHandBack, func(research, serving *kueue.ClusterQueue, s *state) {
			taken(research, serving, s)
			research.Annotations = nil
		}, (*Plan).block, ""},
		"hand-back-blocked": {planHandBack, func(research, serving *kueue.ClusterQueue, s *state) {
			taken(research, serving, s)
			s.missing = []string{"training"}
		}, (*Plan).block, "what is listed above stands in the way"},
	} {
		p, err := c.plan(tree(c.change))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := c.settle(p); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: the error is %q, want %q", name, got, c.want)
		}
		var text strings.Builder
		if err := p.writeText(&text); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", text.String())
		var data strings.Builder
		if err := new(output.JSON).Write(&data, p); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", data.String())
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path) // #nosec G304 -- the names are those of the test
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", path, diff)
	}
}

// TestEnded: the program replaces errors of contexts by one that does not say that ClusterQueues are held.
func TestEnded(t *testing.T) {
	refused := errors.New("refused")
	for want, err := range map[string]error{
		"interrupted": fmt.Errorf("patch: %w", context.Canceled), "timed out": fmt.Errorf("patch: %w", context.DeadlineExceeded), "refused": refused,
	} {
		if got := ended(err); got.Error() != want || errors.Is(got, context.Canceled) || errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("%v ends as %v, want %s", err, got, want)
		}
	}
	if err := ended(nil); err != nil {
		t.Errorf("no error ends as %v", err)
	}
}

// TestDocument compares the output that docs/migrate-from-kueue.md shows with the goldens.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../../docs/migrate-from-kueue.md")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadFile(filepath.Join("testdata", "takeover.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if block := "```\n$ tranche takeover research serving --dry-run\n" + string(shown) + "```\n"; !strings.Contains(string(page), block) {
		t.Errorf("docs/migrate-from-kueue.md shows another answer: copy\n%s", block)
	}
}
