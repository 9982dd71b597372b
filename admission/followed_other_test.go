package admission_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func cohortFields() map[string]followed {
	const groups = "Cohort.spec.resourceGroups[]"
	// cohort makes the Cohort "c" of q with a quota.
	cohort := func(flavor kueue.ResourceFlavorReference, quota kueue.ResourceQuota, change ...func(*kueue.Cohort)) func(*world) {
		return func(w *world) {
			c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "cohort-c"}}
			c.Spec.ResourceGroups = []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{quota.Name}, Flavors: []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{quota}}},
			}}
			for _, f := range change {
				f(c)
			}
			w.engine.Apply(admission.CohortObserved{Cohort: c})
		}
	}
	below := func(first func(*world)) func(*world) {
		return func(w *world) {
			first(w)
			queueing(inCohort("c"), "gpu=5")(w)
		}
	}
	gpus := func(n int64) kueue.ResourceQuota { return kueue.ResourceQuota{Name: gpu, NominalQuota: *amount(n)} }
	limited := func(borrowing, lending *resource.Quantity) kueue.ResourceQuota {
		return kueue.ResourceQuota{Name: gpu, NominalQuota: *amount(0), BorrowingLimit: borrowing, LendingLimit: lending}
	}
	under := func(c *kueue.Cohort) { c.Spec.ParentName = "root" }
	renamed := followed{before: below(cohort("a100", kueue.ResourceQuota{Name: "cpu", NominalQuota: *amount(4)})), change: cohort("a100", gpus(4))}
	return map[string]followed{
		"Cohort.spec.parentName": {
			before: below(func(w *world) { w.cohort("root", "", 4); w.cohort("c", "", 0) }), change: func(w *world) { w.cohort("c", "root", 0) },
		},
		groups + ".coveredResources":           renamed,
		groups + ".flavors[].resources[].name": renamed,
		groups + ".flavors[].name":             {before: below(cohort("h100", gpus(4))), change: cohort("a100", gpus(4))},
		groups + ".flavors[].resources[].nominalQuota": {
			before: below(cohort("a100", gpus(0))), change: cohort("a100", gpus(1)),
		},
		groups + ".flavors[].resources[].borrowingLimit": {
			before: below(func(w *world) { w.cohort("root", "", 4); cohort("a100", limited(amount(0), nil), under)(w) }),
			change: cohort("a100", limited(amount(1), nil), under),
		},
		groups + ".flavors[].resources[].lendingLimit": {
			before: func(w *world) {
				cohort("a100", kueue.ResourceQuota{Name: gpu, NominalQuota: *amount(4), LendingLimit: amount(0)}, under)(w)
				queueing(inCohort("root"), "gpu=5")(w)
			},
			change: cohort("a100", kueue.ResourceQuota{Name: gpu, NominalQuota: *amount(4), LendingLimit: amount(1)}, under),
		},
		"Cohort.spec.fairSharing.weight": {
			config: admission.Config{FairSharing: true}, preempts: true,
			before: func(w *world) {
				w.cohort("root", "", 6)
				w.cohort("c", "root", 0)
				w.cohort("d", "root", 0)
				for name, cohort := range map[string]kueue.CohortReference{"q": "c", "r": "d"} {
					w.queue(name, "a100: gpu=0", inCohort(cohort), reclaiming(kueue.PreemptionPolicyAny))
					for _, n := range []string{"1", "2", "3"} {
						w.lone(name, name+n, "gpu=1")
					}
				}
				w.decide()
				w.lone("q", "p", "gpu=1")
			},
			change: func(w *world) {
				c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "cohort-c"}}
				c.Spec.ParentName, c.Spec.FairSharing = "root", &kueue.FairSharing{Weight: amount(3)}
				w.engine.Apply(admission.CohortObserved{Cohort: c})
			},
		},
	}
}

func otherFields() map[string]followed {
	localQueue := func(change func(*kueue.LocalQueue)) func(*world) {
		return func(w *world) {
			q := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", UID: "lq-q"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q"}}
			change(q)
			w.engine.Apply(admission.LocalQueueObserved{LocalQueue: q})
		}
	}
	flavor := func(change func(*kueue.ResourceFlavor)) func(*world) {
		return func(w *world) {
			f := newFlavor("a100")
			change(f)
			w.engine.Apply(admission.FlavorObserved{Flavor: f})
		}
	}
	then := func(first, second func(*world)) func(*world) {
		return func(w *world) { first(w); second(w) }
	}
	const notDecided = "for the controller of the check to read"
	const immutable = "the API server does not let it be changed"
	return map[string]followed{
		"LocalQueue.spec.clusterQueue": {
			before: then(queueing(usual, "gpu=1"), localQueue(func(q *kueue.LocalQueue) { q.Spec.ClusterQueue = "elsewhere" })), change: localQueue(func(*kueue.LocalQueue) {}),
		},
		"LocalQueue.spec.stopPolicy": {
			before: then(queueing(usual, "gpu=1"), localQueue(func(q *kueue.LocalQueue) { q.Spec.StopPolicy = new(kueue.Hold) })), change: localQueue(func(*kueue.LocalQueue) {}),
		},
		"LocalQueue.spec.fairSharing.weight": {
			config: byUsage(),
			before: func(w *world) {
				w.usedBy("other", "q", usageBased)
				// By its past usage, q comes after the other.
				localQueue(func(q *kueue.LocalQueue) {
					q.Spec.FairSharing = &kueue.FairSharing{Weight: resource.NewMilliQuantity(1, resource.DecimalSI)}
				})(w)
				w.lone("q", "runs-too", "gpu=1", func(wl *kueue.Workload) {
					reserve(wl, &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
						Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: "a100"}, ResourceUsage: amounts("gpu=1"), Count: new(int32(1)),
					}}})
				})
			},
			change: localQueue(func(q *kueue.LocalQueue) { q.Spec.FairSharing = &kueue.FairSharing{Weight: amount(1000)} }),
		},
		"ResourceFlavor.spec.nodeLabels": {
			before: queueing(usual, "gpu=1", onH100), change: flavor(func(f *kueue.ResourceFlavor) { f.Spec.NodeLabels["flavor"] = "h100" }),
		},
		"ResourceFlavor.spec.nodeTaints": {
			before: then(queueing(usual, "gpu=1"), flavor(func(f *kueue.ResourceFlavor) { withTaint(f) })), change: flavor(func(*kueue.ResourceFlavor) {}),
		},
		"ResourceFlavor.spec.tolerations": {
			before: then(queueing(usual, "gpu=1"), flavor(func(f *kueue.ResourceFlavor) { withTaint(f) })),
			change: flavor(func(f *kueue.ResourceFlavor) {
				withTaint(f).Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			}),
		},
		"ResourceFlavor.spec.topologyName": {
			before: then(queueing(usual, "gpu=1"), flavor(func(f *kueue.ResourceFlavor) { f.Spec.TopologyName = new(kueue.TopologyReference("racks")) })),
			change: flavor(func(*kueue.ResourceFlavor) {}),
		},
		"AdmissionCheck.spec.controllerName":      {why: notDecided},
		"AdmissionCheck.spec.parameters.apiGroup": {why: notDecided},
		"AdmissionCheck.spec.parameters.kind":     {why: notDecided},
		"AdmissionCheck.spec.parameters.name":     {why: notDecided},
		"AdmissionCheck.status.conditions": {
			before: then(func(w *world) { w.check("one", metav1.ConditionFalse) }, queueing(withChecks(kueue.AdmissionCheckStrategyRule{Name: "one"}), "gpu=1")),
			change: func(w *world) { w.check("one", metav1.ConditionTrue) },
		},
		"Namespace.metadata.labels": {
			before: queueing(func(q *kueue.ClusterQueue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
			}, "gpu=1"),
			change: func(w *world) {
				w.engine.Apply(admission.NamespaceObserved{Name: "ns", Labels: map[string]string{"team": "b"}})
			},
		},
		"WorkloadPriorityClass.value": {
			// Controllers copy it to the quota Workloads of the class.
			before: func(w *world) {
				queueing(func(q *kueue.ClusterQueue) { q.Spec.QueueingStrategy = kueue.StrictFIFO }, "gpu=1", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(-1)) })(w)
				w.lone("q", "runs", "gpu=1", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(1)) })
				w.lone("q", "head", "gpu=4")
			},
			change: func(w *world) { w.change("p", func(wl *kueue.Workload) { wl.Spec.Priority = new(int32(1)) }) },
		},
		"WorkloadPriorityClass.description": {why: "a text for readers"},
		"PriorityClass.value":               {why: immutable},
		"PriorityClass.preemptionPolicy":    {why: immutable},
		"PriorityClass.globalDefault":       {why: "the priority of new pods: controllers write it into quota Workloads as that of a class"},
		"PriorityClass.description":         {why: "a text for readers"},
	}
}
