package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A stream is a world in which small stages keep coming in all ClusterQueues, so that a large one never finds its quota free by chance.
type stream struct {
	*model
	submitted int
	// gangs are the members of the co-admission group that is the large stage, or none.
	gangs []string
	// stepped, unless it is nil, is called after each step.
	stepped func(*rapid.T)
}

// dueAfter is how long the stages of a stream wait before they are due, in seconds.
const dueAfter = 5

func drawStream(t *rapid.T) *stream {
	config := admission.Config{
		FairSharing: rapid.Bool().Draw(t, "fair"), CoStart: admission.CoStart{IsEnabled: rapid.Bool().Draw(t, "co-start"), ReserveFor: longest},
		Reservation: admission.Reservation{IsEnabled: true, After: dueAfter * time.Second},
	}
	s := &stream{model: &model{
		world: newWorld(t, config), whole: map[string]*kueue.ClusterQueue{}, evicting: map[string]bool{}, growths: map[string][]string{},
	}}
	policy := rapid.SampledFrom([]kueue.PreemptionPolicy{kueue.PreemptionPolicyNever, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyAny})
	for _, name := range []string{"q", "p", "r"}[:rapid.IntRange(1, 3).Draw(t, "queues")] {
		cohort := inCohort(rapid.SampledFrom([]kueue.CohortReference{"c", "c", "d"}).Draw(t, "cohort"))
		s.queue(name, fmt.Sprintf("a: cpu=%d gpu=%d", rapid.IntRange(3, 6).Draw(t, "cpu"), rapid.IntRange(3, 6).Draw(t, "gpu")), cohort, func(q *kueue.ClusterQueue) {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: policy.Draw(t, "reclaim"), WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
			if rapid.Bool().Draw(t, "limits") {
				drawLimits(t, q)
			}
		})
		s.whole[name] = s.queues[name]
	}
	return s
}

// drawUsage draws the requests of a small stage, or of a large one that needs the nominal quota of its ClusterQueue.
func (s *stream) drawUsage(t *rapid.T, queue, name string) (cpu, gpus int) {
	if name == large {
		r := s.queues[queue].Spec.ResourceGroups[0].Flavors[0].Resources
		return int(r[0].NominalQuota.Value()) - rapid.IntRange(0, 1).Draw(t, "left"), int(r[1].NominalQuota.Value())
	}
	return rapid.IntRange(0, 2).Draw(t, "cpu"), rapid.IntRange(0, 2).Draw(t, "gpu")
}

// submitTo submits a stage, or a JobSet whose launcher starts workers, that fits the nominal quota of its ClusterQueue.
func (s *stream) submitTo(t *rapid.T, queue, name string) {
	cpu, gpus := s.drawUsage(t, queue, name)
	kind := rapid.IntRange(0, 5).Draw(t, "kind")
	if kind > 3 {
		s.submitGroup(t, queue, name, cpu, gpus)
		return
	}
	if kind > 0 {
		s.lone(queue, name, fmt.Sprintf("cpu=%d gpu=%d", cpu, gpus), func(wl *kueue.Workload) {
			if limit := rapid.Int32Range(0, 20).Draw(t, "limit"); limit > 0 && name != large {
				wl.Spec.MaximumExecutionTimeSeconds = &limit
			}
		})
		return
	}
	launcher := rapid.IntRange(0, cpu).Draw(t, "launcher")
	s.submit(queue, name, job{name: "launch", requests: fmt.Sprintf("cpu=%d", launcher)},
		job{name: "work", requests: fmt.Sprintf("cpu=%d gpu=%d", cpu-launcher, gpus), after: []string{"launch Ready"}},
		job{name: "eval", requests: fmt.Sprintf("gpu=%d", gpus), after: []string{"work Complete"}})
}

const large = "large"

// submitGroup submits gangs that are admitted together: one in the ClusterQueue, perhaps divided into two, and perhaps one in each of some others.
func (s *stream) submitGroup(t *rapid.T, queue, name string, cpu, gpus int) {
	type gang struct {
		queue     string
		cpu, gpus int
	}
	gangs := []gang{{queue, cpu, gpus}}
	if rapid.Bool().Draw(t, "divided") && gpus > 1 {
		gangs = []gang{{queue, cpu, 1}, {queue, 0, gpus - 1}}
	}
	for _, other := range slices.Sorted(maps.Keys(s.queues)) {
		if other != queue && rapid.Bool().Draw(t, "spans") {
			cpu, gpus := s.drawUsage(t, other, name)
			gangs = append(gangs, gang{other, cpu, gpus})
		}
	}
	for i, g := range gangs {
		member := fmt.Sprintf("%s-%d", name, i)
		if name == large {
			s.gangs = append(s.gangs, member)
		}
		s.lone(g.queue, member, fmt.Sprintf("cpu=%d gpu=%d", g.cpu, g.gpus), together(name, len(gangs)))
	}
}

// step lets small stages come, so that some wait in each ClusterQueue, and lets the Engine decide.
func (s *stream) step(t *rapid.T) {
	s.clock++
	waiting := map[string]int{}
	for _, wl := range s.workloads {
		if wl.Status.Admission == nil && !isFinished(wl) {
			waiting[string(wl.Spec.QueueName)]++
		}
	}
	for _, queue := range slices.Sorted(maps.Keys(s.queues)) {
		for range 4 - waiting[queue] {
			s.submitted++
			s.submitTo(t, queue, fmt.Sprint("small", s.submitted))
		}
	}
	if rapid.IntRange(0, 15).Draw(t, "kill") == 0 {
		s.restart()
	}
	s.decide(t)
	for _, key := range slices.SortedFunc(maps.Keys(s.workloads), compareNames) {
		if wl := s.workloads[key]; s.jobSetOf(key) == nil && isLeaving(wl) && !isFinished(wl) {
			s.leave(key.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.evicting)) {
		s.stop(s.jobSets[name])
	}
	s.decide(t)
	s.endLimits(t)
	if s.stepped != nil {
		for s.decide(t) { // a write has failed: what is due is determined again
		}
		s.stepped(t)
	}
}

// endLimits ends the stages whose execution time has expired.
func (s *stream) endLimits(t *rapid.T) {
	for _, key := range slices.SortedFunc(maps.Keys(s.workloads), compareNames) {
		wl := s.workloads[key]
		if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil && wl.Status.Admission != nil && !isFinished(wl) {
			for _, c := range wl.Status.Conditions {
				if c.Type == kueue.WorkloadAdmitted && !c.LastTransitionTime.Add(time.Duration(*limit)*time.Second).After(s.now()) {
					s.change(key.Name, finish)
					s.decide(t)
				}
			}
		}
	}
}

// round ends all that runs when it is called, in any order, as far as that does not wait for quota itself.
func (s *stream) round(t *rapid.T) {
	var running []string
	for _, key := range slices.SortedFunc(maps.Keys(s.workloads), compareNames) {
		wl := s.workloads[key]
		switch js := s.jobSetOf(key); {
		case wl.Status.Admission == nil || isFinished(wl):
		case js == nil:
			running = append(running, key.Name)
		case !slices.Contains(running, js.name):
			running = append(running, js.name)
		}
	}
	for _, name := range rapid.Permutation(running).Draw(t, "order") {
		js := s.jobSets[name]
		if js == nil {
			if wl := s.workloads[keyOf(name)]; wl.Status.Admission != nil && !isFinished(wl) {
				s.change(name, finish)
			}
			s.step(t)
			continue
		}
		for moves := s.movesOf(js); len(moves) > 0; moves = s.movesOf(js) {
			moves[0]()
			s.step(t)
		}
	}
	s.step(t)
}

func (s *stream) hasStarted() bool {
	if js := s.jobSets[large]; js != nil {
		wl := s.workloads[keyOf(js.workload(0))]
		return wl.Status.Admission != nil || isFinished(wl)
	}
	if len(s.gangs) > 0 {
		return !slices.ContainsFunc(s.gangs, func(name string) bool { return s.workloads[keyOf(name)].Status.Admission == nil })
	}
	return s.workloads[keyOf(large)].Status.Admission != nil
}

const oversized = "oversized"

// submitOversized submits a stage that needs more than the nominal quota of its ClusterQueue.
func (s *stream) submitOversized() {
	s.lone("q", oversized, fmt.Sprintf("gpu=%d", s.nominal("q")+1))
	s.stepped = s.wantNothingKeptForOversized
}

// nominal returns the GPUs of a ClusterQueue.
func (s *stream) nominal(queue string) int {
	return int(s.queues[queue].Spec.ResourceGroups[0].Flavors[0].Resources[1].NominalQuota.Value())
}

// wantNothingKeptForOversized fails if other stages are refused for the oversized one, although the other ClusterQueues use so much of their own quota that it
// could not start in an empty ClusterQueue.
func (s *stream) wantNothingKeptForOversized(t *rapid.T) {
	used, left := map[string]int{}, 0
	for _, wl := range s.workloads {
		if wl.Status.Admission != nil && !isFinished(wl) && !isLeaving(wl) {
			gpus := wl.Status.Admission.PodSetAssignments[0].ResourceUsage[gpu]
			used[string(wl.Status.Admission.ClusterQueue)] += int(gpus.Value())
		}
	}
	for name, q := range s.queues {
		if q.Spec.CohortName == s.queues["q"].Spec.CohortName {
			left += s.nominal(name)
			if name != "q" {
				left -= min(s.nominal(name), used[name])
			}
		}
	}
	if left > s.nominal("q") {
		return
	}
	for key := range s.workloads {
		for _, refusal := range s.engine.Explain(key) {
			if strings.Contains(refusal.Message, fmt.Sprintf("delay quota Workload %q", oversized)) {
				t.Fatalf("%s waits, although others leave only %d GPUs for the oversized stage: %s", key.Name, left, refusal.Message)
			}
		}
	}
}

// TestDueStagesStart: a stage, or a co-admission group, that fits the nominal quota of its ClusterQueues starts after what ran when it became due has ended,
// in a few rounds: in each round all ends that ran at its begin, and small stages and groups keep coming (I7). That is so behind a stage, too, that is
// larger than nominal quota and may never start, and for which nothing is kept when it could not start in an empty ClusterQueue.
func TestDueStagesStart(t *testing.T) {
	const most = 10
	rapid.Check(t, func(t *rapid.T) {
		s := drawStream(t)
		s.step(t)
		if rapid.Bool().Draw(t, "behind") {
			s.submitOversized()
		}
		s.submitTo(t, "q", large)
		for range dueAfter {
			s.step(t)
		}
		for range most {
			if s.hasStarted() {
				return
			}
			s.round(t)
		}
		if !s.hasStarted() {
			text := ""
			for _, key := range slices.SortedFunc(maps.Keys(s.workloads), compareNames) {
				if wl := s.workloads[key]; !isFinished(wl) {
					text += fmt.Sprintf("\n%s in %s admitted %t %v: %v", key.Name, wl.Spec.QueueName, wl.Status.Admission != nil, wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests, s.engine.Explain(key))
				}
			}
			t.Fatalf("not started after %d rounds:%s\nevictions %q", most, text, s.evictions)
		}
	})
}
