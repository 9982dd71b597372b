package admission_test

import (
	"strings"
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// TestUnsupported has what Kueue supports and Tranche does not: it is refused by name instead of being ignored.
func TestUnsupported(t *testing.T) {
	topology := kueue.TopologyReference("racks")
	for name, tc := range map[string]struct {
		queue                    func(*kueue.ClusterQueue)
		flavor                   func(*kueue.ResourceFlavor)
		workload                 func(*kueue.Workload)
		wantCheck, wantInMessage string
	}{
		"allowed flavors": {
			workload:  func(wl *kueue.Workload) { wl.Annotations = map[string]string{apis.AllowedFlavorsAnnotation: "h100"} },
			wantCheck: "IsSupported", wantInMessage: "annotation kueue.x-k8s.io/workload-allowed-resource-flavors is not supported",
		},
		"slice": {
			workload: func(wl *kueue.Workload) {
				wl.Annotations = map[string]string{apis.SliceReplacementAnnotation: "ns/other"}
			},
			wantCheck: "IsSupported", wantInMessage: "annotation kueue.x-k8s.io/workload-slice-replacement-for is not supported, because Kueue does not always stop the pods of an elastic job that is evicted: submit the job without the annotation kueue.x-k8s.io/elastic-job",
		},
		"parent of variants": {
			workload:  func(wl *kueue.Workload) { wl.Labels = map[string]string{apis.ConcurrentParentLabel: "true"} },
			wantCheck: "IsSupported", wantInMessage: "label kueue.x-k8s.io/concurrent-admission-parent is not supported",
		},
		"boost that is no number": {
			workload:  func(wl *kueue.Workload) { wl.Annotations = map[string]string{apis.PriorityBoostAnnotation: "much"} },
			wantCheck: "IsSupported", wantInMessage: `annotation kueue.x-k8s.io/priority-boost is "much": set a whole number`,
		},
		"preemption gate": {
			workload:  func(wl *kueue.Workload) { wl.Spec.PreemptionGates = []kueue.PreemptionGate{{Name: "x"}} },
			wantCheck: "IsSupported", wantInMessage: "spec.preemptionGates are not supported",
		},
		"concurrent admission": {
			queue:     func(q *kueue.ClusterQueue) { q.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{} },
			wantCheck: "ClusterQueueIsActive", wantInMessage: "spec.concurrentAdmissionPolicy is not supported: remove it",
		},
		"topology of a flavor": {
			flavor:    func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = &topology },
			wantCheck: "ClusterQueueIsActive", wantInMessage: "spec.topologyName is not supported: remove it from ResourceFlavor(s): a100",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			change := func(*kueue.ClusterQueue) {}
			if tc.queue != nil {
				change = tc.queue
			}
			w.queue("q", "a100: gpu=8", change)
			f := newFlavor("a100")
			if tc.flavor != nil {
				tc.flavor(f)
				w.engine.Apply(admission.FlavorObserved{Flavor: f})
			}
			workload := func(*kueue.Workload) {}
			if tc.workload != nil {
				workload = tc.workload
			}
			w.lone("q", "one", "gpu=1", workload)
			w.wantAdmitted()
			w.wantRefusal("one", tc.wantCheck, "Misconfigured", tc.wantInMessage)
			// Without it, the stage is admitted.
			w.engine.Apply(admission.FlavorObserved{Flavor: newFlavor("a100")})
			w.lone("q", "one", "gpu=1", func(wl *kueue.Workload) { wl.Annotations, wl.Labels = nil, nil })
			w.queue("q", "a100: gpu=8")
			w.decide()
			if !w.engine.Charged(keyOf("one"), "wl-one") {
				t.Errorf("still refused: %v", w.engine.Explain(keyOf("one")))
			}
		})
	}
}

func TestPriorityBoost(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=1", withStop(kueue.Hold))
	w.lone("q", "first", "gpu=1")
	w.lone("q", "boosted", "gpu=1", func(wl *kueue.Workload) { wl.Generation = 1 })
	// An annotation alone does not change the generation of an object.
	w.change("boosted", func(wl *kueue.Workload) { wl.Annotations = map[string]string{apis.PriorityBoostAnnotation: "10"} })
	w.queue("q", "a100: gpu=1")
	w.wantAdmitted("boosted")
}

// TestPriorityBoostOfVictims: a boost counts for the order in which stages are preempted, and while they run.
func TestPriorityBoostOfVictims(t *testing.T) {
	boost := func(by string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) { wl.Annotations = map[string]string{apis.PriorityBoostAnnotation: by} }
	}
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2", func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	})
	w.lone("q", "first", "gpu=1")
	w.lone("q", "second", "gpu=1")
	w.wantAdmitted("first", "second")
	w.change("second", boost("10"))
	w.lone("q", "third", "gpu=1")
	w.wantAdmitted()
	w.change("first", boost("-1"))
	w.wantAdmitted()
	if len(w.evictions) != 1 || !strings.Contains(w.evictions[0], "first") {
		t.Errorf("evicted %v, want first", w.evictions)
	}
}
