package admission_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// furnish creates a cluster in which a stage can be admitted.
func (h *history) furnish() {
	for _, name := range []string{"x", "y", "z"} {
		h.observeFlavor(name)
	}
	for _, name := range []string{"n", "m"} {
		h.observeNamespace(name)
	}
	h.observeCheck("check")
	h.observeCohort("a")
	h.observeCohort("b")
	for i := range 1 + h.draw("queues", 3) {
		h.observeQueue(fmt.Sprintf("q%d", i))
	}
	for _, name := range []string{"n", "m"} {
		h.observeLocalQueue(types.NamespacedName{Namespace: name, Name: "l"})
		h.observeLocalQueue(types.NamespacedName{Namespace: name, Name: "k"})
	}
	for range h.draw("workloads", 8) {
		h.submit()
	}
}

// reconfigure lets an administrator change an object.
func (h *history) reconfigure() {
	gone := h.chance("gone", 6)
	switch h.draw("kind", 9) {
	case 0:
		name := pick(h, "flavor", "x", "y", "z")
		if gone {
			delete(h.twin.flavors, name)
			h.tell(admission.FlavorGone{Name: name})
			return
		}
		h.observeFlavor(name)
	case 1:
		if gone {
			delete(h.twin.checks, "check")
			h.tell(admission.CheckGone{Name: "check"})
			return
		}
		h.observeCheck("check")
	case 2, 3:
		name := pick(h, "cohort", "a", "b", "c", "d")
		if gone {
			delete(h.twin.cohorts, name)
			h.tell(admission.CohortGone{Name: name})
			return
		}
		h.observeCohort(name)
	case 4, 5, 6:
		name := pick(h, "queue", "q0", "q1", "q2", "q3")
		if gone {
			delete(h.twin.queues, name)
			h.tell(admission.ClusterQueueGone{Name: name})
			return
		}
		h.observeQueue(name)
	default:
		h.reconfigureNamespace(gone)
	}
}

func (h *history) reconfigureNamespace(gone bool) {
	namespace := pick(h, "namespace", "n", "m")
	key := types.NamespacedName{Namespace: namespace, Name: pick(h, "local queue", "l", "k", "")}
	switch {
	case key.Name == "" && gone:
		delete(h.twin.namespaces, namespace)
		h.tell(admission.NamespaceGone{Name: namespace})
	case key.Name == "":
		h.observeNamespace(namespace)
	case gone:
		delete(h.twin.localQueues, key)
		h.tell(admission.LocalQueueGone{Key: key})
	default:
		h.observeLocalQueue(key)
	}
}

func (h *history) observeFlavor(name string) {
	f := &kueue.ResourceFlavor{ObjectMeta: h.meta(name)}
	if !h.chance("unlabelled", 5) {
		f.Spec.NodeLabels = map[string]string{"type": pick(h, "type", name, name, "x"), "zone": pick(h, "zone", "1", "2")}
	}
	if h.chance("tainted", 4) {
		f.Spec.NodeTaints = []corev1.Taint{{Key: "spot", Value: "yes", Effect: pick(h, "effect", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)}}
		if h.chance("tolerates", 3) {
			f.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
		}
	}
	h.twin.flavors[name] = f
	h.tell(admission.FlavorObserved{Flavor: f})
}

func (h *history) observeCheck(name string) {
	c := &kueue.AdmissionCheck{ObjectMeta: h.meta(name)}
	if !h.chance("inactive", 4) {
		c.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	}
	h.twin.checks[name] = c
	h.tell(admission.CheckObserved{AdmissionCheck: c})
}

func (h *history) observeNamespace(name string) {
	labels := map[string]string{"team": pick(h, "team", "a", "a", "a", "b")}
	h.twin.namespaces[name] = labels
	h.tell(admission.NamespaceObserved{Name: name, Labels: labels})
}

func (h *history) observeCohort(name string) {
	c := &kueue.Cohort{ObjectMeta: h.meta(name)}
	c.Spec.ParentName = pick[kueue.CohortReference](h, "parent", "", "", "a", "b", "c", "d")
	if h.chance("has quota", 3) {
		c.Spec.ResourceGroups = h.groups(3)
	}
	c.Spec.FairSharing = h.weight()
	h.twin.cohorts[name] = c
	h.tell(admission.CohortObserved{Cohort: c})
}

func (h *history) observeLocalQueue(key types.NamespacedName) {
	lq := &kueue.LocalQueue{ObjectMeta: h.meta(key.Name)}
	lq.Namespace, lq.UID = key.Namespace, types.UID(key.String())
	lq.Spec.ClusterQueue = pick[kueue.ClusterQueueReference](h, "target", "q0", "q0", "q0", "q1", "q1", "q2", "q3")
	lq.Spec.StopPolicy = h.stopPolicy()
	h.twin.localQueues[key] = lq
	h.tell(admission.LocalQueueObserved{LocalQueue: lq})
}

func (h *history) stopPolicy() *kueue.StopPolicy {
	if !h.chance("stops", 8) {
		return nil
	}
	stop := pick(h, "stop", kueue.Hold, kueue.HoldAndDrain, kueue.None)
	return &stop
}

func (h *history) observeQueue(name string) {
	q := &kueue.ClusterQueue{ObjectMeta: h.meta(name)}
	q.Spec.CohortName = pick[kueue.CohortReference](h, "cohort", "", "a", "a", "a", "b", "c")
	q.Spec.ResourceGroups = h.groups(6)
	q.Spec.QueueingStrategy = kueue.BestEffortFIFO
	if q.Spec.CohortName == "" {
		// TestRivalsAgainstTwin compares what the head of a queue in a Cohort reserves against borrowers.
		q.Spec.QueueingStrategy = pick(h, "strategy", kueue.BestEffortFIFO, kueue.StrictFIFO)
	}
	q.Spec.StopPolicy = h.stopPolicy()
	q.Spec.NamespaceSelector = &metav1.LabelSelector{}
	switch h.draw("selector", 9) {
	case 0:
		q.Spec.NamespaceSelector = nil
	case 1, 2:
		q.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": "a"}
	case 3:
		q.Spec.NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "team", Operator: pick[metav1.LabelSelectorOperator](h, "operator", "NotIn", "Beside"), Values: []string{"b"}}}
	}
	if h.chance("checked", 4) {
		rule := kueue.AdmissionCheckStrategyRule{Name: "check"}
		if h.chance("on one flavor", 2) {
			rule.OnFlavors = []kueue.ResourceFlavorReference{"y"}
		}
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{rule}}
	}
	if h.chance("fungible", 2) {
		q.Spec.FlavorFungibility = &kueue.FlavorFungibility{WhenCanBorrow: pick(h, "when can borrow", kueue.MayStopSearch, kueue.TryNextFlavor)}
	}
	q.Spec.FairSharing = h.weight()
	if h.chance("is being deleted", 20) {
		q.DeletionTimestamp = &metav1.Time{Time: h.now}
	}
	h.twin.queues[name] = q
	h.tell(admission.ClusterQueueObserved{ClusterQueue: q})
}

func (h *history) weight() *kueue.FairSharing {
	if !h.chance("weighted", 3) {
		return nil
	}
	weight := resource.MustParse(pick(h, "weight", "2", "500m", "0"))
	return &kueue.FairSharing{Weight: &weight}
}

// groups returns one or two resource groups with quotas.
func (h *history) groups(most int) []kueue.ResourceGroup {
	var groups []kueue.ResourceGroup
	split := pick(h, "groups", [][]corev1.ResourceName{{gpu}}, [][]corev1.ResourceName{{"cpu", gpu}}, [][]corev1.ResourceName{{gpu}, {"cpu"}}, [][]corev1.ResourceName{{gpu, "pods"}})
	flavors := pick(h, "flavors", []string{"x"}, []string{"x", "y"}, []string{"y", "x"}, []string{"x", "y", "z"})
	for i, resources := range split {
		g := kueue.ResourceGroup{CoveredResources: resources}
		own := flavors
		if len(split) > 1 {
			own = [][]string{{"x", "y"}, {"z"}}[i]
		}
		for _, f := range own {
			g.Flavors = append(g.Flavors, kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(f), Resources: h.quotas(resources, most)})
		}
		groups = append(groups, g)
	}
	return groups
}

func (h *history) quotas(resources []corev1.ResourceName, most int) []kueue.ResourceQuota {
	var quotas []kueue.ResourceQuota
	for _, r := range resources {
		q := kueue.ResourceQuota{Name: r, NominalQuota: *resource.NewQuantity(int64(h.draw("nominal", most)), resource.DecimalSI)}
		if h.chance("borrowing limit", 3) {
			q.BorrowingLimit = resource.NewQuantity(int64(h.draw("borrowing", 4)), resource.DecimalSI)
		}
		if h.chance("lending limit", 3) {
			q.LendingLimit = resource.NewQuantity(int64(h.draw("lending", 4)), resource.DecimalSI)
		}
		quotas = append(quotas, q)
	}
	return quotas
}
