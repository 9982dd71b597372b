package ledger_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

const ms = time.Millisecond

// A fact is one event of the watch about a life.
type fact struct {
	at       time.Duration
	life     int
	standing ledger.Standing
	charge   ledger.Charge
}

// Two ClusterQueues of 10 in one cohort, of which each may use 15; the small ask for 5, the large for 10.
func load() *shape.Shape {
	s := &shape.Shape{Cohorts: 1, QueuesPerCohort: 2, Classes: []shape.Class{{CPU: resource.MustParse("5m")}, {CPU: resource.MustParse("10m")}}}
	s.Queue.NominalCPU, s.Queue.BorrowingLimitCPU = resource.MustParse("10m"), resource.MustParse("5m")
	return s
}

func lives() []ledger.Life {
	return []ledger.Life{{Queue: 0}, {Queue: 0}, {Queue: 0, Class: 1}, {Queue: 1, Class: 1}, {Queue: 1}}
}

func small(queue int) ledger.Charge { return ledger.Charge{Queue: queue, Amount: 5} }
func large(queue int) ledger.Charge { return ledger.Charge{Queue: queue, Amount: 10} }

func play(l *ledger.Ledger, facts []fact) {
	for _, f := range facts {
		l.See(f.at, f.life, f.standing, f.charge)
	}
}

func TestViolations(t *testing.T) {
	tests := map[string]struct {
		facts []fact
		want  string
	}{
		"queue": {[]fact{
			{0, 0, ledger.Holding, small(0)}, {0, 1, ledger.Holding, small(0)}, {0, 2, ledger.Holding, large(0)},
		}, "ClusterQueue 0 uses 20 of 15"},
		"cohort": {[]fact{
			{0, 0, ledger.Holding, small(0)}, {0, 2, ledger.Holding, large(0)}, {0, 3, ledger.Holding, large(1)},
		}, "cohort 0 uses 25 of 20"},
		"other queue":      {[]fact{{0, 0, ledger.Holding, small(1)}}, "is charged"},
		"other amount":     {[]fact{{0, 0, ledger.Holding, large(0)}}, "is charged"},
		"done for nothing": {[]fact{{0, 0, ledger.Waiting, ledger.Charge{}}, {0, 0, ledger.Finished, ledger.Charge{}}}, "without quota"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := ledger.New(load(), lives())
			play(l, test.facts)
			if got := strings.Join(l.Violations, "\n"); !strings.Contains(got, test.want) || len(l.Violations) != 1 {
				t.Errorf("Violations = %q, want one of %q", got, test.want)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	l := ledger.New(load(), lives())
	play(l, []fact{
		{0, 0, ledger.Waiting, ledger.Charge{}},
		{10 * ms, 0, ledger.Holding, small(0)},
		{20 * ms, 0, ledger.Waiting, ledger.Charge{}},
		{30 * ms, 1, ledger.Waiting, ledger.Charge{}},
		{70 * ms, 0, ledger.Holding, small(0)},
		{70 * ms, 0, ledger.Holding, small(0)},
		{75 * ms, 1, ledger.Holding, small(0)},
		{90 * ms, 0, ledger.Finished, ledger.Charge{}},
	})
	if l.Admissions != 3 || l.Finished != 1 || l.Standing(1) != ledger.Holding || l.Standing(2) != ledger.Unseen {
		t.Errorf("%d admissions, %d finished, standings %d and %d", l.Admissions, l.Finished, l.Standing(1), l.Standing(2))
	}
	if diff := cmp.Diff([]time.Duration{10 * ms, 45 * ms}, l.Latencies(0)); diff != "" {
		t.Errorf("Latencies(0): -want +got\n%s", diff)
	}
}

func TestQuantile(t *testing.T) {
	values := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 5, 0.51: 6, 0.95: 10, 1: 10} {
		if got := ledger.Quantile(values, q); got != want {
			t.Errorf("Quantile(%g) = %d, want %d", q, got, want)
		}
	}
	if got := ledger.Quantile(nil, 0.5); got != 0 {
		t.Errorf("Quantile of nothing = %d, want 0", got)
	}
}
