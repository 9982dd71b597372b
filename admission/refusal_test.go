package admission_test

import (
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

func TestRefusals(t *testing.T) {
	hold := kueue.Hold
	for name, tc := range map[string]struct {
		queue                                func(*kueue.ClusterQueue)
		workload                             func(*kueue.Workload)
		before                               func(*world)
		wantCheck, wantReason, wantInMessage string
	}{
		"no LocalQueue": {
			workload:  func(wl *kueue.Workload) { wl.Spec.QueueName = "nowhere" },
			wantCheck: "LocalQueueExists", wantReason: "Misconfigured", wantInMessage: "no LocalQueue nowhere in namespace ns",
		},
		"LocalQueue stopped": {
			before: func(w *world) {
				w.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q", StopPolicy: &hold},
				}})
			},
			wantCheck: "LocalQueueIsActive", wantReason: "Suspended", wantInMessage: "LocalQueue q is stopped",
		},
		"ClusterQueue gone": {
			before:    func(w *world) { w.engine.Apply(admission.ClusterQueueGone{Name: "q"}) },
			wantCheck: "ClusterQueueExists", wantReason: "Misconfigured", wantInMessage: "no ClusterQueue q",
		},
		"ClusterQueue stopped": {
			queue:     func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = &hold },
			wantCheck: "ClusterQueueIsActive", wantReason: "Suspended", wantInMessage: "is stopped",
		},
		"flavor gone": {
			before:    func(w *world) { w.engine.Apply(admission.FlavorGone{Name: "a100"}) },
			wantCheck: "ClusterQueueIsActive", wantReason: "Misconfigured", wantInMessage: "references missing ResourceFlavor(s): a100",
		},
		"admission checks": {
			queue: func(q *kueue.ClusterQueue) {
				q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "x"}}}
			},
			wantCheck: "ClusterQueueIsActive", wantReason: "Misconfigured", wantInMessage: "references missing AdmissionCheck(s): x",
		},
		"namespace not selected": {
			queue: func(q *kueue.ClusterQueue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
			},
			wantCheck: "NamespaceIsSelected", wantReason: "Misconfigured", wantInMessage: "does not admit from namespace ns",
		},
		"topology": {
			workload: func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("rack")}
			},
			wantCheck: "IsSupported", wantReason: "Misconfigured", wantInMessage: "spec.podSets[0].topologyRequest",
		},
		"resource claim": {
			workload: func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "devices", ResourceClaimTemplateName: new("eight")}}
			},
			wantCheck: "IsSupported", wantReason: "Misconfigured", wantInMessage: `spec.podSets[0].template.spec.resourceClaims: resource claim "devices" is for devices, which no quota is charged for`,
		},
		"overflow": {
			workload: func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Count = math.MaxInt32
				wl.Spec.PodSets[0].Template = template("gpu=8E")
			},
			wantCheck: "IsSupported", wantReason: "Misconfigured", wantInMessage: "cannot be charged to any quota",
		},
		"uncovered resource": {
			workload:  func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template = template("example.com/tpu=1") },
			wantCheck: "ResourcesAreCovered", wantReason: "NoMatchingFlavor", wantInMessage: "asks for example.com/tpu",
		},
		"node selector": {
			workload: func(wl *kueue.Workload) {
				wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"flavor": "h100"}
			},
			wantCheck: "FlavorMatches", wantReason: "NoMatchingFlavor", wantInMessage: "flavor a100 does not have node label flavor=h100",
		},
		"taint": {
			before: func(w *world) {
				f := newFlavor("a100")
				f.Spec.NodeTaints = []corev1.Taint{{Key: "gpu", Value: "only", Effect: corev1.TaintEffectNoSchedule}}
				w.engine.Apply(admission.FlavorObserved{Flavor: f})
			},
			wantCheck: "FlavorMatches", wantReason: "NoMatchingFlavor", wantInMessage: "flavor a100 has taint gpu=only:NoSchedule",
		},
		"pod sets together above the quota": {
			workload: func(wl *kueue.Workload) {
				wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: "more", Count: 8, Template: template("gpu=1")})
			},
			wantCheck: "WithinLimits", wantReason: "ExceedsMaxQuota", wantInMessage: "all pod sets together need 9 nvidia.com/gpu of flavor a100",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			change := tc.queue
			if change == nil {
				change = func(*kueue.ClusterQueue) {}
			}
			w.queue("q", "a100: gpu=8", change)
			if tc.before != nil {
				tc.before(w)
			}
			workload := tc.workload
			if workload == nil {
				workload = func(*kueue.Workload) {}
			}
			w.lone("q", "one", "gpu=1", workload)
			w.wantAdmitted()
			w.wantRefusal("one", tc.wantCheck, tc.wantReason, tc.wantInMessage)
			if got := w.engine.Explain(keyOf("one")); len(got) != 1 || got[0].String() != w.refusals[keyOf("one")].String() {
				t.Errorf("Explain: %v", got)
			}
			// All problems are fixed, and the stage must wake.
			w.lone("q", "one", "gpu=1")
			w.queue("q", "a100: gpu=8")
			w.decide()
			if !w.engine.Charged(keyOf("one"), "wl-one") {
				t.Errorf("still refused: %v", w.engine.Explain(keyOf("one")))
			}
		})
	}
}

func TestPeakThatNeverFits(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=8")
	w.submit("q", "ready", twoStages("gpu=4", "Ready", "gpu=5")...)
	w.submit("q", "succeeded", twoStages("gpu=4", "Complete", "gpu=5")...)
	w.submit("q", "second", twoStages("gpu=4", "Complete", "gpu=9")...)
	w.wantAdmitted("succeeded-first")
	w.wantRefusal("ready-first", "PeakWithinLimits", "ExceedsMaxQuota", "9 nvidia.com/gpu of flavor a100, but the quota is 8")
	w.wantRefusal("second-first", "WithinLimits", "ExceedsMaxQuota", "stage second could never be admitted")
}

// TestLaterStagesLeaveTheFirstFlavor needs a second choice: if x took the first flavor for its later stage, y could not use it.
func TestLaterStagesLeaveTheFirstFlavor(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a: gpu=4; b: gpu=4")
	onA := func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"flavor": "a"} }
	w.submit("q", "x",
		job{name: "first", requests: "gpu=1", change: onA},
		job{name: "either", requests: "gpu=3", after: []string{"first Ready"}},
		job{name: "only-a", requests: "gpu=3", after: []string{"first Ready", "either Ready"}, change: onA})
	w.wantAdmitted("x-first")
	w.reach("x", "first", stageplan.Ready)
	w.wantAdmitted("x-either")
	if got, want := w.used("q"), "a/nvidia.com/gpu=1 b/nvidia.com/gpu=3"; got != want {
		t.Fatalf("used %s, want %s", got, want)
	}
	w.reach("x", "either", stageplan.Ready)
	w.wantAdmitted("x-only-a")
}

func TestOrder(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2")
	w.lone("q", "old", "gpu=2")
	w.lone("q", "evicted", "gpu=2", func(wl *kueue.Workload) {
		wl.CreationTimestamp = metav1.NewTime(start())
		setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
		wl.Status.Conditions[0].Reason = kueue.WorkloadEvictedByPodsReadyTimeout
		wl.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start().Add(time.Hour))
	})
	w.lone("q", "urgent", "gpu=2", func(wl *kueue.Workload) { priority := int32(7); wl.Spec.Priority = &priority })
	for _, want := range []string{"urgent", "old", "evicted"} {
		w.wantAdmitted(want)
		w.change(want, finish)
	}
}

// TestContinuingComesFirst hands the quota of a finished stage to the next stage of the same JobSet, not to a stage that has waited longer.
func TestContinuingComesFirst(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2")
	w.submit("q", "js", twoStages("gpu=2", "Complete", "gpu=2")...)
	w.wantAdmitted("js-first")
	w.lone("q", "stranger", "gpu=2", func(wl *kueue.Workload) { wl.CreationTimestamp = metav1.NewTime(start()) })
	w.wantAdmitted()
	w.reach("js", "first", stageplan.Succeeded)
	w.wantAdmitted("js-second")
	w.reach("js", "second", stageplan.Succeeded)
	w.wantAdmitted("stranger")
}

func TestPlanMustBeKnown(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2")
	w.submit("q", "known", job{name: "only", requests: "gpu=1"})
	w.wantAdmitted("known-only")
	w.lone("q", "js-only", "gpu=1", func(wl *kueue.Workload) {
		yes := true
		wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "js", UID: "js-js", Controller: &yes}}
	})
	w.wantAdmitted()
	if got := w.engine.Explain(keyOf("js-only")); len(got) != 1 || got[0].Check != "PlanIsKnown" {
		t.Errorf("Explain: %v", got)
	}
	plan := admission.PlanObserved{Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: "js"}}, UID: "js-js", Plan: w.jobSets["known"].plan}
	w.engine.Apply(plan)
	w.wantAdmitted("js-only")
	w.engine.Apply(admission.PlanGone{UID: "js-js"})
	w.remove("js-only")
	before := w.used("q")
	w.engine.Apply(plan)
	w.lone("q", "late", "gpu=1", func(wl *kueue.Workload) {
		wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", UID: "js-js", Controller: new(true)}}
	})
	w.wantAdmitted()
	if got := w.used("q"); got != before {
		t.Errorf("a plan that comes after its JobSet has gone admits a stage: %s, before %s", got, before)
	}
}

func TestLateAnswersBringNothingBack(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2")
	w.lone("q", "one", "gpu=2")
	w.wantAdmitted("one")
	held := w.workloads[keyOf("one")].DeepCopy()
	w.change("one", finish)
	w.engine.Apply(admission.WorkloadObserved{Workload: held})
	if w.engine.Charged(keyOf("one"), "wl-one") {
		t.Error("an older observation counts")
	}
	w.remove("one")
	held.ResourceVersion = "999"
	w.engine.Apply(admission.WorkloadObserved{Workload: held})
	if w.engine.Charged(keyOf("one"), "wl-one") {
		t.Error("an observation after the end counts")
	}
}

// TestWorkloadRecreatedBeforeItsDeletionIsObserved: of two quota Workloads of one name the second may be observed before the deletion of the first is.
func TestWorkloadRecreatedBeforeItsDeletionIsObserved(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2")
	w.lone("q", "one", "gpu=2")
	w.wantAdmitted("one")
	first := w.workloads[keyOf("one")].DeepCopy()
	w.lone("q", "one", "gpu=1", func(wl *kueue.Workload) { wl.UID = "second" })
	w.engine.Apply(admission.WorkloadGone{Key: keyOf("one"), UID: first.UID})
	w.wantAdmitted("one")
	if got, want := w.used("q"), "a100/nvidia.com/gpu=1"; got != want {
		t.Errorf("used %s, want %s", got, want)
	}
}

// TestTombstoneCleared: a quota Workload with a tombstone counts again when the API server has been asked, unless it was deleted after the question.
func TestTombstoneCleared(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=2")
	w.lone("q", "one", "gpu=2")
	w.wantAdmitted("one")
	alive := admission.WorkloadObserved{Workload: w.workloads[keyOf("one")].DeepCopy()}
	gone, doubted := admission.WorkloadGone{Key: keyOf("one"), UID: "wl-one"}, admission.TombstoneCleared{UID: "wl-one"}
	for _, step := range []struct {
		name   string
		events []admission.Event
		want   string
	}{
		{"gone", []admission.Event{gone, alive}, "0"},
		{"doubted and alive", []admission.Event{doubted, alive}, "2"},
		{"doubted for nothing", []admission.Event{doubted, doubted, alive}, "2"},
		{"gone again", []admission.Event{gone, alive}, "0"},
		{"doubted, and gone before it was seen", []admission.Event{doubted, gone, alive}, "0"},
	} {
		for _, event := range step.events {
			w.engine.Apply(event)
		}
		if got, want := w.used("q"), "a100/nvidia.com/gpu="+step.want; got != want {
			t.Errorf("%s: used %s, want %s", step.name, got, want)
		}
	}
}

func TestObservedAdmissionsCountAsTheyAre(t *testing.T) {
	w := newWorld(t, admission.Config{})
	hold := newWorkload("huge", "q")
	reserve(hold, &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"}, ResourceUsage: amounts("gpu=20"),
	}}})
	w.put(hold)
	w.queue("q", "a100: gpu=8")
	w.lone("q", "one", "gpu=1")
	w.lone("q", "nothing", "gpu=0")
	w.wantAdmitted("nothing")
	w.wantRefusal("one", "QuotaFits", "WaitingForQuota", "0 of 8 free")
	if got, want := w.used("q"), "a100/nvidia.com/gpu=20"; got != want {
		t.Errorf("used %s, want %s", got, want)
	}
	w.remove("huge")
	w.wantAdmitted("one")
}

func TestGatesAndViews(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=8; h100: gpu=1")
	w.lone("q", "one", "gpu=8", func(wl *kueue.Workload) {
		wl.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.SuspendedGate}
	})
	w.wantAdmitted()
	w.engine.Changed()
	w.change("one", func(wl *kueue.Workload) { wl.Annotations = nil })
	view, _ := w.engine.ClusterQueue("q")
	if view.Pending != 1 || view.Reserving != 0 || view.Active.Reason != "Ready" {
		t.Errorf("view %+v", view)
	}
	w.wantAdmitted("one")
	local, _ := w.engine.LocalQueue(keyOf("q"))
	if local.Pending != 0 || local.Reserving != 1 || local.Admitted != 1 || len(local.FlavorsUsage) != 2 || local.FlavorsUsage[0].Resources[0].Total.Value() != 8 {
		t.Errorf("view %+v", local)
	}
	clusterQueues, localQueues := w.engine.Changed()
	if !slices.Equal(clusterQueues, []string{"q"}) || !slices.Equal(localQueues, []types.NamespacedName{keyOf("q")}) {
		t.Errorf("changed %v %v", clusterQueues, localQueues)
	}
	if clusterQueues, localQueues = w.engine.Changed(); len(clusterQueues)+len(localQueues) > 0 {
		t.Errorf("changed again: %v %v", clusterQueues, localQueues)
	}
}

// TestRefusalReachesAllStagesOfADemand: two equal quota Workloads, of which one is checked for both.
func TestRefusalReachesAllStagesOfADemand(t *testing.T) {
	hold := kueue.Hold
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.lone("q", "full", "gpu=4")
	w.lone("q", "one", "gpu=1")
	w.lone("q", "two", "gpu=1")
	w.wantAdmitted("full")
	w.wantRefusal("two", "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "")
	w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = &hold })
	w.wantAdmitted()
	for _, name := range []string{"one", "two"} {
		w.wantRefusal(name, "ClusterQueueIsActive", "Suspended", "is stopped")
	}
	w.queue("q", "a100: gpu=4")
	w.wantAdmitted()
	for _, name := range []string{"one", "two"} {
		w.wantRefusal(name, "QuotaFits", kueue.WorkloadQuotaReservedReasonWaitingForQuota, "")
	}
}

// TestStrangeNamesAreNotTakenForOthers: the first asks for something whose name reads like what the second asks for.
func TestStrangeNamesAreNotTakenForOthers(t *testing.T) {
	selects := func(selector map[string]string) corev1.PodTemplateSpec {
		return template("cpu=1", func(spec *corev1.PodSpec) { spec.NodeSelector = selector })
	}
	for name, pods := range map[string]struct{ strange, usual corev1.PodTemplateSpec }{
		"resources": {
			template("", func(spec *corev1.PodSpec) {
				spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu=1000 memory": resource.MustParse("5")}
			}),
			template("cpu=1 memory=5"),
		},
		"selectors": {
			selects(map[string]string{"flavor": "a100 zone:z"}), selects(map[string]string{"flavor": "a100", "zone": "z"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: cpu=4 memory=8")
			w.lone("q", "strange", "", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template = pods.strange })
			w.lone("q", "usual", "", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Template = pods.usual })
			w.wantAdmitted("usual")
		})
	}
}

// TestPlanWithAProblemConcernsNoOtherJobSet: a JobSet of one stage asks for the same as another's quota Workload, and its plan for too much.
func TestPlanWithAProblemConcernsNoOtherJobSet(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	pods := template("gpu=1")
	plan := &stageplan.Plan{Stages: []stageplan.Stage{{Name: "s", ReplicatedJobs: []string{"s"}, PodSets: []stageplan.PodSet{
		{Name: "main", Count: 1, Requests: amounts("gpu=8E"), Template: &pods},
	}}}}
	w.engine.Apply(admission.PlanObserved{Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: "js"}}, UID: "js", Submitted: start(), Plan: plan})
	yes := true
	w.lone("q", "js-s", "gpu=1", func(wl *kueue.Workload) {
		wl.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Name: "js", UID: "js", Controller: &yes}}
	})
	w.lone("q", "fine", "gpu=1")
	w.wantAdmitted("fine")
	w.wantRefusal("js-s", "IsInPlan", "Misconfigured", "the stage plan cannot be admitted")
}
