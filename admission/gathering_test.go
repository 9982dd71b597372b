package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// A gathering is a gang that gathers its quota part by part: a plan whose stages are all open at once, and hold quota until all do.
type gathering struct {
	name, queue string
	// requests of each part.
	requests []string
	// made is the number of parts that have a quota Workload.
	made int
	// submitted is when the plan was first observed.
	submitted time.Time
}

func (g *gathering) part(i int) string { return fmt.Sprintf("%s-%d", g.name, i) }

// plan lets the Engine observe the plan of a gathering. No JobSet has it.
func (w *world) plan(g *gathering) {
	plan := &stageplan.Plan{}
	if g.submitted.IsZero() {
		g.submitted = w.now()
	}
	for i, requests := range g.requests {
		pods := template(requests)
		plan.Stages = append(plan.Stages, stageplan.Stage{Name: g.part(i), PodSets: []stageplan.PodSet{{
			Name: "main", Count: 1, Requests: amounts(requests), Template: &pods,
		}}})
	}
	w.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.GangOwner, Key: types.NamespacedName{Namespace: "ns", Name: g.name}},
		UID:   types.UID("gang-" + g.name), Submitted: g.submitted, Plan: plan,
	})
}

// gather creates the quota Workload of the next part.
func (w *world) gather(g *gathering) {
	i := g.made
	g.made++
	w.lone(g.queue, g.part(i), g.requests[i], func(wl *kueue.Workload) {
		wl.Labels = map[string]string{apis.PlanUIDLabel: "gang-" + g.name, apis.StageIndexLabel: strconv.Itoa(i)}
		wl.Annotations = map[string]string{apis.PodGroupKey: "lightweight." + g.name}
	})
}

// isComplete reports whether all parts hold quota.
func (w *world) isComplete(g *gathering) bool {
	for i := range g.requests {
		if wl := w.workloads[keyOf(g.part(i))]; wl == nil || wl.Status.Admission == nil || isFinished(wl) {
			return false
		}
	}
	return true
}

func (w *world) hasFinished(g *gathering) bool {
	wl := w.workloads[keyOf(g.part(0))]
	return wl != nil && isFinished(wl)
}

func (w *world) endGathering(g *gathering) {
	for i := range g.requests {
		w.change(g.part(i), finish)
	}
}

// threeOfFive is Koordinator's example: three gangs of 5 on a quota of 10, whose members arrive in turns.
func threeOfFive(t *testing.T, policy string) (*world, []*gathering) {
	t.Helper()
	w := newWorld(t, admission.Config{StageAdmission: policy})
	w.queue("q", "a: gpu=10")
	var gangs []*gathering
	for _, name := range []string{"x", "y", "z"} {
		g := &gathering{name: name, queue: "q", requests: slices.Repeat([]string{"gpu=1"}, 5)}
		w.plan(g)
		gangs = append(gangs, g)
	}
	for range 5 {
		for _, g := range gangs {
			w.gather(g)
			w.decide()
		}
	}
	return w, gangs
}

func TestGangsThatGatherDoNotDeadlock(t *testing.T) {
	w, gangs := threeOfFive(t, admission.Safe)
	for range gangs {
		i := slices.IndexFunc(gangs, w.isComplete)
		if i < 0 {
			t.Fatalf("no gang is complete: %s used; refusals %v", w.used("q"), w.refusals)
		}
		w.endGathering(gangs[i])
		w.decide()
	}
	for _, g := range gangs {
		if !w.hasFinished(g) {
			t.Errorf("%s has not finished", g.name)
		}
	}
}

// TestTheSameGangsDeadlockUnderGreedy: all quota is given out, and no gang has enough.
func TestTheSameGangsDeadlockUnderGreedy(t *testing.T) {
	w, gangs := threeOfFive(t, admission.Greedy)
	if i := slices.IndexFunc(gangs, w.isComplete); i >= 0 {
		t.Errorf("%s is complete", gangs[i].name)
	}
	if used := w.used("q"); used != "a/nvidia.com/gpu=10" {
		t.Errorf("%s used, want all", used)
	}
}

// TestAPlanNeedsNoJobSet: a part waits for the plan, and holds quota and is reported like a stage.
func TestAPlanNeedsNoJobSet(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a: gpu=2")
	g := &gathering{name: "g", queue: "q", requests: []string{"gpu=1", "gpu=2"}}
	w.gather(g)
	w.wantAdmitted()
	if r := w.engine.Explain(keyOf("g-0")); len(r) != 1 || r[0].Check != "PlanIsKnown" {
		t.Errorf("explained by %v", r)
	}
	w.plan(g)
	w.wantAdmitted()
	w.wantRefusal("g-0", "PeakWithinLimits", kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, "need up to 3 nvidia.com/gpu")
	w.queue("q", "a: gpu=3")
	w.gather(g)
	w.wantAdmitted("g-0", "g-1")
	w.engine.Apply(admission.PlanGone{UID: "gang-g"})
	w.change("g-0", finish)
	w.change("g-1", finish)
	w.wantAdmitted()
}

// TestMessagesNameTheKindOfOwner: messages call a gang that is admitted in parts a gang, and a JobSet a JobSet.
func TestMessagesNameTheKindOfOwner(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a: gpu=4")
	const exceeds, short = kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, kueue.WorkloadQuotaReservedReasonWaitingForQuota
	gangs := []*gathering{{name: "large", queue: "q", requests: []string{"gpu=2", "gpu=3"}}}
	for _, name := range []string{"first", "second"} {
		gangs = append(gangs, &gathering{name: name, queue: "q", requests: []string{"gpu=2", "gpu=2"}})
	}
	for _, g := range gangs {
		w.plan(g)
		w.gather(g)
	}
	w.submit("q", "js", job{name: "ps", requests: "gpu=1"}, job{name: "train", requests: "gpu=3", after: []string{"ps Ready"}})
	w.lone("q", "asks", "gpu=3")
	w.wantAdmitted("first-0")
	w.wantRefusal("large-0", "PeakWithinLimits", exceeds, "the gang could never run to its end in ClusterQueue q")
	w.wantRefusal("second-0", "StageUnsafe", short, "could deadlock this gang and ns/first on quota for later stages")
	w.wantRefusal("js-ps", "StageUnsafe", short, "could deadlock this JobSet and gang ns/first on quota for later stages")
	x, _ := w.engine.Explanation(keyOf("asks"))
	if got := strings.Join(told(&x), "\n"); !strings.HasSuffix(got, "; Gang ns/first in q 2") {
		t.Errorf("the explanation is %q, want gang first as the holder", got)
	}
}

// TestOnlyStagesOfJobSetsAreAnnounced: the Events of an admission name the stage of a JobSet, and no part of a gang.
func TestOnlyStagesOfJobSetsAreAnnounced(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a: gpu=4")
	g := &gathering{name: "g", queue: "q", requests: []string{"gpu=1", "gpu=1"}}
	w.plan(g)
	w.gather(g)
	w.submit("q", "js", job{name: "only", requests: "gpu=1"})
	var announced []string
	for _, d := range w.engine.Decide(w.now()) {
		if a, ok := d.(admission.Admit); ok {
			announced = append(announced, fmt.Sprintf("%s of %q: %q", a.Stage.Name, a.JobSet, a.StageName))
		}
	}
	if want := []string{`g-0 of "": ""`, `js-only of "js": "only"`}; !slices.Equal(announced, want) {
		t.Errorf("announced %q, want %q", announced, want)
	}
}

// TestGatheringGangsFinish: whatever gangs gather quota that they share, all that can run finish (I3), and quota is never exceeded (I1).
func TestGatheringGangsFinish(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		gangs := map[string]*gathering{}
		for i := range rapid.IntRange(1, 5).Draw(t, "gangs") {
			g := &gathering{name: fmt.Sprintf("g%d", i), queue: w.drawQueue(t)}
			for range rapid.IntRange(1, 5).Draw(t, "parts") {
				g.requests = append(g.requests, fmt.Sprintf("cpu=%d gpu=%d", rapid.IntRange(0, 2).Draw(t, "cpu"), rapid.IntRange(1, 3).Draw(t, "gpu")))
			}
			gangs[g.name] = g
			w.plan(g)
		}
		names := slices.Sorted(maps.Keys(gangs))
		for {
			for failed := true; failed; {
				decisions := w.engine.Decide(w.now())
				w.checkQuota(t)
				_, failed = w.write(t, decisions, func(d admission.Evict) { t.Fatalf("%s, and no stage may be preempted", d) })
			}
			var moves []func()
			for _, name := range names {
				g := gangs[name]
				if g.made < len(g.requests) {
					moves = append(moves, func() { w.gather(g) })
				}
				if w.isComplete(g) {
					moves = append(moves, func() { w.endGathering(g) })
				}
			}
			if len(moves) == 0 {
				break
			}
			moves[rapid.IntRange(0, len(moves)-1).Draw(t, "move")]()
		}
		for _, name := range names {
			g := gangs[name]
			reason := w.refusals[keyOf(g.part(0))].Reason
			isTooLarge := reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota || reason == kueue.WorkloadQuotaReservedReasonNoMatchingFlavor
			if !w.hasFinished(g) && !isTooLarge {
				t.Fatalf("%s (%v in %s) hangs; refusals %v", name, g.requests, g.queue, w.refusals)
			}
		}
	})
}

// TestGatherUnderBlockAdmission: no stage waits for the pods of parts that are gathered: none exist before all parts are.
func TestGatherUnderBlockAdmission(t *testing.T) {
	w := newWorld(t, admission.Config{BlockAdmission: true})
	w.queue("q", "a: gpu=10")
	g := &gathering{name: "x", queue: "q", requests: slices.Repeat([]string{"gpu=1"}, 3)}
	w.plan(g)
	for range g.requests {
		w.gather(g)
	}
	w.decide()
	if !w.isComplete(g) {
		t.Fatalf("the gang is not complete: refusals %v", w.refusals)
	}

	for i := range g.requests {
		w.change(g.part(i), func(wl *kueue.Workload) { wl.Annotations[apis.StartedAnnotation] = "true" })
	}
	w.lone("q", "next", "gpu=1")
	w.decide()
	w.wantRefusal("next", "PodsAreReady", "WaitingForPodsReady", "")
	for i := range g.requests {
		w.change(g.part(i), func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadPodsReady, metav1.ConditionTrue) })
	}
	w.wantAdmitted("next")
}
