package simulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
)

// TestTrialsWithoutRepeats: a trial has the same result without pending quota Workloads behind equal ones.
func TestTrialsWithoutRepeats(t *testing.T) {
	t.Parallel()
	smaller, admitted := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		text := crowdedLines(t)
		p, err := simulator.Pause(text, 10*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		pending := p.Pending()
		if len(pending) == 0 {
			return
		}
		// The queue of the quota Workload keeps all: fewer wait in x than in the others.
		inX := slices.DeleteFunc(slices.Clone(pending), func(key admission.StageKey) bool { return p.QueueOf(key) != "x" })
		if len(inX) > 0 {
			pending = inX
		}
		key := rapid.SampledFrom(pending).Draw(t, "target")
		whole := simulator.NewLaboratoryKeeping(p.Taken, &simulator.Durations{}, key)
		part := simulator.NewLaboratoryKeeping(p.Taken, &simulator.Durations{}, key, rapid.SampledFrom([][]int{{1}, {2}, {1, 3}}).Draw(t, "keeps")...)
		for i := range 4 {
			var changes []simulator.Change
			if i > 0 {
				changes = someChanges(t, whole)
			}
			want, err := whole.Try(changes...)
			if err != nil {
				t.Fatal(err)
			}
			got, err := part.Try(changes...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Fatalf("%s after %v: -want +got\n%s\n%s", key, changes, diff, text)
			}
			if part.LeavesOut() > 0 && len(changes) > 0 {
				smaller++
				if got.IsAdmitted {
					admitted++
				}
			}
		}
	})
	if smaller < 50 || admitted < 5 {
		t.Errorf("%d trials left something out, and %d of them admitted: these worlds are too small", smaller, admitted)
	}
}

// someChanges draws quota Workloads that succeed, and limits that are raised.
func someChanges(t *rapid.T, l *simulator.Laboratory) []simulator.Change {
	var changes []simulator.Change
	running := l.Running()
	for range rapid.IntRange(0, min(3, len(running))).Draw(t, "ends") {
		changes = append(changes, simulator.Change{Succeeds: rapid.SampledFrom(running).Draw(t, "running").Workload})
	}
	if len(changes) == 0 || rapid.Bool().Draw(t, "raises") {
		limit := simulator.Limit{Kind: visibility.ClusterQueue, Name: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "limit"), Flavor: "default", Resource: "gpu", Field: visibility.NominalQuota}
		if _, isSet := l.Value(limit); isSet {
			changes = append(changes, simulator.Change{Limit: limit, To: *resource.NewQuantity(int64(rapid.IntRange(0, 40).Draw(t, "to")), resource.DecimalSI)})
		}
	}
	return changes
}

// crowdedLines draws worlds in which many equal jobs and JobSets wait.
func crowdedLines(t *rapid.T) string {
	lines := []string{"# Crowded.\n", rapid.SampledFrom([]string{
		"", "config fair-sharing=true\n", "config admission-fair-sharing.usage-half-life-time=1h admission-fair-sharing.usage-sampling-interval=1m\n",
	}).Draw(t, "config"), "cohort lab\n"}
	reserves := rapid.SampledFrom([]string{"", "", " reserve-after=Never", " reserve-after=1m", " reserve-after=5m"})
	strategy := rapid.SampledFrom([]string{"StrictFIFO", "BestEffortFIFO", "BestEffortFIFO"})
	more := rapid.SampledFrom([]string{"", "", " within=LowerPriority reclaim=Any", " within=LowerOrNewerEqualPriority", " reclaim=LowerPriority", " policy=Reserve"})
	for _, queue := range []string{"x", "y", "z"} {
		lines = append(lines, fmt.Sprintf("queue %s gpu=%d%s cohort=lab strategy=%s%s%s\n", queue, rapid.IntRange(1, 8).Draw(t, "quota"),
			rapid.SampledFrom([]string{"", "", "/borrow=2", "/lend=1"}).Draw(t, "limit"), strategy.Draw(t, "strategy"), more.Draw(t, "more"), reserves.Draw(t, "reservation")))
	}
	kinds := rapid.IntRange(1, 3).Draw(t, "kinds")
	shapes := make([]string, kinds)
	for i := range kinds {
		n := rapid.IntRange(1, 4).Draw(t, "gpus")
		shapes[i] = fmt.Sprintf(rapid.SampledFrom([]string{"pods=gpu:%d", "stages=p(gpu=%d)", "stages=p(gpu=1)=Succeeded=>q(gpu=%d)", "stages=p(gpu=1)=Ready=>q(gpu=%d)", "pods=%d*gpu:1"}).Draw(t, "shape"), n)
	}
	for i := range rapid.IntRange(30, 50).Draw(t, "jobs") {
		limit := ""
		if minutes := rapid.SampledFrom([]int{0, 0, 3, 10, 30, 40, 50}).Draw(t, "limit"); minutes > 0 {
			limit = fmt.Sprintf(" max-time=%dm", minutes)
		}
		lines = append(lines, fmt.Sprintf("submit j%d queue=%s %s priority=%d at=%dm%s\n", i, rapid.SampledFrom([]string{"x", "y", "y", "y", "z", "z", "z"}).Draw(t, "queue"),
			shapes[rapid.IntRange(0, kinds-1).Draw(t, "kind")], rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "priority"), rapid.IntRange(0, 9).Draw(t, "at"), limit))
	}
	return strings.Join(lines, "")
}
