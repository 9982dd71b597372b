package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// weighted makes a Cohort with a weight, without quota.
func (w *world) weighted(name, parent, weight string) {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("cohort-" + name)}}
	c.Spec.ParentName = kueue.CohortReference(parent)
	of := resource.MustParse(weight)
	c.Spec.FairSharing = &kueue.FairSharing{Weight: &of}
	w.engine.Apply(admission.CohortObserved{Cohort: c})
}

func reclaiming(policy kueue.PreemptionPolicy) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{ReclaimWithinCohort: policy}
	}
}

// running returns how many quota Workloads each ClusterQueue runs, and names those being evicted.
func (w *world) running() (count map[string]int, leaving []string) {
	count = map[string]int{}
	for _, key := range slices.SortedFunc(maps.Keys(w.workloads), compareNames) {
		switch wl := w.workloads[key]; {
		case wl.Status.Admission == nil:
		case isLeaving(wl):
			leaving = append(leaving, key.Name)
		default:
			count[string(wl.Spec.QueueName)]++
		}
	}
	return count, leaving
}

// fairTree makes the tree of TestFairBurst: 12 GPUs of the root, and four ClusterQueues below Cohorts of different weights.
func fairTree(w *world) {
	w.cohort("root", "", 12)
	w.weighted("best-effort", "root", "0.5")
	w.weighted("research", "root", "1")
	for name, weight := range map[string]string{"chemistry": "1", "physics": "1", "llm": "2"} {
		w.weighted(name, "research", weight)
		w.queue(name[:1], "a100: gpu=0", inCohort(kueue.CohortReference(name)), reclaiming(kueue.PreemptionPolicyLowerPriority))
	}
	w.queue("b", "a100: gpu=0", inCohort("best-effort"))
}

// TestFairBurst has two queues that use all quota, and then all four ask for more with high priority while no victim has left yet. Whenever the
// Engine decides and in whatever order victims leave, six evictions are enough, the shares are fair at each level, and each stage that evicted
// others runs. If the stages arrive in another order, the first of each queue may evict one more: it is alone then.
func TestFairBurst(t *testing.T) {
	for name, shuffle := range map[string]func(*rapid.T, []string) []string{
		"in turn": func(_ *rapid.T, arrivals []string) []string { return arrivals },
		"in any order": func(t *rapid.T, arrivals []string) []string {
			return rapid.Permutation(arrivals).Draw(t, "arrivals")
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newWorld(t, admission.Config{FairSharing: true})
				fairTree(w)
				for n := range 6 {
					w.important("b", fmt.Sprintf("b-low%d", n), "gpu=1", -1)
					w.important("p", fmt.Sprintf("p-low%d", n), "gpu=1", -1)
					w.decide()
				}
				var arrivals []string
				for n := range 6 {
					for _, queue := range []string{"c", "p", "l", "b"} {
						arrivals = append(arrivals, fmt.Sprintf("%s-high%d", queue, n))
					}
				}
				start := w.now()
				for _, name := range shuffle(t, arrivals) {
					w.lone(name[:1], name, "gpu=1", func(wl *kueue.Workload) {
						// All are created in one second, so that their order in the queue is random.
						wl.Spec.Priority, wl.CreationTimestamp.Time = new(int32(100)), start
						wl.UID = types.UID(fmt.Sprintf("wl-%04d-%s", rapid.IntRange(0, 9999).Draw(t, "uid"), name))
					})
					if rapid.Bool().Draw(t, "decides") {
						w.decide()
					}
				}
				w.settleShares(t)
				count, _ := w.running()
				most := 6
				if name != "in turn" {
					most += len(w.preemptors())
				}
				if want := (map[string]int{"b": 4, "c": 2, "p": 2, "l": 4}); !maps.Equal(count, want) || len(w.evictions) > most {
					t.Fatalf("%v run, want %v; evictions: %q", count, want, w.evictions)
				}
				w.wantPaidFor(t)
			})
		})
	}
}

// preemptors are the queues for which stages were evicted.
func (w *world) preemptors() map[string]struct{} {
	queues := map[string]struct{}{}
	for _, eviction := range w.evictions {
		_, preemptor, _ := strings.Cut(eviction, " for ns/")
		queues[string(w.workloads[keyOf(preemptor)].Spec.QueueName)] = struct{}{}
	}
	return queues
}

// settleShares lets victims leave, in any order, until nothing is decided.
func (w *world) settleShares(t *rapid.T) {
	for range 1000 {
		evicted := len(w.evictions)
		admitted := w.decide()
		_, leaving := w.running()
		switch {
		case len(leaving) > 0:
			w.leave(rapid.SampledFrom(leaving).Draw(t, "leaves"))
		case len(admitted) == 0 && len(w.evictions) == evicted:
			return
		}
	}
	t.Fatalf("the preemptions do not end: %q", w.evictions)
}

// wantPaidFor checks that each queue runs as many important stages as others were evicted for it. Their order in the queue determines which of
// its stages these are.
func (w *world) wantPaidFor(t *rapid.T) {
	paid := map[string]int{}
	for _, eviction := range w.evictions {
		_, preemptor, _ := strings.Cut(eviction, " for ns/")
		paid[string(w.workloads[keyOf(preemptor)].Spec.QueueName)]++
	}
	for _, wl := range w.workloads {
		if wl.Status.Admission != nil && *wl.Spec.Priority > 0 {
			paid[string(wl.Spec.QueueName)]--
		}
	}
	for queue, n := range paid {
		if n > 0 {
			t.Fatalf("%s had %d evicted that it has got nothing for: %q", queue, n, w.evictions)
		}
	}
}

// A shareNode is a Cohort or ClusterQueue of a random tree, with what its subtree runs and whether any of it waits.
type shareNode struct {
	name, parent string
	weight       float64
	isQueue      bool
	runs         int
	waits        bool
}

// drawShareTree makes two levels of Cohorts with random weights below a root that has all the quota.
func drawShareTree(t *rapid.T, w *world) (nodes map[string]*shareNode, quota int) {
	weights := rapid.SampledFrom([]string{"0.5", "1", "1", "2", "3"})
	quota = rapid.IntRange(4, 16).Draw(t, "quota")
	w.cohort("root", "", int64(quota))
	nodes = map[string]*shareNode{}
	add := func(name, parent string, isQueue bool) {
		weight := weights.Draw(t, "weight")
		of, err := strconv.ParseFloat(weight, 64)
		if err != nil {
			t.Fatal(err)
		}
		nodes[name] = &shareNode{name: name, parent: parent, weight: of, isQueue: isQueue}
		if !isQueue {
			w.weighted(name, parent, weight)
			return
		}
		w.queue(name, "a100: gpu=0", inCohort(kueue.CohortReference(parent)), withWeight(weight), reclaiming(kueue.PreemptionPolicyAny))
	}
	for c := range rapid.IntRange(1, 3).Draw(t, "cohorts") {
		cohort := fmt.Sprint("c", c)
		add(cohort, "root", false)
		for q := range rapid.IntRange(1, 3).Draw(t, "queues") {
			add(fmt.Sprintf("%sq%d", cohort, q), cohort, true)
		}
	}
	if rapid.Bool().Draw(t, "queue at the root") {
		add("q", "root", true)
	}
	return nodes, quota
}

// count fills in what runs and waits.
func (w *world) count(nodes map[string]*shareNode) {
	for _, n := range nodes {
		n.runs, n.waits = 0, false
	}
	for _, wl := range w.workloads {
		for n := nodes[string(wl.Spec.QueueName)]; n != nil; n = nodes[n.parent] {
			n.waits = n.waits || wl.Status.Admission == nil
			if wl.Status.Admission != nil {
				n.runs++
			}
		}
	}
}

// unfair names two members of one Cohort of which one would have a smaller share than the other even with one Workload more: shares are not
// max-min fair within one Workload.
func unfair(nodes map[string]*shareNode) string {
	for _, poor := range nodes {
		for _, rich := range nodes {
			if poor != rich && poor.parent == rich.parent && poor.waits && float64(poor.runs+1)/poor.weight < float64(rich.runs)/rich.weight {
				return fmt.Sprintf("%+v waits, and could have one of %+v", *poor, *rich)
			}
		}
	}
	return ""
}

// TestSharesSettleFairly lets Workloads of one GPU arrive in random trees, while victims leave. In the end the shares are max-min fair within one
// Workload at each level, no quota that is asked for is idle, and each queue evicted at most one more than was necessary.
func TestSharesSettleFairly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, admission.Config{FairSharing: true})
		nodes, quota := drawShareTree(t, w)
		var queues []string
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			if nodes[name].isQueue {
				queues = append(queues, name)
			}
		}
		first := rapid.SampledFrom(queues).Draw(t, "first")
		for n := range quota {
			w.lone(first, fmt.Sprint("first", n), "gpu=1")
		}
		w.decide()
		for n := range rapid.IntRange(1, 3*quota).Draw(t, "arrivals") {
			w.lone(rapid.SampledFrom(queues).Draw(t, "queue"), fmt.Sprint("w", n), "gpu=1")
			if rapid.Bool().Draw(t, "decides") {
				w.decide()
			}
			if _, leaving := w.running(); len(leaving) > 0 && rapid.IntRange(0, 3).Draw(t, "leaves now") == 0 {
				w.leave(leaving[0])
			}
		}
		w.settleShares(t)
		w.count(nodes)
		if problem := unfair(nodes); problem != "" {
			t.Fatalf("%s; evictions: %q", problem, w.evictions)
		}
		running := 0
		for _, queue := range queues {
			running += nodes[queue].runs
		}
		if running != quota {
			t.Fatalf("%d of %d run", running, quota)
		}
		fewest := quota - nodes[first].runs
		if most := fewest + len(w.preemptors()); len(w.evictions) > most {
			t.Fatalf("%d evictions, at most %d are necessary: %q", len(w.evictions), most, w.evictions)
		}
	})
}
