package admission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// TestReclaimMakesProgress lets launchers whose trainers have to borrow meet in cohorts where each ClusterQueue reclaims what it owns. Every JobSet
// finishes, and no stage takes from the same JobSet twice.
func TestReclaimMakesProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawLaunchers(t)
		m.run(t)
		if js := m.hanging(); js != nil {
			t.Fatalf("%s", m.describe(js))
		}
		for pair, times := range m.evictionsByPair() {
			if times > 1 {
				t.Fatalf("%s %d times: %q", pair, times, m.evictions)
			}
		}
	})
}

func drawLaunchers(t *rapid.T) *model {
	config := admission.Config{StageAdmission: admission.Safe}
	m := &model{
		world: newWorld(t, config), whole: map[string]*kueue.ClusterQueue{}, evicting: map[string]bool{},
		growths: map[string][]string{}, left: rapid.IntRange(2, 6).Draw(t, "jobsets"),
	}
	all := 0
	nominal := map[string]int{}
	for _, name := range []string{"q", "p", "r", "s"}[:rapid.IntRange(2, 4).Draw(t, "queues")] {
		nominal[name] = rapid.IntRange(1, 6).Draw(t, "nominal")
		all += nominal[name]
		m.queue(name, fmt.Sprintf("a: gpu=%d", nominal[name]), func(q *kueue.ClusterQueue) {
			q.Spec.CohortName = "c"
			q.Spec.QueueingStrategy = rapid.SampledFrom([]kueue.QueueingStrategy{kueue.BestEffortFIFO, kueue.StrictFIFO}).Draw(t, "strategy")
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
		})
		m.whole[name] = m.queues[name]
	}
	m.drawJobs = func(t *rapid.T, queue string) []job {
		launcher := rapid.IntRange(1, nominal[queue]).Draw(t, "launcher")
		return []job{
			{name: "launcher", requests: fmt.Sprintf("gpu=%d", launcher)},
			{name: "trainer", requests: fmt.Sprintf("gpu=%d", rapid.IntRange(1, max(1, all-launcher)).Draw(t, "trainer")), after: []string{"launcher Ready"}},
		}
	}
	return m
}

// evictionsByPair counts how often a JobSet was evicted for each stage of another one.
func (m *model) evictionsByPair() map[string]int {
	times := map[string]int{}
	for _, eviction := range m.written {
		victim, rest, _ := strings.Cut(strings.TrimPrefix(eviction, "evict ns/"), " ")
		_, preemptor, ok := strings.Cut(rest, " for ns/")
		if ok && strings.HasSuffix(victim, "-launcher") {
			times[strings.TrimSuffix(victim, "-launcher")+" evicted for "+preemptor]++
		}
	}
	return times
}

// TestReclaimerIsNotWokenByOthers: a stage that waits for GPUs, and would borrow CPUs that are free, is not checked again when CPUs are released.
func TestReclaimerIsNotWokenByOthers(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("left", "a: cpu=8 gpu=4", inCohort("lab"))
	w.queue("right", "a: cpu=2 gpu=4", inCohort("lab"), func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: kueue.PreemptionPolicyAny}
	})
	w.lone("left", "theirs", "gpu=4")
	w.lone("right", "gpus", "gpu=4")
	w.lone("right", "cpus", "cpu=4")
	w.decide()
	w.lone("right", "waits", "cpu=1 gpu=1")
	w.decide()
	before := w.engine.Checked()
	w.change("cpus", finish)
	w.decide()
	if checks := w.engine.Checked() - before; checks != 0 {
		t.Errorf("%d checks when CPUs were released, want none", checks)
	}
	w.change("gpus", finish)
	if admitted := w.decide(); !slices.Equal(admitted, []string{"waits"}) {
		t.Errorf("admitted %v when GPUs were released", admitted)
	}
}
