package admission_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// A followed field is one whose changes cause another check of pending stages.
type followed struct {
	config admission.Config
	// before sets up a pending quota Workload "p" that the field keeps from being admitted, and change changes the field.
	before, change func(*world)
	// instead of being admitted, p preempts: then another gives way.
	preempts bool
	// why no change of the field can make a pending stage fit. Then the test skips it.
	why string
}

// fieldsOf lists the fields with values of their own below a type, as in spec.resourceGroups[].flavors[].name. Types of other packages than
// Kueue's are values.
func fieldsOf(t reflect.Type, path string) []string {
	switch {
	case t.Kind() == reflect.Pointer:
		return fieldsOf(t.Elem(), path)
	case t.Kind() == reflect.Slice && strings.Contains(t.Elem().PkgPath(), "kueue") && t.Elem().Kind() == reflect.Struct:
		return fieldsOf(t.Elem(), path+"[]")
	case t.Kind() != reflect.Struct || !strings.Contains(t.PkgPath(), "kueue"):
		return []string{path}
	}
	var all []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, fieldsOf(field.Type, path+"."+name)...)
	}
	return all
}

// mutableFields are those of the objects that administrators change.
func mutableFields() []string {
	all := []string{
		"Namespace.metadata.labels", "ClusterQueue.metadata.annotations[" + apis.StageAdmissionAnnotation + "]", "AdmissionCheck.status.conditions",
	}
	for path, object := range map[string]any{
		"ClusterQueue.spec": kueue.ClusterQueueSpec{}, "Cohort.spec": kueue.CohortSpec{}, "LocalQueue.spec": kueue.LocalQueueSpec{},
		"ResourceFlavor.spec": kueue.ResourceFlavorSpec{}, "AdmissionCheck.spec": kueue.AdmissionCheckSpec{},
	} {
		all = append(all, fieldsOf(reflect.TypeOf(object), path)...)
	}
	for kind, object := range map[string]any{"WorkloadPriorityClass": kueue.WorkloadPriorityClass{}, "PriorityClass": schedulingv1.PriorityClass{}} {
		for field := range reflect.TypeOf(object).Fields() {
			if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" && name != "metadata" {
				all = append(all, kind+"."+name)
			}
		}
	}
	return all
}

// TestEveryFieldIsFollowed: whatever an administrator changes, a pending stage that fits now is admitted without another event.
func TestEveryFieldIsFollowed(t *testing.T) {
	table := map[string]followed{}
	for _, part := range []map[string]followed{clusterQueueFields(), quotaFields(), preemptionFields(), cohortFields(), otherFields()} {
		maps.Copy(table, part)
	}
	fields := mutableFields()
	for _, field := range fields {
		tc, isThere := table[field]
		if !isThere {
			t.Errorf("%s is not in the table: say how a change of it lets a pending stage be admitted, or why it cannot", field)
			continue
		}
		t.Run(field, func(t *testing.T) {
			if tc.why == "" {
				tc.try(t)
			}
		})
	}
	for field := range table {
		if !slices.Contains(fields, field) {
			t.Errorf("%s is in the table and in no type", field)
		}
	}
}

func (tc *followed) try(t *testing.T) {
	t.Helper()
	w := newWorld(t, tc.config)
	tc.before(w)
	for range 2 {
		// It is not admitted when time passes, either.
		if got := w.decide(); slices.Contains(got, "p") {
			t.Fatalf("p is admitted before the change")
		}
		w.clock++
	}
	if len(w.evictions) > 0 {
		t.Fatalf("evicted before the change: %v", w.evictions)
	}
	tc.change(w)
	got := w.decide()
	switch {
	case tc.preempts && len(w.evictions) == 0:
		t.Errorf("p preempts nothing after the change: %v", w.refusals)
	case !tc.preempts && !slices.Contains(got, "p"):
		t.Errorf("admitted %v after the change, want p: %v", got, w.refusals)
	}
}

// changeQueue changes the spec of a ClusterQueue that exists.
func (w *world) changeQueue(name string, change func(*kueue.ClusterQueue)) {
	q := w.queues[name].DeepCopy()
	q.Generation++
	change(q)
	w.queues[name] = q
	w.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
}

// queueing queues p after the ClusterQueue "q" was changed from the usual one with 4 GPUs.
func queueing(change func(*kueue.ClusterQueue), requests string, p ...func(*kueue.Workload)) func(*world) {
	return func(w *world) {
		w.queue("q", "a100: gpu=4", change)
		w.lone("q", "p", requests, p...)
	}
}

func to(change func(*kueue.ClusterQueue)) func(*world) {
	return func(w *world) { w.changeQueue("q", change) }
}

func usual(*kueue.ClusterQueue) {}

func onH100(wl *kueue.Workload) {
	wl.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"flavor": "h100"}
}

func quotaOf(q *kueue.ClusterQueue) *kueue.ResourceQuota {
	return &q.Spec.ResourceGroups[0].Flavors[0].Resources[0]
}

func amount(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.DecimalSI) }

func clusterQueueFields() map[string]followed {
	const notSupported = "not supported: a ClusterQueue that has the policy is not active"
	removePolicy := followed{
		before: queueing(func(q *kueue.ClusterQueue) { q.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{} }, "gpu=1"),
		change: to(func(q *kueue.ClusterQueue) { q.Spec.ConcurrentAdmissionPolicy = nil }),
	}
	order := "decides only which of several flavors is taken that would all do"
	return map[string]followed{
		"ClusterQueue.metadata.annotations[" + apis.StageAdmissionAnnotation + "]": {
			before: func(w *world) {
				w.queue("q", "a100: gpu=4")
				w.submit("q", "a", job{name: "ps", requests: "gpu=2"}, job{name: "train", requests: "gpu=2", after: []string{"ps Ready"}})
				w.wantAdmitted("a-ps")
				w.submit("q", "b", job{name: "ps", requests: "gpu=2"}, job{name: "train", requests: "gpu=2", after: []string{"ps Ready"}})
				w.lone("q", "p", "gpu=9")
			},
			change: func(w *world) {
				w.changeQueue("q", func(q *kueue.ClusterQueue) {
					q.Annotations = map[string]string{apis.StageAdmissionAnnotation: admission.Greedy}
				})
				if got := w.decide(); !slices.Equal(got, []string{"b-ps"}) {
					w.t.Fatalf("admitted %v, want b-ps", got)
				}
				w.changeQueue("q", func(q *kueue.ClusterQueue) { quotaOf(q).NominalQuota = *amount(99) })
			},
		},
		"ClusterQueue.spec.cohortName": {
			before: func(w *world) {
				w.queue("lender", "a100: gpu=4", inCohort("c"))
				queueing(usual, "gpu=6")(w)
			},
			change: to(inCohort("c")),
		},
		"ClusterQueue.spec.queueingStrategy": {
			before: func(w *world) {
				queueing(func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO }, "gpu=1", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(-1)) })(w)
				w.lone("q", "runs", "gpu=1", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(1)) })
				w.lone("q", "head", "gpu=4")
			},
			change: to(func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.BestEffortFIFO }),
		},
		"ClusterQueue.spec.namespaceSelector": {
			before: queueing(func(q *kueue.ClusterQueue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
			}, "gpu=1"),
			change: to(func(q *kueue.ClusterQueue) { q.Spec.NamespaceSelector = &metav1.LabelSelector{} }),
		},
		"ClusterQueue.spec.flavorFungibility.whenCanBorrow":  {why: order},
		"ClusterQueue.spec.flavorFungibility.whenCanPreempt": {why: order},
		"ClusterQueue.spec.flavorFungibility.preference":     {why: order},
		"ClusterQueue.spec.admissionChecksStrategy.admissionChecks[].name": {
			before: func(w *world) {
				w.check("there", metav1.ConditionTrue)
				queueing(withChecks(kueue.AdmissionCheckStrategyRule{Name: "missing"}), "gpu=1")(w)
			},
			change: to(withChecks(kueue.AdmissionCheckStrategyRule{Name: "there"})),
		},
		"ClusterQueue.spec.admissionChecksStrategy.admissionChecks[].onFlavors": {
			before: func(w *world) {
				queueing(withChecks(w.nineChecks()...), "gpu=1")(w)
			},
			change: func(w *world) {
				rules := w.nineChecks()
				rules[0].OnFlavors = []kueue.ResourceFlavorReference{"h100"}
				w.changeQueue("q", withChecks(rules...))
			},
		},
		"ClusterQueue.spec.stopPolicy": {
			before: queueing(func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.Hold) }, "gpu=1"),
			change: to(func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.None) }),
		},
		"ClusterQueue.spec.fairSharing.weight": {
			config: admission.Config{FairSharing: true}, preempts: true,
			before: func(w *world) {
				w.cohort("c", "", 6)
				for _, name := range []string{"q", "r"} {
					w.queue(name, "a100: gpu=0", inCohort("c"), reclaimingQueue(kueue.PreemptionPolicyAny))
					for _, n := range []string{"1", "2", "3"} {
						w.lone(name, name+n, "gpu=1")
					}
				}
				w.decide()
				w.lone("q", "p", "gpu=1")
			},
			change: to(withWeight("3")),
		},
		"ClusterQueue.spec.admissionScope.admissionMode": {
			config: byUsage(), before: func(w *world) { w.usedBy("other", "q", usual) }, change: to(usageBased),
		},
		"ClusterQueue.spec.concurrentAdmissionPolicy.migration.mode":                                 removePolicy,
		"ClusterQueue.spec.concurrentAdmissionPolicy.migration.constraints.lastAcceptableFlavorName": {why: notSupported},
	}
}

func withChecks(rules ...kueue.AdmissionCheckStrategyRule) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: rules}
	}
}

// nineChecks are one more than a quota Workload can pass.
func (w *world) nineChecks() []kueue.AdmissionCheckStrategyRule {
	var rules []kueue.AdmissionCheckStrategyRule
	for name := range strings.FieldsSeq("a b c d e f g h i") {
		w.check(name, metav1.ConditionTrue)
		rules = append(rules, kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(name)})
	}
	return rules
}

func (w *world) check(name string, active metav1.ConditionStatus) {
	w.engine.Apply(admission.CheckObserved{AdmissionCheck: &kueue.AdmissionCheck{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("check-" + name)},
		Status:     kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: active}}},
	}})
}

func byUsage() admission.Config {
	return admission.Config{AdmissionFairSharing: &admission.UsagePolicy{UsageHalfLifeTime: time.Hour, UsageSamplingInterval: time.Minute}}
}

// usedBy creates a strict ClusterQueue in which a stage of a LocalQueue with much past usage waits for all of the quota, before p of a LocalQueue
// with less usage.
func (w *world) usedBy(busy, idle string, change func(*kueue.ClusterQueue)) {
	w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO }, change)
	w.localQueue("other", "q", "")
	w.lone(busy, "runs", "gpu=2")
	w.decide()
	w.clock += 600
	w.lone(busy, "head", "gpu=4")
	w.lone(idle, "p", "gpu=1")
}

// quotaFields are those of resource groups of ClusterQueues.
func quotaFields() map[string]followed {
	const groups = "ClusterQueue.spec.resourceGroups[]"
	addsCPU := followed{
		before: queueing(usual, "cpu=1"),
		change: to(func(q *kueue.ClusterQueue) {
			q.Spec.ResourceGroups[0].CoveredResources = append(q.Spec.ResourceGroups[0].CoveredResources, "cpu")
			resources := &q.Spec.ResourceGroups[0].Flavors[0].Resources
			*resources = append(*resources, kueue.ResourceQuota{Name: "cpu", NominalQuota: *amount(1)})
		}),
	}
	return map[string]followed{
		groups + ".coveredResources":           addsCPU,
		groups + ".flavors[].resources[].name": addsCPU,
		groups + ".flavors[].name": {
			before: func(w *world) {
				w.engine.Apply(admission.FlavorObserved{Flavor: newFlavor("h100")})
				w.queue("q", "h100: gpu=4; a100: gpu=4")
				w.changeQueue("q", func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors = q.Spec.ResourceGroups[0].Flavors[1:] })
				w.engine.Apply(admission.FlavorObserved{Flavor: withTaint(newFlavor("a100"))})
				w.lone("q", "p", "gpu=1", onH100)
			},
			change: to(func(q *kueue.ClusterQueue) { q.Spec.ResourceGroups[0].Flavors[0].Name = "h100" }),
		},
		groups + ".flavors[].resources[].nominalQuota": {
			before: queueing(usual, "gpu=5"), change: to(func(q *kueue.ClusterQueue) { quotaOf(q).NominalQuota = *amount(5) }),
		},
		groups + ".flavors[].resources[].borrowingLimit": {
			before: func(w *world) {
				w.queue("lender", "a100: gpu=4", inCohort("c"))
				queueing(func(q *kueue.ClusterQueue) { inCohort("c")(q); withLimits(0, -1)(q) }, "gpu=5")(w)
			},
			change: to(withLimits(1, -1)),
		},
		groups + ".flavors[].resources[].lendingLimit": {
			before: func(w *world) {
				w.queue("lender", "a100: gpu=4", inCohort("c"), withLimits(-1, 0))
				queueing(inCohort("c"), "gpu=5")(w)
			},
			change: func(w *world) { w.changeQueue("lender", withLimits(-1, 1)) },
		},
	}
}

func withTaint(f *kueue.ResourceFlavor) *kueue.ResourceFlavor {
	f.Spec.NodeTaints = []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoSchedule}}
	return f
}

func reclaimingQueue(policy kueue.PreemptionPolicy) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		if q.Spec.Preemption == nil {
			q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyNever}
		}
		q.Spec.Preemption.ReclaimWithinCohort = policy
	}
}

func borrowingWithin(b *kueue.BorrowWithinCohort) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) {
		reclaimingQueue(kueue.PreemptionPolicyAny)(q)
		q.Spec.Preemption.BorrowWithinCohort = b
	}
}

func preemptionFields() map[string]followed {
	const preemption = "ClusterQueue.spec.preemption."
	// borrower holds the quota that p could use beside the nominal quota of its own ClusterQueue.
	borrower := func(change func(*kueue.ClusterQueue)) func(*world) {
		return func(w *world) {
			w.queue("lender", "a100: gpu=4", inCohort("c"))
			w.queue("borrower", "a100: gpu=0", inCohort("c"))
			w.lone("borrower", "low", "gpu=4")
			w.decide()
			w.queue("q", "a100: gpu=2", inCohort("c"), change)
			w.lone("q", "p", "gpu=3", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(5)) })
		}
	}
	policy := func(policy kueue.BorrowWithinCohortPolicy, threshold int32) func(*kueue.ClusterQueue) {
		return borrowingWithin(&kueue.BorrowWithinCohort{Policy: policy, MaxPriorityThreshold: &threshold})
	}
	return map[string]followed{
		preemption + "withinClusterQueue": {
			preempts: true,
			before: func(w *world) {
				w.queue("q", "a100: gpu=4")
				w.lone("q", "low", "gpu=4")
				w.decide()
				w.lone("q", "p", "gpu=1", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(5)) })
			},
			change: to(func(q *kueue.ClusterQueue) {
				q.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
			}),
		},
		preemption + "reclaimWithinCohort": {
			preempts: true,
			before: func(w *world) {
				w.queue("q", "a100: gpu=4", inCohort("c"))
				w.queue("borrower", "a100: gpu=0", inCohort("c"))
				w.lone("borrower", "low", "gpu=4")
				w.decide()
				w.lone("q", "p", "gpu=1")
			},
			change: to(reclaimingQueue(kueue.PreemptionPolicyAny)),
		},
		preemption + "borrowWithinCohort.policy": {
			preempts: true, before: borrower(policy(kueue.BorrowWithinCohortPolicyNever, 1)), change: to(policy(kueue.BorrowWithinCohortPolicyLowerPriority, 1)),
		},
		preemption + "borrowWithinCohort.maxPriorityThreshold": {
			preempts: true, before: borrower(policy(kueue.BorrowWithinCohortPolicyLowerPriority, -1)), change: to(policy(kueue.BorrowWithinCohortPolicyLowerPriority, 1)),
		},
	}
}
