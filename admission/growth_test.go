package admission_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// grow lets a stage ask for more pods than it holds quota for.
func (w *world) grow(stage, requests, flavors string) {
	w.t.Helper()
	w.clock++
	base := w.workloads[keyOf(stage)]
	wl := newWorkload(stage+"-growth", string(base.Spec.QueueName))
	wl.Labels = map[string]string{apis.StageIndexLabel: base.Labels[apis.StageIndexLabel], apis.GrowthLabel: "1"}
	wl.Annotations = map[string]string{apis.FlavorsAnnotation: flavors}
	wl.OwnerReferences = base.OwnerReferences
	wl.CreationTimestamp = metav1.NewTime(w.now())
	wl.Spec.PodSets = []kueue.PodSet{{Name: base.Spec.PodSets[0].Name, Count: 1, Template: template(requests)}}
	w.put(wl)
}

// resize gives a ReplicatedJob of a JobSet another number of pods.
func (w *world) resize(jobSet, name string, pods int32) {
	w.t.Helper()
	js := w.jobSets[jobSet]
	for i := range js.spec.ReplicatedJobs {
		if r := &js.spec.ReplicatedJobs[i]; r.Name == name {
			r.Template.Spec.Parallelism, r.Template.Spec.Completions = &pods, &pods
		}
	}
	plan, err := stageplan.New(js.spec)
	if err != nil {
		w.t.Fatalf("plan of %s: %v", jobSet, err)
	}
	js.plan = plan
	w.putPlan(js)
}

// A JobSet whose next stage is resized between two stages, so that it could never fit, is refused with that reason and blocks no other. Resized
// to fewer pods, it continues.
func TestNextStageIsResized(t *testing.T) {
	for name, tc := range map[string]struct{ resized, check, part string }{
		"beyond all quota":              {"second", "WithinLimits", "can never fit (would fit with at most 2 of 3 pods of second)"},
		"beyond what is left beside it": {"third", "PeakWithinLimits", "the JobSet could never run to its end in ClusterQueue q: stages that hold quota at the same time need up to 5 nvidia.com/gpu of flavor a100, but the quota is 4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
			w.submit("q", "a", job{name: "first", requests: "gpu=1"}, job{name: "second", requests: "gpu=2", after: []string{"first Complete"}},
				job{name: "third", requests: "gpu=1", after: []string{"second Ready"}})
			w.wantAdmitted("a-first")
			w.lone("q", "holder", "gpu=3")
			w.wantAdmitted("holder")
			w.reach("a", "first", stageplan.Succeeded)
			w.wantAdmitted()
			w.wantRefusal("a-second", "QuotaFits", "WaitingForQuota", "1 of 4 free")
			resize := func(pods int32) {
				w.resize("a", tc.resized, pods)
				w.change("a-"+tc.resized, func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = pods })
			}
			resize(3)
			w.lone("q", "other", "gpu=1")
			w.wantAdmitted("other")
			w.wantRefusal("a-second", tc.check, "ExceedsMaxQuota", tc.part)
			w.change("holder", finish)
			w.wantAdmitted()
			resize(1)
			w.wantAdmitted("a-second")
		})
	}
}

// What a JobSet can still come to hold depends on the stages that have finished: after a restart these have to run again.
func TestPeakAfterARestart(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=5")
	w.submit("q", "a", job{name: "x", requests: "gpu=1"}, job{name: "y", requests: "gpu=2", after: []string{"x Ready"}},
		job{name: "z", requests: "gpu=1", after: []string{"x Complete", "y Complete"}})
	w.lone("q", "holder", "gpu=2")
	w.wantAdmitted("a-x", "holder")
	w.reach("a", "x", stageplan.Ready)
	w.wantAdmitted("a-y")
	w.queue("q", "a100: gpu=2")
	w.reach("a", "x", stageplan.Succeeded)
	w.reach("a", "y", stageplan.Succeeded)
	w.wantAdmitted()
	w.wantRefusal("a-z", "QuotaFits", "WaitingForQuota", "0 of 2 free")
	for stage, gate := range map[string]string{"a-x": "", "a-y": apis.StageGate, "a-z": apis.StageGate} {
		w.change(stage, func(wl *kueue.Workload) {
			wl.Annotations = map[string]string{apis.AttemptAnnotation: "1", apis.AdmissionGatedByAnnotation: gate}
			wl.Status = kueue.WorkloadStatus{}
		})
	}
	w.wantAdmitted()
	w.wantRefusal("a-x", "PeakWithinLimits", "ExceedsMaxQuota", "need up to 3 nvidia.com/gpu of flavor a100, but the quota is 2")
}

// A stage that has run for long may finish without its growth, so the growth waits behind stages that asked before it.
func TestGrowthWaitsInLine(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
	w.submit("q", "a", job{name: "main", requests: "gpu=2"})
	w.lone("q", "holder", "gpu=2")
	w.wantAdmitted("a-main", "holder")
	w.submit("q", "b", job{name: "main", requests: "gpu=2"})
	w.grow("a-main", "gpu=2", "main/nvidia.com/gpu=a100")
	w.wantAdmitted()
	w.wantRefusal("a-main-growth", "StrictFIFO", "WaitingForQuota", `waits behind JobSet "b"`)
	w.change("holder", finish)
	w.wantAdmitted("b-main")
	w.change("b-main", finish)
	w.wantAdmitted("a-main-growth")
	if used := w.used("q"); used != "a100/nvidia.com/gpu=4" {
		t.Errorf("used %s, want 4: the stage and its growth", used)
	}
}

// Pods of one Job run on one flavor. If its quota is used up, another flavor does not help.
func TestGrowthStaysOnItsFlavor(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4; h100: gpu=8")
	w.submit("q", "a", job{name: "main", requests: "gpu=2"})
	w.lone("q", "holder", "gpu=2")
	w.wantAdmitted("a-main", "holder")
	w.grow("a-main", "gpu=2", "main/nvidia.com/gpu=a100")
	w.wantAdmitted()
	w.wantRefusal("a-main-growth", "QuotaFits", "WaitingForQuota", "flavor a100")
	w.change("holder", finish)
	w.wantAdmitted("a-main-growth")
	if used := w.used("q"); !strings.HasPrefix(used, "a100/nvidia.com/gpu=4") {
		t.Errorf("used %s, want 4 of a100", used)
	}
}

// A growth that can never fit is refused at once, and blocks no other.
func TestGrowthBeyondAllLimits(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO })
	w.submit("q", "a", job{name: "main", requests: "gpu=2"})
	w.wantAdmitted("a-main")
	w.grow("a-main", "gpu=3", "main/nvidia.com/gpu=a100")
	w.lone("q", "other", "gpu=2")
	w.wantAdmitted("other")
	w.wantRefusal("a-main-growth", "WithinLimits", "ExceedsMaxQuota", "with what it holds it would need 5 nvidia.com/gpu of flavor a100, but the quota is 4")
}

// A waiting growth is not needed for its JobSet to finish: neither it nor the rival waits for the other.
func TestGrowthIsNoClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		grows bool
		want  []string
	}{
		"without a growth": {false, []string{"b-ps"}},
		"with a growth":    {true, []string{"b-ps"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=6")
			w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=2")...)
			w.wantAdmitted("a-first")
			if tc.grows {
				w.grow("a-first", "gpu=4", "first/nvidia.com/gpu=a100")
				w.wantAdmitted()
				w.wantRefusal("a-first-growth", "StageUnsafe", "WaitingForQuota", "could deadlock this JobSet")
			}
			w.submit("q", "b", job{name: "ps", requests: "gpu=2"})
			w.wantAdmitted(tc.want...)
			w.reach("a", "first", stageplan.Ready)
			w.wantAdmitted("a-second")
		})
	}
}

// An evicted growth does not evict the rest of its JobSet: the JobSet still has a claim.
func TestGrowthLeavesAlone(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=7")
	w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=3")...)
	w.wantAdmitted("a-first")
	w.grow("a-first", "gpu=1", "first/nvidia.com/gpu=a100")
	w.wantAdmitted("a-first-growth")
	w.change("a-first-growth", func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue) })
	w.submit("q", "b", twoStages("gpu=2", "Ready", "gpu=3")...)
	w.wantAdmitted()
	w.wantRefusal("b-first", "StageUnsafe", "WaitingForQuota", "could deadlock this JobSet")
	if len(w.evictions) > 0 {
		t.Errorf("evicted %v, want none", w.evictions)
	}
}

// Preemption evicts a JobSet as a whole, including its growths.
func TestPreemptionTakesTheGrowthToo(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) {
		q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
	})
	w.submit("q", "a", job{name: "main", requests: "gpu=2"})
	w.wantAdmitted("a-main")
	w.grow("a-main", "gpu=2", "main/nvidia.com/gpu=a100")
	w.wantAdmitted("a-main-growth")
	w.lone("q", "vip", "gpu=1", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(9)) })
	w.wantAdmitted()
	if len(w.evictions) != 2 {
		t.Errorf("evicted %v, want the stage and its growth", w.evictions)
	}
}

// A growth that still exists does not make the engine count the finished stage as unfinished.
func TestGrowthOfAFinishedStage(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=5")
	w.submit("q", "a", twoStages("gpu=2", "Ready", "gpu=2")...)
	w.wantAdmitted("a-first")
	w.grow("a-first", "gpu=9", "first/nvidia.com/gpu=a100")
	w.reach("a", "first", stageplan.Ready)
	w.wantAdmitted("a-second")
	w.reach("a", "first", stageplan.Succeeded)
	w.submit("q", "b", twoStages("gpu=2", "Ready", "gpu=2")...)
	w.wantAdmitted("b-first")
}

// I3 with growths: every JobSet whose stages fit finishes, whatever growths its stages ask for.
func TestGrowthsStarveNoJobSet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, admission.Config{})
		w.queue("q", "a100: gpu=8")
		gpus := func(what string) string { return fmt.Sprintf("gpu=%d", rapid.IntRange(1, 4).Draw(rt, what)) }
		left := rapid.IntRange(2, 6).Draw(rt, "JobSets")
		for i := range left {
			rule := rapid.SampledFrom([]string{"Ready", "Complete"}).Draw(rt, "rule")
			w.submit("q", fmt.Sprintf("j%d", i), twoStages(gpus("first"), rule, gpus("second"))...)
		}
		for left > 0 {
			admitted := w.decide()
			if len(admitted) == 0 {
				rt.Fatalf("%d JobSets wait forever: %v", left, w.refusals)
			}
			for _, name := range admitted {
				if strings.HasSuffix(name, "-first") && rapid.Bool().Draw(rt, "grows") {
					w.grow(name, gpus("more"), "first/nvidia.com/gpu=a100")
				}
			}
			admitted = append(admitted, w.decide()...)
			for _, name := range admitted {
				switch jobSet, stage, _ := strings.Cut(name, "-"); stage {
				case "first":
					w.pass(jobSet)
				case "second":
					w.reach(jobSet, "second", stageplan.Succeeded)
					w.reach(jobSet, "first", stageplan.Succeeded)
					w.remove(jobSet + "-first-growth")
					left--
				}
			}
		}
	})
}

// pass lets the first stage of a JobSet meet the start condition of the second. If it succeeds, its growth finishes, too.
func (w *world) pass(jobSet string) {
	status := w.jobSets[jobSet].plan.Stages[1].After[0].Status
	w.reach(jobSet, "first", status)
	if status == stageplan.Succeeded {
		w.remove(jobSet + "-first-growth")
	}
}
