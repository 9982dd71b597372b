package shape_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

func TestShapes(t *testing.T) {
	type facts struct {
		queues, lives  int
		quota, arrival time.Duration
	}
	tests := map[string]facts{
		"baseline":       {30, 15000, 66 * time.Second, 61 * time.Second},
		"baseline-tenth": {30, 1500, 6600 * time.Millisecond, 7 * time.Second},
	}
	files, err := filepath.Glob(filepath.Join("..", "shapes", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(tests) {
		t.Errorf("there are %d shapes, want %d", len(files), len(tests))
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("..", "shapes", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			s, err := shape.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			if got := (facts{s.Queues(), s.Lives(), s.QuotaBound(), s.ArrivalBound()}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

const sample = `
cohorts: 2
queuesPerCohort: 3
queue: {strategy: StrictFIFO, nominalCPU: 10, borrowingLimitCPU: 5, reclaimWithinCohort: Any, withinClusterQueue: Never, localQueues: 1}
classes:
- {name: a, count: 2, every: 1s, priority: 1, cpu: 4, runs: 3s}
`

func TestLimits(t *testing.T) {
	tests := map[string]struct {
		replace, by         string
		wantQueue, wantTree int64
	}{
		"borrowing limit":          {"", "", 15_000, 30_000},
		"more than the cohort has": {"borrowingLimitCPU: 5", "borrowingLimitCPU: 500", 30_000, 30_000},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, err := shape.Decode([]byte(strings.Replace(sample, test.replace, test.by, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if queue, tree := s.QueueLimit(), s.TreeLimit(); queue != test.wantQueue || tree != test.wantTree {
				t.Errorf("limits %d, %d, want %d, %d", queue, tree, test.wantQueue, test.wantTree)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	tests := map[string]struct{ replace, by, want string }{
		"unknown field":     {"cohorts: 2", "cohort: 2", "unknown field"},
		"field given twice": {"cohorts: 2", "cohorts: 2\ncohorts: 3", "already set"},
		"no queues":         {"queuesPerCohort: 3", "queuesPerCohort: 0", "queuesPerCohort"},
		"no cohorts":        {"cohorts: 2", "cohorts: 0", "cohorts"},
		"strategy":          {"StrictFIFO", "FIFO", "queue.strategy"},
		"no local queue":    {"localQueues: 1", "localQueues: 0", "localQueues"},
		"never fits":        {"cpu: 4", "cpu: 16", "fit a queue"},
		"no time":           {"runs: 3s", "runs: 0s", "runs"},
		"no classes":        {sample[strings.Index(sample, "classes:"):], "classes: []", "no classes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := shape.Decode([]byte(strings.Replace(sample, test.replace, test.by, 1)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Decode() = %v, want an error about %q", err, test.want)
			}
		})
	}
}
