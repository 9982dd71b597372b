package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

func pair(launcher, workers string) []job {
	return []job{{name: "launcher", requests: launcher}, {name: "workers", requests: workers, after: []string{"launcher Ready"}}}
}

func assigned(queue, podSet, gpus string) *kueue.Admission {
	return &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue), PodSetAssignments: []kueue.PodSetAssignment{{
		Name: kueue.PodSetReference(podSet), Count: new(int32(1)), ResourceUsage: amounts("gpu=" + gpus),
		Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a"},
	}}}
}

// TestBesideKueuePair has two JobSets whose stages fit each alone: both open at once, one is admitted, and the other opens again when the first has
// finished.
func TestBesideKueuePair(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "first", pair("gpu=4", "gpu=4")...)
	b.submit("q", "second", pair("gpu=4", "gpu=4")...)
	for _, name := range []string{"first-launcher", "second-launcher"} {
		if gate := b.workloads[keyOf(name)].Annotations[apis.AdmissionGatedByAnnotation]; gate != "" {
			t.Fatalf("%s keeps the gate %s", name, gate)
		}
		b.reserve(name, assigned("q", "launcher", "4"))
	}
	b.judge("first-launcher")
	want := "stage \"launcher\" with quota of ClusterQueue q could deadlock this JobSet and ns/first on quota for later stages: 0 of 8 nvidia.com/gpu of flavor a would stay free, " +
		"and up to 4 more may be needed at once"
	answer, ok := b.engine.Judge(keyOf("second-launcher"), "wl-second-launcher")
	if !ok || answer.IsSafe || answer.Message != want {
		t.Fatalf("the second is judged %+v, %t, want %q", answer, ok, want)
	}
	b.judge("second-launcher")
	b.endRetry("second-launcher")
	if why := b.waiting["second"][0]; why != want {
		t.Fatalf("the second waits because of %q, want %q", why, want)
	}
	b.writeReady("first-launcher")
	b.reach("first", "launcher", stageplan.Ready)
	if owners := b.engine.Woken(); len(owners) > 0 {
		t.Fatalf("%v is woken although nothing is released", owners)
	}
	b.reserve("first-workers", assigned("q", "workers", "4"))
	b.judge("first-workers")
	b.writeReady("first-workers")
	b.checkNothingIsDecided()
	b.reach("first", "workers", stageplan.Succeeded)
	b.reach("first", "launcher", stageplan.Succeeded)
	b.wake()
	if gate := b.workloads[keyOf("second-launcher")].Annotations[apis.AdmissionGatedByAnnotation]; gate != "" {
		t.Fatalf("the second keeps the gate %s: %v", gate, b.waiting)
	}
}

// TestBesideKueueRetract lets the answer for one JobSet be lost: then the other is safe.
func TestBesideKueueRetract(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "first", pair("gpu=4", "gpu=4")...)
	b.submit("q", "second", pair("gpu=4", "gpu=4")...)
	b.reserve("first-launcher", assigned("q", "launcher", "4"))
	b.reserve("second-launcher", assigned("q", "launcher", "4"))
	isSafe := func(name string) bool {
		answer, _ := b.engine.Judge(keyOf(name), types.UID("wl-"+name))
		return answer.IsSafe
	}
	if !isSafe("first-launcher") || isSafe("second-launcher") || !isSafe("first-launcher") {
		t.Fatal("want the first to be safe, and the second not")
	}
	b.engine.Retract(keyOf("first-launcher"), "another")
	if isSafe("second-launcher") {
		t.Fatal("the answer for the first is withdrawn for another UID")
	}
	b.engine.Retract(keyOf("first-launcher"), "wl-first-launcher")
	if !isSafe("second-launcher") || isSafe("first-launcher") {
		t.Fatal("want the second to be safe once the first is withdrawn")
	}
}

// TestBesideKueueRestart opens a stage that has kept its quota through a restart of its JobSet: its quota counts once, although nothing is left free.
func TestBesideKueueRestart(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=7", judged)
	b.submit("q", "js", job{name: "launcher", requests: "gpu=1"}, job{name: "workers", requests: "gpu=1", after: []string{"launcher Ready"}},
		job{name: "more", requests: "gpu=5", after: []string{"workers Ready"}})
	js := b.jobSets["js"]
	b.reserve("js-launcher", assigned("q", "launcher", "1"))
	b.judge("js-launcher")
	b.writeReady("js-launcher")
	b.reach("js", "launcher", stageplan.Ready)
	b.reserve("js-workers", assigned("q", "workers", "1"))
	b.judge("js-workers")
	b.writeReady("js-workers")
	b.restartJobSet(js)
	if gate := b.workloads[keyOf("js-workers")].Annotations[apis.AdmissionGatedByAnnotation]; gate == "" {
		t.Fatal("the restart does not gate the workers")
	}
	b.reach("js", "launcher", stageplan.Ready)
	if gate := b.workloads[keyOf("js-workers")].Annotations[apis.AdmissionGatedByAnnotation]; gate != "" {
		t.Errorf("the workers keep the gate %s: %s", gate, b.waiting["js"][1])
	}
}

// TestBesideKueueOthers judges what is no stage that could deadlock.
func TestBesideKueueOthers(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "first", pair("gpu=4", "gpu=4")...)
	b.reserve("first-launcher", assigned("q", "launcher", "4"))
	b.judge("first-launcher")
	b.lone("q", "kueue-job", "gpu=4")
	b.queue("g", "a: gpu=8", judged, greedy)
	b.submit("g", "greedy", pair("gpu=4", "gpu=5")...)
	b.submit("q", "whole", pair("gpu=4", "gpu=4")...)
	b.change("whole-launcher", func(wl *kueue.Workload) { delete(wl.Labels, apis.StageIndexLabel) })
	for name, podSet := range map[string]string{"kueue-job": "main", "greedy-launcher": "launcher", "whole-launcher": "launcher"} {
		if _, ok := b.engine.Judge(keyOf(name), types.UID("wl-"+name)); ok {
			t.Errorf("%s is judged without a reservation", name)
		}
		b.reserve(name, assigned(string(b.workloads[keyOf(name)].Spec.QueueName), podSet, "4"))
		if answer, ok := b.engine.Judge(keyOf(name), types.UID("wl-"+name)); !ok || !answer.IsSafe {
			t.Errorf("%s is judged %+v, %t, want safe", name, answer, ok)
		}
		b.leave(name)
	}
}

// TestBesideKueueNeverFits keeps a JobSet closed that could never finish.
func TestBesideKueueNeverFits(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "large", pair("gpu=4", "gpu=5")...)
	if why := b.waiting["large"][0]; !strings.Contains(why, "could never run to its end in ClusterQueue q") {
		t.Errorf("the JobSet waits because of %q", why)
	}
	b.queue("q", "a: gpu=9", judged)
	b.checkNothingIsDecided()
	b.wake()
	if gate := b.workloads[keyOf("large-launcher")].Annotations[apis.AdmissionGatedByAnnotation]; gate != "" {
		t.Errorf("with more quota the JobSet keeps the gate %s: %v", gate, b.waiting)
	}
}

func greedy(q *kueue.ClusterQueue) {
	metav1.SetMetaDataAnnotation(&q.ObjectMeta, apis.StageAdmissionAnnotation, admission.Greedy)
}

// TestBesideKueueUnprotected keeps a JobSet that could deadlock closed in a ClusterQueue without the check, until it has one.
func TestBesideKueueUnprotected(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8")
	b.mayOpen = func(js *fakeJobSet, stage int) bool {
		answer := b.engine.MayOpen(admission.OpenRequest{JobSet: js.uid, Stage: stage, LocalQueue: b.localQueueOf(js.workload(stage))})
		b.keep(js, stage, answer.Message)
		return answer.IsSafe
	}
	b.submit("q", "held", pair("gpu=4", "gpu=4")...)
	b.submit("q", "sequence", job{name: "first", requests: "gpu=4"}, job{name: "second", requests: "gpu=4", after: []string{"first Complete"}})
	if why := b.waiting["held"][0]; !strings.Contains(why, "could deadlock: ClusterQueue q has no AdmissionCheck with controllerName tranche.dev/stage-safety") {
		t.Errorf("the JobSet waits because of %q", why)
	}
	if why := b.waiting["sequence"][0]; why != "" {
		t.Errorf("a JobSet that never holds and waits is kept closed: %s", why)
	}
	b.queue("q", "a: gpu=8", judged)
	b.checkNothingIsDecided()
	b.wake()
	if gate := b.workloads[keyOf("held-launcher")].Annotations[apis.AdmissionGatedByAnnotation]; gate != "" {
		t.Errorf("with the check the JobSet keeps the gate %s: %v", gate, b.waiting)
	}
}

func TestUnprotected(t *testing.T) {
	for name, tt := range map[string]struct {
		leader admission.Config
		change func(*kueue.ClusterQueue)
		want   string
	}{
		"the engine admits": {admission.Config{}, func(*kueue.ClusterQueue) {}, ""},
		"no check":          {admission.Config{Leader: admission.LedByKueue}, func(*kueue.ClusterQueue) {}, "ClusterQueue q has no AdmissionCheck with controllerName tranche.dev/stage-safety for all of its flavors"},
		"for one flavor": {admission.Config{Leader: admission.LedByKueue}, func(q *kueue.ClusterQueue) {
			judged(q)
			q.Spec.AdmissionChecksStrategy.AdmissionChecks[0].OnFlavors = []kueue.ResourceFlavorReference{"a"}
		}, "for all of its flavors: add one to spec.admissionChecksStrategy"},
		"StrictFIFO": {admission.Config{Leader: admission.LedByKueue}, func(q *kueue.ClusterQueue) {
			judged(q)
			q.Spec.QueueingStrategy = kueue.StrictFIFO
		}, "set queueingStrategy: BestEffortFIFO"},
		"Greedy":         {admission.Config{Leader: admission.LedByKueue}, greedy, ""},
		"with the check": {admission.Config{Leader: admission.LedByKueue}, judged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &besideKueue{world: newWorld(t, tt.leader)}
			b.observeCheck()
			b.queue("q", "a: gpu=8; b: gpu=8", tt.change)
			got := b.engine.Protection("", types.NamespacedName{Namespace: "ns", Name: "q"}).Lacks
			if !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("unprotected because of %q, want %q", got, tt.want)
			}
		})
	}
}

// TestBesideKueueJudgeBeforeCheckIsKnown has Kueue add the AdmissionCheck to quota Workloads before the Engine observes it: nothing is Ready until then.
func TestBesideKueueJudgeBeforeCheckIsKnown(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "first", pair("gpu=4", "gpu=4")...)
	b.submit("q", "second", pair("gpu=4", "gpu=4")...)
	b.engine.Apply(admission.CheckGone{Name: safetyCheck})
	b.reserve("first-launcher", assigned("q", "launcher", "4"))
	b.reserve("second-launcher", assigned("q", "launcher", "4"))
	judge := func(name string) (answer admission.Answer, ok bool) {
		return b.engine.Judge(keyOf(name), types.UID("wl-"+name), safetyCheck)
	}
	for _, name := range []string{"first-launcher", "second-launcher"} {
		if answer, ok := judge(name); ok {
			t.Errorf("%s is judged %+v although the check is unknown", name, answer)
		}
	}
	b.observeCheck()
	if answer, ok := judge("first-launcher"); !ok || !answer.IsSafe {
		t.Errorf("the first is judged %+v, %t, want safe", answer, ok)
	}
	if answer, ok := judge("second-launcher"); !ok || answer.IsSafe {
		t.Errorf("the second is judged %+v, %t, want unsafe", answer, ok)
	}
}

// TestBesideKueueUnknownQueues keeps the stages of a JobSet closed until its LocalQueue and ClusterQueue exist.
func TestBesideKueueUnknownQueues(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("later", "first", pair("gpu=4", "gpu=4")...)
	b.submit("later", "single", job{name: "main", requests: "gpu=4"})
	localQueue := func(clusterQueue kueue.ClusterQueueReference) {
		b.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "later", UID: types.UID("lq-to-" + clusterQueue)}, Spec: kueue.LocalQueueSpec{ClusterQueue: clusterQueue},
		}})
		b.checkNothingIsDecided()
		b.wake()
	}
	waits := func(want string) {
		t.Helper()
		key := types.NamespacedName{Namespace: "ns", Name: "later"}
		for _, why := range []string{b.waiting["first"][0], b.engine.Protection("js-first", key).Missing} {
			if !strings.Contains(why, want) || (why == "") != (want == "") {
				t.Errorf("the JobSet waits because of %q, want %q", why, want)
			}
		}
		if gate := b.workloads[keyOf("first-launcher")].Annotations[apis.AdmissionGatedByAnnotation]; (gate == "") != (want == "") {
			t.Errorf("the gate is %q", gate)
		}
	}
	waits(`LocalQueue "later" does not exist in namespace "ns": create it`)
	if gate := b.workloads[keyOf("single-main")].Annotations[apis.AdmissionGatedByAnnotation]; gate != "" {
		t.Errorf("a JobSet of one stage keeps the gate %q: %v", gate, b.waiting)
	}
	localQueue("p")
	waits(`ClusterQueue "p" of LocalQueue "later" does not exist: ask your administrator to create it`)
	b.queue("p", "a: gpu=7", judged)
	b.checkNothingIsDecided()
	b.wake()
	if why := b.waiting["first"][0]; !strings.Contains(why, "could never run to its end in ClusterQueue p") {
		t.Errorf("the JobSet waits because of %q", why)
	}
	// The LocalQueue is replaced, and leads to another ClusterQueue.
	b.engine.Apply(admission.LocalQueueGone{Key: types.NamespacedName{Namespace: "ns", Name: "later"}})
	b.wake()
	waits(`LocalQueue "later" does not exist`)
	localQueue("q")
	waits("")
}

// TestBesideKueueUnknownPlan judges no stage of a plan that has not been observed.
func TestBesideKueueUnknownPlan(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "first", pair("gpu=4", "gpu=4")...)
	b.submit("q", "second", pair("gpu=4", "gpu=4")...)
	b.engine.Apply(admission.PlanObserved{UID: "js-first"})
	if answer := b.engine.MayOpen(admission.OpenRequest{JobSet: "js-first", LocalQueue: b.localQueueOf("first-launcher")}); answer.IsSafe || answer.Message == "" {
		t.Errorf("the first may open: %+v", answer)
	}
	b.reserve("first-launcher", assigned("q", "launcher", "4"))
	if answer, ok := b.engine.Judge(keyOf("first-launcher"), "wl-first-launcher"); ok {
		t.Errorf("the first is judged %+v", answer)
	}
	b.putPlan(b.jobSets["first"])
	b.judge("first-launcher")
	b.reserve("second-launcher", assigned("q", "launcher", "4"))
	if answer, ok := b.engine.Judge(keyOf("second-launcher"), "wl-second-launcher"); !ok || answer.IsSafe {
		t.Errorf("the second is judged %+v, %t, want unsafe", answer, ok)
	}
}
