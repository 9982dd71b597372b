package lint

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// checkEffects reports what is accepted, but has no effect.
func (l *linter) checkEffects() {
	l.checkNodes()
	for _, js := range l.objects.jobSets {
		l.checkSuspend(js.source)
	}
	for _, job := range l.objects.jobs {
		l.checkSuspend(job.source)
	}
	for _, q := range l.objects.localQueues {
		l.checkWeight(q.source, q.object.Spec.FairSharing)
	}
	for _, c := range l.objects.cohorts {
		l.checkWeight(c.source, c.object.Spec.FairSharing)
	}
	for _, q := range l.objects.clusterQueues {
		l.checkWeight(q.source, q.object.Spec.FairSharing)
		l.checkLending(q)
		l.checkTakeover(q)
	}
	if l.hasInvalid("ClusterQueue", "Cohort", "LocalQueue") {
		return // the others depend on all queues
	}
	l.checkUse()
	t := newCohortTree(&l.objects)
	reached := l.reachedQueues()
	for _, c := range l.objects.cohorts {
		of := member{cohortKind, c.object.Name}
		l.checkBorrowing(c.source, t, of, c.object.Spec.ResourceGroups)
		l.checkCohortReach(c, t, reached)
	}
	for _, q := range l.objects.clusterQueues {
		l.checkBorrowing(q.source, t, member{clusterQueueKind, q.object.Name}, q.object.Spec.ResourceGroups)
		l.checkReclaim(q, t)
		l.checkBorrowPreemption(q, t)
		l.checkReach(q, t, reached)
	}
}

// checkSuspend reports a queued JobSet or Job that is written suspended. Whether that has an effect depends on when the manifest is applied: when it is created
// it is suspended anyway, and later a user is suspending it.
func (l *linter) checkSuspend(s *source) {
	labels := (&unstructured.Unstructured{Object: s.content}).GetLabels()
	if s.isOfCluster || s.under != "" || apis.QueueNameOf(labels) == "" {
		return
	}
	var written struct {
		Spec struct {
			Suspend bool `json:"suspend"`
		} `json:"spec"`
	}
	if _, err := s.Decode(&written); err != nil || !written.Spec.Suspend {
		return
	}
	l.add(s, problem{
		rule: ruleSuspended(), field: "spec.suspend",
		message: "if the manifest is applied again while the " + s.GVK.Kind + " runs, this stops it",
		cure:    "leave spec.suspend out: a queued " + s.GVK.Kind + " is created suspended, and starts when it is admitted",
	})
}

// checkTakeover reports annotations about the engine that admits beside Kueue.
func (l *linter) checkTakeover(q origin[kueue.ClusterQueue]) {
	if l.options.Engine.Leader == admission.LedByKueue {
		return
	}
	for _, name := range []string{apis.EngineAnnotation, apis.StopPolicyAnnotation} {
		if value := q.object.Annotations[name]; value != "" {
			l.add(q.source, problem{
				rule: ruleIgnoredAnnotation(), field: "metadata.annotations",
				message: fmt.Sprintf("%s: %s has no effect in the mode Instead, where Tranche admits in all ClusterQueues", name, value),
				cure:    "remove the annotation, or name a configuration with mode: Beside by --config",
			})
		}
	}
}

// checkUnqueued reports a queue name on an object of a kind that Kueue's manager may queue and Tranche does not. A PodGroup reserves quota for its pods. What
// a controller has created is not reported.
func (l *linter) checkUnqueued(s *source) {
	if s.kind != nil || s.GVK.Kind == schedulergang.PodGroupKind || l.options.Engine.Leader == admission.LedByKueue {
		return
	}
	var metadata metav1.PartialObjectMetadata
	if _, err := s.Decode(&metadata); err != nil || metadata.Labels[apis.QueueLabel] == "" || metav1.GetControllerOfNoCopy(&metadata) != nil {
		return
	}
	l.add(s, problem{
		rule: ruleUnqueuedKind(), field: "metadata.labels[" + apis.QueueLabel + "]",
		message: fmt.Sprintf("Tranche does not queue objects of kind %s: in the mode Instead, its pods start without quota unless their templates have the label", s.GVK.Kind),
		cure:    "set it there, so that each pod waits for quota, or remove it, or name a configuration with mode: Beside by --config",
	})
}

// checkUse reports flavors without quota.
func (l *linter) checkUse() {
	used := map[kueue.ResourceFlavorReference]bool{}
	for _, groups := range l.groups() {
		for _, g := range groups {
			for _, f := range g.Flavors {
				used[f.Name] = true
			}
		}
	}
	for _, f := range l.objects.flavors {
		if !used[kueue.ResourceFlavorReference(f.object.Name)] && len(l.objects.clusterQueues) > 0 {
			l.add(f.source, problem{
				rule: ruleUnusedFlavor(), field: "metadata.name", message: "no ClusterQueue and no Cohort has quota of this flavor",
				cure: "add quota of the flavor, or remove it",
			})
		}
	}
}

// checkNodes reports flavors without nodes.
func (l *linter) checkNodes() {
	nodes := slices.Concat(l.options.Nodes, l.objects.nodes)
	for _, f := range l.objects.flavors {
		wanted := labels.SelectorFromSet(f.object.Spec.NodeLabels)
		isMatched := slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return wanted.Matches(labels.Set(n.Labels)) })
		if len(nodes) > 0 && !isMatched {
			l.add(f.source, problem{
				rule: ruleUnmatchedFlavor(), field: "spec.nodeLabels", message: fmt.Sprintf("none of the %d nodes has the labels %s", len(nodes), wanted),
				cure: "correct spec.nodeLabels, or label nodes",
			})
		}
	}
}

// groups returns the resource groups of all ClusterQueues and Cohorts.
func (l *linter) groups() [][]kueue.ResourceGroup {
	var all [][]kueue.ResourceGroup
	for _, q := range l.objects.clusterQueues {
		all = append(all, q.object.Spec.ResourceGroups)
	}
	for _, c := range l.objects.cohorts {
		all = append(all, c.object.Spec.ResourceGroups)
	}
	return all
}

func (l *linter) checkWeight(s *source, sharing *kueue.FairSharing) {
	if sharing == nil || sharing.Weight == nil || !sharing.Weight.IsZero() {
		return
	}
	l.add(s, problem{
		rule: ruleZeroWeight(), field: "spec.fairSharing.weight",
		message: "with weight 0, fair sharing lets all others borrow first, and takes back what this one borrows first",
		cure:    "write a weight above 0, unless this is intended",
	})
}

// A quotaField is the quota of a resource in a flavor, and its path in the object.
type quotaField struct {
	path string
	of   quota.FlavorResource
	kueue.ResourceQuota
}

func quotaFields(groups []kueue.ResourceGroup) []quotaField {
	var all []quotaField
	for i, g := range groups {
		for j, f := range g.Flavors {
			for k, r := range f.Resources {
				path := fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].resources[%d]", i, j, k)
				all = append(all, quotaField{path, quota.FlavorResource{Flavor: f.Name, Resource: r.Name}, r})
			}
		}
	}
	return all
}

// checkLending reports lending limits that limit nothing.
func (l *linter) checkLending(q origin[kueue.ClusterQueue]) {
	for _, f := range quotaFields(q.object.Spec.ResourceGroups) {
		if f.LendingLimit != nil && f.LendingLimit.Cmp(f.NominalQuota) >= 0 {
			l.add(q.source, problem{
				rule: ruleLendingLimit(), field: f.path + ".lendingLimit",
				message: fmt.Sprintf("lendingLimit %s of %s in flavor %s is all of nominalQuota, so it limits nothing", f.LendingLimit, f.of.Resource, f.of.Flavor),
				cure:    "remove the limit, or write less than nominalQuota",
			})
		}
	}
}

// checkBorrowing reports borrowing limits above what the Cohort lends.
func (l *linter) checkBorrowing(s *source, t *cohortTree, of member, groups []kueue.ResourceGroup) {
	if !t.isComplete(of) {
		return
	}
	for _, f := range quotaFields(groups) {
		if f.BorrowingLimit == nil {
			continue
		}
		if lent := t.lentTo(of, f.of); f.BorrowingLimit.Cmp(lent) > 0 {
			l.add(s, problem{
				rule: ruleBorrowingLimit(), field: f.path + ".borrowingLimit",
				message: fmt.Sprintf("borrowingLimit %s of %s in flavor %s exceeds the %s that the others under Cohort %s lend",
					f.BorrowingLimit, f.of.Resource, f.of.Flavor, &lent, t.root(of)),
				cure: fmt.Sprintf("write at most %s, or add quota to the Cohort", &lent),
			})
		}
	}
}

// checkReclaim reports reclaimWithinCohort if no other ClusterQueue can ever hold what it would reclaim.
func (l *linter) checkReclaim(q origin[kueue.ClusterQueue], t *cohortTree) {
	p := q.object.Spec.Preemption
	if p == nil || p.ReclaimWithinCohort == "" || p.ReclaimWithinCohort == kueue.PreemptionPolicyNever {
		return
	}
	why := l.lonely(q, t)
	fields := quotaFields(q.object.Spec.ResourceGroups)
	if why == "" && !slices.ContainsFunc(fields, func(f quotaField) bool { return l.canReclaim(q, t, f) }) {
		why = "no other ClusterQueue can borrow its quota"
	}
	if why != "" {
		l.add(q.source, problem{
			rule: ruleUselessPreemption(), field: "spec.preemption.reclaimWithinCohort", message: "reclaimWithinCohort has no effect: " + why,
			cure: "set spec.cohortName to a Cohort with ClusterQueues that borrow, or remove reclaimWithinCohort",
		})
	}
}

// canReclaim reports whether another ClusterQueue can borrow quota of this one. With fair sharing it may also take back what others borrow from
// third ones.
func (l *linter) canReclaim(q origin[kueue.ClusterQueue], t *cohortTree, f quotaField) bool {
	of := member{clusterQueueKind, q.object.Name}
	lends := !f.NominalQuota.IsZero() && (f.LendingLimit == nil || !f.LendingLimit.IsZero())
	return (lends || l.options.Engine.FairSharing) && slices.ContainsFunc(t.others(of), func(m member) bool { return t.canBorrow(m, f.of) })
}

// checkBorrowPreemption reports borrowWithinCohort if the ClusterQueue never borrows.
func (l *linter) checkBorrowPreemption(q origin[kueue.ClusterQueue], t *cohortTree) {
	p := q.object.Spec.Preemption
	if p == nil || p.BorrowWithinCohort == nil || p.BorrowWithinCohort.Policy == "" || p.BorrowWithinCohort.Policy == kueue.BorrowWithinCohortPolicyNever {
		return
	}
	why := l.lonely(q, t)
	of := member{clusterQueueKind, q.object.Name}
	switch {
	case why != "":
	case l.options.Engine.FairSharing:
		why = "with fair sharing, preemption while borrowing depends on shares"
	case !slices.ContainsFunc(quotaFields(q.object.Spec.ResourceGroups), func(f quotaField) bool { return t.canBorrow(of, f.of) }):
		why = "each borrowingLimit is 0"
	}
	if why != "" {
		l.add(q.source, problem{
			rule: ruleUselessPreemption(), field: "spec.preemption.borrowWithinCohort", message: "borrowWithinCohort has no effect: " + why, cure: "remove borrowWithinCohort",
		})
	}
}

// lonely returns why a ClusterQueue shares its Cohort with no other ClusterQueue, or "".
func (l *linter) lonely(q origin[kueue.ClusterQueue], t *cohortTree) string {
	of := member{clusterQueueKind, q.object.Name}
	switch {
	case q.object.Spec.CohortName == "":
		return "the ClusterQueue is in no Cohort"
	case len(t.others(of)) == 0:
		return fmt.Sprintf("no other ClusterQueue is under Cohort %s", t.root(of))
	}
	return ""
}

// reachedQueues returns the ClusterQueues to which a LocalQueue in a namespace that they select leads.
func (l *linter) reachedQueues() []member {
	var reached []member
	for _, q := range l.objects.clusterQueues {
		if selector := q.object.Spec.NamespaceSelector; selector != nil && l.isReached(q.object.Name, selector) {
			reached = append(reached, member{clusterQueueKind, q.object.Name})
		}
	}
	return reached
}

func (l *linter) isReached(clusterQueue string, selector *metav1.LabelSelector) bool {
	return slices.ContainsFunc(l.objects.localQueues, func(q origin[kueue.LocalQueue]) bool {
		namespace := q.object.Namespace
		return string(q.object.Spec.ClusterQueue) == clusterQueue && (!l.isDecided(selector, namespace) || selects(selector, l.labelsOf(namespace)))
	})
}

func selects(selector *metav1.LabelSelector, of map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(of))
}

// isDecided reports whether the manifests or the cluster have all labels of a namespace that a selector depends on.
func (l *linter) isDecided(selector *metav1.LabelSelector, namespace string) bool {
	if _, isGiven := l.objects.namespaces[namespace]; isGiven {
		return true
	}
	for key := range selector.MatchLabels {
		if key != corev1.LabelMetadataName {
			return false
		}
	}
	return !slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key != corev1.LabelMetadataName })
}

// checkReach reports a ClusterQueue with quota that no LocalQueue leads to, and that no other ClusterQueue can borrow.
func (l *linter) checkReach(q origin[kueue.ClusterQueue], t *cohortTree, reached []member) {
	lost := unreachable(member{clusterQueueKind, q.object.Name}, t, reached, quotaFields(q.object.Spec.ResourceGroups))
	if len(l.objects.localQueues) == 0 || len(lost) == 0 {
		return
	}
	var names []string
	for _, f := range lost {
		names = append(names, fmt.Sprintf("%s %s of flavor %s", &f.NominalQuota, f.of.Resource, f.of.Flavor))
	}
	p := problem{
		rule: ruleUnreachableQuota(), field: "spec.namespaceSelector",
		message: "no LocalQueue in a namespace that spec.namespaceSelector selects leads to this ClusterQueue, and no other ClusterQueue can borrow " + strings.Join(names, ", "),
		cure:    "correct spec.namespaceSelector, or create a LocalQueue in a namespace that it selects",
	}
	if q.object.Spec.NamespaceSelector == nil {
		p.message, p.cure = "without spec.namespaceSelector the ClusterQueue selects no namespace", "write namespaceSelector: {} to select all namespaces"
	}
	l.add(q.source, p)
}

// checkCohortReach reports quota of a Cohort that no ClusterQueue can borrow.
func (l *linter) checkCohortReach(c origin[kueue.Cohort], t *cohortTree, reached []member) {
	if len(l.objects.localQueues) == 0 || len(l.objects.clusterQueues) == 0 {
		return
	}
	for _, f := range unreachable(member{cohortKind, c.object.Name}, t, reached, quotaFields(c.object.Spec.ResourceGroups)) {
		l.add(c.source, problem{
			rule: ruleUnreachableQuota(), field: f.path + ".nominalQuota",
			message: fmt.Sprintf("no ClusterQueue that a LocalQueue leads to can borrow %s of flavor %s from this Cohort", f.of.Resource, f.of.Flavor),
			cure:    "remove the quota, or add the flavor to a ClusterQueue of the Cohort that a LocalQueue leads to",
		})
	}
}

// unreachable returns the quota of a member that none of the reached ClusterQueues can use.
func unreachable(of member, t *cohortTree, reached []member, fields []quotaField) []quotaField {
	return slices.DeleteFunc(fields, func(f quotaField) bool {
		return f.NominalQuota.IsZero() || slices.ContainsFunc(reached, func(q member) bool {
			return q == of || t.root(q) == t.root(of) && t.canBorrow(q, f.of) && (f.LendingLimit == nil || !f.LendingLimit.IsZero())
		})
	})
}
