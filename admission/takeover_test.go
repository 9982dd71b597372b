package admission_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// asking makes a ClusterQueue ask for Tranche, held for Kueue, whose manager has seen that.
func asking(q *kueue.ClusterQueue) {
	q.Annotations = map[string]string{apis.EngineAnnotation: apis.EngineTranche}
	q.Spec.StopPolicy = new(kueue.Hold)
	q.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse, Reason: kueue.ClusterQueueActiveReasonStopped}}
}

// change lets the Engine observe another state of a ClusterQueue.
func (b *besideKueue) changeQueue(name string, change func(*kueue.ClusterQueue)) {
	q := b.queues[name].DeepCopy()
	change(q)
	b.queues[name] = q
	b.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
}

// admitted returns the quota Workloads that the Engine admits now, and treats them as written.
func (b *besideKueue) admitted() []string {
	var names []string
	for _, d := range b.engine.Decide(b.now()) {
		if admit, ok := d.(admission.Admit); ok {
			names = append(names, admit.Stage.Name)
			b.reserve(admit.Stage.Name, &admit.Admission)
			b.engine.Settle(admit.ID)
		}
	}
	return names
}

// TestTakeover takes a cohort tree of two ClusterQueues: the Engine admits in it once both are taken, in the order in which Kueue would, and no longer
// when one of them is Kueue's again.
func TestTakeover(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("a", "x: gpu=4", inCohort("tree"), asking)
	b.queue("b", "x: gpu=0", inCohort("tree"))
	b.lone("a", "kueues", "gpu=3")
	b.reserve("kueues", assignedOf("a", "3"))
	b.lone("b", "first", "gpu=1")
	b.lone("b", "second", "gpu=1")
	b.checkNothingIsDecided()
	b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a", "b"}})
	if got := b.admitted(); got != nil {
		t.Fatalf("admitted %v in a tree that is taken in part", got)
	}
	tree := b.engine.Takeovers()[0]
	if want := "ClusterQueue b: it has no annotation tranche.dev/engine: Tranche"; tree.IsLed() || !strings.HasPrefix(tree.Problem(), want) {
		t.Fatalf("the problem is %q, want %q", tree.Problem(), want)
	}
	b.changeQueue("b", asking)
	if got := b.admitted(); got != nil {
		t.Fatalf("admitted %v before Kueue's manager was locked out", got)
	}
	b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a", "b"}})
	if got, want := b.admitted(), []string{"first"}; !slices.Equal(got, want) {
		t.Fatalf("admitted %v, want %v: what Kueue has admitted counts", got, want)
	}
	if !b.engine.Takeovers()[0].IsLed() {
		t.Fatal("the Engine does not lead")
	}
	b.remove("kueues")
	b.changeQueue("a", func(q *kueue.ClusterQueue) { q.Annotations = nil })
	if got := b.admitted(); got != nil {
		t.Fatalf("admitted %v after one ClusterQueue was handed back", got)
	}
	b.changeQueue("a", asking)
	b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a"}})
	b.changeQueue("b", func(q *kueue.ClusterQueue) { q.Annotations[apis.StopPolicyAnnotation] = "Hold" })
	if got := b.admitted(); got != nil {
		t.Fatalf("admitted %v in a ClusterQueue that is held for Tranche", got)
	}
	b.changeQueue("b", func(q *kueue.ClusterQueue) { delete(q.Annotations, apis.StopPolicyAnnotation) })
	if got, want := b.admitted(), []string{"second"}; !slices.Equal(got, want) {
		t.Fatalf("admitted %v, want %v", got, want)
	}
	b.engine.Apply(admission.QueueReturned{ClusterQueue: "b"})
	if b.engine.Takeovers()[0].IsLed() {
		t.Fatal("the Engine leads a tree of which a ClusterQueue was returned")
	}
}

// TestPlaceOfAJobSet admits in a queue that is taken by the creation of a JobSet, although its quota Workload was created after that of another job, as when
// the manager was down. For Kueue the other job would be first.
func TestPlaceOfAJobSet(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "x: gpu=1", asking)
	b.submit("q", "js", job{name: "main", requests: "gpu=1"})
	b.lone("q", "between", "gpu=1")
	late := b.workloads[keyOf("js-main")].DeepCopy()
	late.CreationTimestamp, late.Annotations = metav1.NewTime(b.now().Add(time.Minute)), nil
	b.put(late)
	b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"q"}})
	for _, want := range []string{"js-main", "between"} {
		if got := b.admitted(); !slices.Equal(got, []string{want}) {
			t.Fatalf("admitted %v, want %s", got, want)
		}
		b.remove(want)
	}
}

// TestTakeoverMisspelled: an annotation that names no engine is reported, and one that names Kueue is not.
func TestTakeoverMisspelled(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("a", "x: gpu=4", asking)
	for engine, want := range map[string]string{
		"tranche":        `ClusterQueue a: metadata.annotations: tranche.dev/engine is "tranche", must be Tranche or Kueue`,
		apis.EngineKueue: "", "": "",
	} {
		b.changeQueue("a", func(q *kueue.ClusterQueue) { q.Annotations = map[string]string{apis.EngineAnnotation: engine} })
		problem := ""
		for _, tree := range b.engine.Takeovers() {
			problem = tree.Problem()
		}
		if problem != want {
			t.Errorf("annotation %q: the problem is %q, want %q", engine, problem, want)
		}
	}
}

// TestTakeoverAgain hands a ClusterQueue back and takes it again: the reason why a stage waits was removed from its status, and is reported again.
func TestTakeoverAgain(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("a", "x: gpu=1", asking)
	b.lone("a", "waits", "gpu=2")
	reported := func() string {
		for _, d := range b.engine.Decide(b.now()) {
			if refuse, ok := d.(admission.Refuse); ok {
				return refuse.Stage.Name
			}
		}
		return ""
	}
	for range 2 {
		if b.engine.Leads(keyOf("waits")) {
			t.Fatal("the Engine leads before the ClusterQueue is taken")
		}
		b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a"}})
		if !b.engine.Leads(keyOf("waits")) {
			t.Fatal("the Engine does not lead in a ClusterQueue that is taken")
		}
		if got := reported(); got != "waits" {
			t.Fatalf("reported why %q waits, want the stage", got)
		}
		b.engine.Apply(admission.QueueReturned{ClusterQueue: "a"})
		if got := reported(); got != "" {
			t.Fatalf("reported why %s waits in a ClusterQueue of Kueue", got)
		}
	}
	if b.engine.Leads(keyOf("unknown")) {
		t.Error("the Engine leads where a stage is queued that it has not observed")
	}
}

// TestTakeoverAnswersSafetyOnly admits with the AdmissionCheck for stage safety Ready: no other controller answers it.
func TestTakeoverAnswersSafetyOnly(t *testing.T) {
	b := newBesideKueue(t)
	b.observeCheck()
	b.queue("a", "x: gpu=1", asking, judged)
	b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a"}})
	b.lone("a", "w", "gpu=1")
	for _, d := range b.engine.Decide(b.now()) {
		if admit, ok := d.(admission.Admit); ok {
			if len(admit.Passed) != 1 || admit.Passed[0] != safetyCheck || len(admit.Checks) != 0 {
				t.Errorf("passed %v, waits for %v", admit.Passed, admit.Checks)
			}
			return
		}
	}
	t.Error("nothing was admitted")
}

// TestTakeoverOfOneInactive lets one ClusterQueue of a tree that is taken get what Tranche does not support: the others go on, until it is handed back.
func TestTakeoverOfOneInactive(t *testing.T) {
	for name, change := range map[string]func(*kueue.ClusterQueue){
		"it is being deleted":                 func(q *kueue.ClusterQueue) { q.DeletionTimestamp = new(metav1.Now()) },
		"AdmissionCheck provisioning":         func(q *kueue.ClusterQueue) { checkedBy("provisioning")(q) },
		"ResourceFlavor(s) gone do not exist": func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors[0].Name = "gone" },
		`tranche.dev/stop-policy is "Stop"`:   func(q *kueue.ClusterQueue) { q.Annotations[apis.StopPolicyAnnotation] = "Stop" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBesideKueue(t)
			b.queue("a", "x: gpu=4", inCohort("tree"), asking)
			b.queue("b", "x: gpu=4", inCohort("tree"), asking)
			b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a", "b"}})
			b.changeQueue("a", change)
			b.lone("a", "waits", "gpu=1")
			b.lone("b", "runs", "gpu=1")
			if got, want := b.admitted(), []string{"runs"}; !slices.Equal(got, want) {
				t.Errorf("admitted %v, want %v", got, want)
			}
			tree := b.engine.Takeovers()[0]
			if tree.Problem() != "" || !tree.IsLed() || len(tree.Inactive["a"]) != 1 || !strings.Contains(tree.Inactive["a"][0], name) || len(tree.Inactive["b"]) > 0 {
				t.Errorf("%+v", tree)
			}
			b.changeQueue("b", func(q *kueue.ClusterQueue) { q.Annotations = nil })
			if tree := b.engine.Takeovers()[0]; tree.Problem() == "" {
				t.Errorf("one ClusterQueue was handed back: %+v", tree)
			}
		})
	}
}

func assignedOf(queue, gpus string) *kueue.Admission {
	a := assigned(queue, "main", gpus)
	for r := range a.PodSetAssignments[0].Flavors {
		a.PodSetAssignments[0].Flavors[r] = "x"
	}
	return a
}

// TestTakeoverObstacles names what keeps Tranche from admitting, and the cure.
func TestTakeoverObstacles(t *testing.T) {
	for want, change := range map[string]func(*kueue.ClusterQueue){
		"":                        judged,
		"spec.stopPolicy is None": func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = nil },
		"spec.stopPolicy is HoldAndDrain, which Tranche does not support": func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.HoldAndDrain) },
		`tranche.dev/engine is "tranche"`:                                 func(q *kueue.ClusterQueue) { q.Annotations[apis.EngineAnnotation] = "tranche" },
		`tranche.dev/stop-policy is "Stop"`:                               func(q *kueue.ClusterQueue) { q.Annotations[apis.StopPolicyAnnotation] = "Stop" },
		"spec.concurrentAdmissionPolicy":                                  func(q *kueue.ClusterQueue) { q.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{} },
		"AdmissionCheck provisioning":                                     func(q *kueue.ClusterQueue) { checkedBy("provisioning")(q) },
		"AdmissionCheck elsewhere: ":                                      func(q *kueue.ClusterQueue) { checkedBy("elsewhere")(q) },
		"remove spec.topologyName from ResourceFlavor(s) racks":           func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors[0].Name = "racks" },
		"ResourceFlavor(s) gone do not exist":                             func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors[0].Name = "gone" },
		"spec.namespaceSelector":                                          func(q *kueue.ClusterQueue) { q.Spec.NamespaceSelector = brokenSelector() },
		"has 247 characters, and only 246 fit":                            func(q *kueue.ClusterQueue) { q.Spec.CohortName = kueue.CohortReference(strings.Repeat("c", 247)) },
		"parents of Cohorts form a cycle: own":                            func(q *kueue.ClusterQueue) { q.Spec.CohortName = "own" },
	} {
		b := newBesideKueue(t)
		b.engine.Apply(admission.CohortObserved{Cohort: &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: kueue.CohortSpec{ParentName: "own"}}})
		b.engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{
			ObjectMeta: metav1.ObjectMeta{Name: "racks"}, Spec: kueue.ResourceFlavorSpec{TopologyName: new(kueue.TopologyReference("rows"))},
		}})
		b.engine.Apply(admission.CheckObserved{AdmissionCheck: &kueue.AdmissionCheck{
			ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName},
			Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}},
		}})
		b.queue("q", "x: gpu=4", asking, change)
		tree := b.engine.TakeoverOf("q")
		if problem := tree.Problem(); want == "" && problem != "" || !strings.Contains(problem, want) {
			t.Errorf("the problem is %q, want %q", problem, want)
		}
	}
	b := newBesideKueue(t)
	for length, isLockable := range map[int]bool{247: true, 248: false} {
		name := strings.Repeat("q", length)
		b.queue(name, "x: gpu=4", asking)
		if tree := b.engine.TakeoverOf(name); (tree.Problem() == "") != isLockable {
			t.Errorf("with %d characters the problem is %q", length, tree.Problem())
		}
	}
	b.queue("q", "x: gpu=4", asking, func(q *kueue.ClusterQueue) { q.Generation = 2 })
	if tree := b.engine.TakeoverOf("q"); !slices.Equal(tree.Unconfirmed, []string{"q"}) {
		t.Errorf("confirmed by a condition of an older generation: %+v", tree)
	}
}

func checkedBy(name kueue.AdmissionCheckReference) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: name}}}
	}
}

func brokenSelector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Never"}}}
}

// TestReservationsOfTakenQueues: where Kueue admits, no stage is due. Once a ClusterQueue is taken, the stage that has waited for long is, until the ClusterQueue is
// handed back.
func TestReservationsOfTakenQueues(t *testing.T) {
	b := newBesideKueue(t)
	b.config.Reservation = admission.Reservation{IsEnabled: true}
	b.restart()
	b.queue("a", "x: gpu=4", asking)
	b.lone("a", "runs", "gpu=2")
	b.reserve("runs", assignedOf("a", "2"))
	b.lone("a", "large", "gpu=4")
	b.lone("a", "small", "gpu=2")
	b.checkNothingIsDecided()
	for range 2 {
		b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"a"}})
		if got := b.admitted(); got != nil {
			t.Fatalf("admitted %v, which delays the stage that is due", got)
		}
		if got := b.engine.Explain(keyOf("small")); len(got) == 0 || got[0].Check != "DelaysNone" {
			t.Fatalf("the small stage waits because of %v", got)
		}
		b.engine.Apply(admission.QueueReturned{ClusterQueue: "a"})
		b.checkNothingIsDecided()
	}
}

// TestRefusalsAfterReturn takes a ClusterQueue again: the refusals of all stages are emitted again, also of equal ones.
func TestRefusalsAfterReturn(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "x: gpu=0", asking)
	b.lone("q", "first", "gpu=1")
	b.lone("q", "second", "gpu=1")
	for range 2 {
		b.engine.Apply(admission.QueuesTaken{ClusterQueues: []string{"q"}})
		var refused []string
		for _, d := range b.engine.Decide(b.now()) {
			if refuse, ok := d.(admission.Refuse); ok {
				refused = append(refused, refuse.Stage.Name)
			}
		}
		if want := []string{"first", "second"}; !slices.Equal(refused, want) {
			t.Fatalf("refused %v, want %v", refused, want)
		}
		b.engine.Apply(admission.QueueReturned{ClusterQueue: "q"})
		b.checkNothingIsDecided()
	}
}
