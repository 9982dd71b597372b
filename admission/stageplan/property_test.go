package stageplan_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// drawJob draws a ReplicatedJob of 0 to 3 pods that hold GPUs.
func drawJob(t *rapid.T, i int) job {
	requests := fmt.Sprintf("gpu=%d", rapid.IntRange(0, 9).Draw(t, "gpus"))
	return newJob(fmt.Sprintf("j%d", i), requests, replicas(rapid.Int32Range(0, 3).Draw(t, "replicas")))
}

// drawDependencies draws a JobSet in which each ReplicatedJob depends on any of those before it.
func drawDependencies(t *rapid.T) *spec {
	s := newSpec()
	for i := range rapid.IntRange(1, 8).Draw(t, "jobs") {
		j := drawJob(t, i)
		for k := range i {
			if status := rapid.SampledFrom([]string{"", "", "Ready", "Complete", "Complete"}).Draw(t, "status"); status != "" {
				after(fmt.Sprintf("j%d %s", k, status))(&j)
			}
		}
		s.ReplicatedJobs = append(s.ReplicatedJobs, j)
	}
	return s
}

// drawRules draws a JobSet in which rules cover all ReplicatedJobs but the last.
func drawRules(t *rapid.T) *spec {
	s := newSpec()
	s.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	for range rapid.IntRange(0, 4).Draw(t, "rules") {
		var rule jobsetv1alpha2.StartupPolicyRule
		if rapid.Bool().Draw(t, "succeeded") {
			rule.WaitForReplicatedJobsStatus = "Succeeded"
		}
		for range rapid.IntRange(1, 3).Draw(t, "targets") {
			j := drawJob(t, len(s.ReplicatedJobs))
			rule.TargetReplicatedJobs = append(rule.TargetReplicatedJobs, j.Name)
			s.ReplicatedJobs = append(s.ReplicatedJobs, j)
		}
		s.StartupPolicy.Rules = append(s.StartupPolicy.Rules, rule)
	}
	s.ReplicatedJobs = append(s.ReplicatedJobs, drawJob(t, len(s.ReplicatedJobs)))
	return s
}

func drawSpec(t *rapid.T) *spec {
	if rapid.Bool().Draw(t, "rules") {
		return drawRules(t)
	}
	return drawDependencies(t)
}

func drawPlan(t *rapid.T) *stageplan.Plan {
	p, err := stageplan.New(drawSpec(t))
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return p
}

// amounts returns the GPUs of each Hold.
func amounts(p *stageplan.Plan) []int64 {
	var list []int64
	for _, h := range p.Holds() {
		var sum int64
		for _, i := range h.PodSets {
			sum += gpusOf(&p.Stages[h.Stage].PodSets[i])
		}
		list = append(list, sum)
	}
	return list
}

func gpusOf(podSet *stageplan.PodSet) int64 {
	gpus := podSet.Requests["gpu"]
	return gpus.Value() * int64(podSet.Count)
}

// heldIn returns what an open stage holds when ReplicatedJobs have these states: quota of a ReplicatedJob is released when it has succeeded.
func heldIn(s *stageplan.Stage, states map[string]stageplan.Status) int64 {
	var sum int64
	for i, job := range s.ReplicatedJobs {
		if states[job] != stageplan.Succeeded {
			sum += gpusOf(&s.PodSets[i])
		}
	}
	return sum
}

// isOpen reports whether the conditions of a stage hold when ReplicatedJobs have these states.
func isOpen(s *stageplan.Stage, states map[string]stageplan.Status) bool {
	for _, c := range s.After {
		for _, target := range c.Targets {
			if state := states[target]; state != stageplan.Succeeded && state != c.Status {
				return false
			}
		}
	}
	return true
}

func isFinished(s *stageplan.Stage, states map[string]stageplan.Status) bool {
	return !slices.ContainsFunc(s.ReplicatedJobs, func(job string) bool { return states[job] != stageplan.Succeeded })
}

// wellFormed returns a problem of a plan of these ReplicatedJobs, or nothing.
func wellFormed(p *stageplan.Plan, jobs []job) string {
	names, places := map[string]bool{}, map[string]int{}
	for i, s := range p.Stages {
		if s.Name == "" || len(s.Name) > 63 || names[s.Name] {
			return fmt.Sprintf("name %q is no unique label value", s.Name)
		}
		names[s.Name] = true
		if len(s.ReplicatedJobs) == 0 || len(s.ReplicatedJobs) > stageplan.MaxReplicatedJobs || len(s.PodSets) != len(s.ReplicatedJobs) {
			return fmt.Sprintf("stage %s has %d ReplicatedJobs, %d PodSets", s.Name, len(s.ReplicatedJobs), len(s.PodSets))
		}
		for k, name := range s.ReplicatedJobs {
			if _, twice := places[name]; twice || s.PodSets[k].Name != name || s.PodSets[k].Count < 0 {
				return fmt.Sprintf("ReplicatedJob %s twice, or with a wrong PodSet", name)
			}
			places[name] = i
		}
		for _, c := range s.After {
			for _, target := range c.Targets {
				if place, known := places[target]; !known || place != c.Stage || c.Stage >= i {
					return fmt.Sprintf("stage %s waits for %s of a stage that is not before it", s.Name, target)
				}
			}
		}
	}
	if len(places) != len(jobs) {
		return fmt.Sprintf("%d of %d ReplicatedJobs are in a stage", len(places), len(jobs))
	}
	return ""
}

func TestPlanIsWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		p, err := stageplan.New(s)
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		if wrong := wellFormed(p, s.ReplicatedJobs); wrong != "" {
			t.Fatalf("%s: %s", p, wrong)
		}
		if again, _ := stageplan.New(s); !reflect.DeepEqual(again, p) {
			t.Fatalf("%s: the same spec gave %s", p, again)
		}
	})
}

// TestStagesWaitForWhatWasAskedFor runs a JobSet by its spec and by its plan side by side.
func TestStagesWaitForWhatWasAskedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawDependencies(t)
		p, err := stageplan.New(s)
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		states := map[string]stageplan.Status{}
		for i := range s.ReplicatedJobs {
			states[s.ReplicatedJobs[i].Name] = rapid.SampledFrom([]stageplan.Status{"", stageplan.Ready, stageplan.Succeeded}).Draw(t, "state")
		}
		for i := range p.Stages {
			for _, name := range p.Stages[i].ReplicatedJobs {
				if got, want := isOpen(&p.Stages[i], states), mayStart(s, name, states); got != want {
					t.Fatalf("%s: with %v stage %s is open %v, %s may start %v", p, states, p.Stages[i].Name, got, name, want)
				}
			}
		}
	})
}

func mayStart(s *spec, name string, states map[string]stageplan.Status) bool {
	for i := range s.ReplicatedJobs {
		if s.ReplicatedJobs[i].Name != name {
			continue
		}
		for _, d := range s.ReplicatedJobs[i].DependsOn {
			state := states[d.Name]
			if state == "" || d.Status == jobset.DependencyComplete && state != stageplan.Succeeded {
				return false
			}
		}
	}
	return true
}

// TestNeverHoldsMoreThanPeak runs JobSets at random.
func TestNeverHoldsMoreThanPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		segmentOf := map[int]int{}
		for k, segment := range p.HoldSegments() {
			for _, s := range segment {
				segmentOf[s] = k
			}
		}
		peak := p.MostHeld(amounts(p))
		states := map[string]stageplan.Status{}
		for range 3 * len(p.Stages) {
			var now int64
			segments := map[int]bool{}
			for s := range p.Stages {
				if stage := &p.Stages[s]; isOpen(stage, states) && !isFinished(stage, states) {
					now += heldIn(stage, states)
					segments[segmentOf[s]] = true
				}
			}
			if now > peak {
				t.Fatalf("%s: holds %d, peak %d, in states %v", p, now, peak, states)
			}
			if len(segments) > 1 {
				t.Fatalf("%s: holds in more than one of the segments %v, in states %v", p, p.HoldSegments(), states)
			}
			step(t, p, states)
		}
	})
}

// step makes one ReplicatedJob of an open stage ready, or lets it succeed.
func step(t *rapid.T, p *stageplan.Plan, states map[string]stageplan.Status) {
	var running []string
	for s := range p.Stages {
		if !isOpen(&p.Stages[s], states) {
			continue
		}
		for _, job := range p.Stages[s].ReplicatedJobs {
			if states[job] != stageplan.Succeeded {
				running = append(running, job)
			}
		}
	}
	if len(running) > 0 {
		job := rapid.SampledFrom(running).Draw(t, "job")
		states[job] = rapid.SampledFrom([]stageplan.Status{stageplan.Ready, stageplan.Succeeded}).Draw(t, "becomes")
	}
}

// TestFinishedBefore compares the order with its meaning: if one ReplicatedJob of a runs forever and all others advance as far as they can, then
// b opens unless a must finish first.
func TestFinishedBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		for a := range p.Stages {
			opens := map[int]bool{}
			for _, job := range p.Stages[a].ReplicatedJobs {
				states := map[string]stageplan.Status{}
				for b := range p.Stages {
					if !isOpen(&p.Stages[b], states) {
						continue
					}
					opens[b] = true
					for _, other := range p.Stages[b].ReplicatedJobs {
						states[other] = stageplan.Succeeded
					}
					if b == a {
						states[job] = stageplan.Ready
					}
				}
			}
			for b := range p.Stages {
				if got := p.FinishedBefore(a, b); got == opens[b] {
					t.Fatalf("%s: FinishedBefore(%s, %s) = %v", p, p.Stages[a].Name, p.Stages[b].Name, got)
				}
			}
		}
	})
}

// heaviestAntichain is a twin of MostHeld that tries all sets of Holds.
func heaviestAntichain(p *stageplan.Plan, amounts []int64) int64 {
	var most int64
	before := p.Precedence(p.Holds())
	for set := range 1 << len(amounts) {
		var sum int64
		var chosen []int
		for h := range amounts {
			if set&(1<<h) != 0 {
				chosen = append(chosen, h)
				sum += amounts[h]
			}
		}
		apart := func(a, b int) bool { return !before[a][b] && !before[b][a] }
		if sum > most && allPairs(chosen, apart) {
			most = sum
		}
	}
	return most
}

func allPairs(list []int, ok func(a, b int) bool) bool {
	for i, a := range list {
		for _, b := range list[i+1:] {
			if !ok(a, b) {
				return false
			}
		}
	}
	return true
}

func TestMostHeldIsTheHeaviestAntichain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		holds := len(p.Holds())
		list := rapid.SliceOfN(rapid.Int64Range(-2, 20), holds, holds).Draw(t, "amounts")
		if got, want := p.MostHeld(list), heaviestAntichain(p, list); got != want {
			t.Fatalf("%s with %v: most held %d, heaviest antichain %d", p, list, got, want)
		}
	})
}

// mostReached is a twin of MostHeld that tries all sets of stages that may have opened, each with no more success than it needs.
func mostReached(p *stageplan.Plan) int64 {
	var most int64
	for set := range 1 << len(p.Stages) {
		states := map[string]stageplan.Status{}
		reachable := true
		for s := range p.Stages {
			if set&(1<<s) == 0 {
				continue
			}
			for _, c := range p.Stages[s].After {
				reachable = reachable && set&(1<<c.Stage) != 0
				for _, target := range c.Targets {
					if c.Status == stageplan.Succeeded {
						states[target] = stageplan.Succeeded
					}
				}
			}
		}
		var sum int64
		for s := range p.Stages {
			if set&(1<<s) != 0 {
				sum += heldIn(&p.Stages[s], states)
			}
		}
		if reachable {
			most = max(most, sum)
		}
	}
	return most
}

// TestPeakIsReached shows that the peak is no larger than it must be.
func TestPeakIsReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		if got, want := p.MostHeld(amounts(p)), mostReached(p); got != want {
			t.Fatalf("%s: peak %d, reached %d", p, got, want)
		}
	})
}

// TestHolds checks that every pod set is in one Hold, that two in one Hold are released for the same later stages, and two Holds of a stage
// for different ones.
func TestHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		// opens lists the stages that open although one ReplicatedJob never succeeds.
		opens := func(s, podSet int) (list []int) {
			states := map[string]stageplan.Status{}
			for b := range p.Stages {
				if !isOpen(&p.Stages[b], states) {
					continue
				}
				list = append(list, b)
				for i, job := range p.Stages[b].ReplicatedJobs {
					if states[job] = stageplan.Succeeded; b == s && i == podSet {
						states[job] = stageplan.Ready
					}
				}
			}
			return list
		}
		seen := map[[2]int]bool{}
		first := map[string]bool{}
		for _, h := range p.Holds() {
			want := opens(h.Stage, h.PodSets[0])
			if key := fmt.Sprint(h.Stage, want); first[key] {
				t.Fatalf("%s: two Holds of stage %d that are released together: %v", p, h.Stage, p.Holds())
			} else {
				first[key] = true
			}
			for _, i := range h.PodSets {
				if seen[[2]int{h.Stage, i}] {
					t.Fatalf("%s: pod set %d of stage %d is in two Holds: %v", p, i, h.Stage, p.Holds())
				}
				seen[[2]int{h.Stage, i}] = true
				if got := opens(h.Stage, i); !slices.Equal(got, want) {
					t.Fatalf("%s: a Hold with pod sets that are released apart: %v", p, p.Holds())
				}
			}
		}
		jobs := 0
		for s := range p.Stages {
			jobs += len(p.Stages[s].PodSets)
		}
		if len(seen) != jobs {
			t.Fatalf("%s: %d of %d pod sets are in a Hold", p, len(seen), jobs)
		}
	})
}

// TestHoldSegments compares the runs with the parts connected by "neither finishes before the other".
func TestHoldSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		part := make([]int, len(p.Stages))
		for s := range part {
			part[s] = s
		}
		for a := range part {
			for b := range a {
				if from, to := part[a], part[b]; !p.FinishedBefore(a, b) && !p.FinishedBefore(b, a) {
					for s := range part {
						if part[s] == from {
							part[s] = to
						}
					}
				}
			}
		}
		var got []int
		for _, segment := range p.HoldSegments() {
			for _, s := range segment {
				if part[s] != part[segment[0]] {
					t.Fatalf("%s: segments %v, parts %v", p, p.HoldSegments(), part)
				}
			}
			if slices.Contains(got, part[segment[0]]) {
				t.Fatalf("%s: segments %v, parts %v", p, p.HoldSegments(), part)
			}
			got = append(got, part[segment[0]])
		}
	})
}

// TestLargePlan bounds what the largest JobSet costs, by the arithmetic of its peak.
func TestLargePlan(t *testing.T) {
	p := mustPlan(t, layered(stageplan.MaxStages, stageplan.MaxReplicatedJobs))
	// Every third stage is a dependency with status Ready, and all of these 33 hold quota to the end, beside one other.
	gpus := p.Peak()["nvidia.com/gpu"]
	if got, want := gpus.Value(), int64(34*stageplan.MaxReplicatedJobs); got != want {
		t.Errorf("peak of %d GPUs, want %d", got, want)
	}
}

func BenchmarkPeak(b *testing.B) {
	p, err := stageplan.New(layered(stageplan.MaxStages, stageplan.MaxReplicatedJobs))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		p.Peak()
	}
}
