package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// checkEngine lets an engine observe all objects, and reports what it does not admit.
func (l *linter) checkEngine() error {
	engine, err := admission.New(l.options.Engine)
	if err != nil {
		return err
	}
	l.observe(engine)
	for i := range l.objects.clusterQueues {
		l.checkActive(engine, l.objects.clusterQueues[i])
	}
	l.checkTargets()
	for i := range l.objects.jobSets {
		l.checkJobSet(engine, l.objects.jobSets[i])
	}
	for i := range l.objects.jobs {
		l.checkJob(engine, l.objects.jobs[i])
	}
	for i := range l.objects.pods {
		l.checkPod(engine, l.objects.pods[i])
	}
	return nil
}

// observe lets the engine observe the objects. Kinds of which no object is given count as complete elsewhere: then what names them is not checked.
func (l *linter) observe(engine *admission.Engine) {
	o := &l.objects
	for _, f := range o.flavors {
		engine.Apply(admission.FlavorObserved{Flavor: f.object})
	}
	for _, c := range o.checks {
		check := c.object.DeepCopy()
		// The controller of a check reports in its status that it is active, which manifests do not have.
		if !l.isOfKueue(check) {
			apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"})
		}
		engine.Apply(admission.CheckObserved{AdmissionCheck: check})
	}
	for _, r := range o.limitRanges {
		engine.Apply(admission.LimitRangeObserved{LimitRange: r.object})
	}
	for _, c := range o.runtimeClasses {
		if c.object.Overhead != nil {
			engine.Apply(admission.RuntimeClassObserved{Name: c.object.Name, Overhead: c.object.Overhead.PodFixed})
		}
	}
	for _, c := range o.deviceClasses {
		engine.Apply(admission.DeviceClassObserved{DeviceClass: c.object})
	}
	for _, t := range o.claimTemplates {
		engine.Apply(admission.ClaimTemplateObserved{Template: t.object})
	}
	for _, c := range o.cohorts {
		engine.Apply(admission.CohortObserved{Cohort: c.object})
	}
	for _, q := range o.clusterQueues {
		l.supplyMissing(engine, q.object)
		running := l.withKnownNamespaces(q.object).DeepCopy()
		running.Spec.StopPolicy = nil // it would hide other problems
		engine.Apply(admission.ClusterQueueObserved{ClusterQueue: running})
	}
	for _, q := range o.localQueues {
		running := q.object.DeepCopy()
		running.Spec.StopPolicy = nil
		engine.Apply(admission.LocalQueueObserved{LocalQueue: running})
		engine.Apply(admission.NamespaceObserved{Name: q.object.Namespace, Labels: l.labelsOf(q.object.Namespace)})
	}
}

// supplyMissing lets the engine observe what a ClusterQueue names, if no object of that kind is given.
func (l *linter) supplyMissing(engine *admission.Engine, q *kueue.ClusterQueue) {
	for _, g := range q.Spec.ResourceGroups {
		for _, f := range g.Flavors {
			if len(l.objects.flavors) == 0 || l.isInvalid("ResourceFlavor", "", string(f.Name)) {
				engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: string(f.Name)}}})
			}
		}
	}
	if q.Spec.AdmissionChecksStrategy == nil {
		return
	}
	for _, c := range q.Spec.AdmissionChecksStrategy.AdmissionChecks {
		if len(l.objects.checks) > 0 && !l.isInvalid("AdmissionCheck", "", string(c.Name)) {
			continue
		}
		check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: string(c.Name)}}
		apimeta.SetStatusCondition(&check.Status.Conditions, metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active"})
		engine.Apply(admission.CheckObserved{AdmissionCheck: check})
	}
}

// isOfKueue reports whether the controller of a check is part of Kueue's manager, which does not run in the mode Instead.
func (l *linter) isOfKueue(check *kueue.AdmissionCheck) bool {
	name := check.Spec.ControllerName
	return l.options.Engine.Leader != admission.LedByKueue && (name == kueue.MultiKueueControllerName || name == kueue.ProvisioningRequestControllerName)
}

// withKnownNamespaces returns a ClusterQueue that selects all namespaces, if it selects by labels that a namespace of its LocalQueues may have
// although it is not given.
func (l *linter) withKnownNamespaces(q *kueue.ClusterQueue) *kueue.ClusterQueue {
	if q.Spec.NamespaceSelector == nil {
		return q
	}
	for _, lq := range l.objects.localQueues {
		if string(lq.object.Spec.ClusterQueue) == q.Name && !l.isDecided(q.Spec.NamespaceSelector, lq.object.Namespace) {
			q = q.DeepCopy()
			q.Spec.NamespaceSelector = &metav1.LabelSelector{}
			return q
		}
	}
	return q
}

// checkActive reports why a ClusterQueue admits nothing.
func (l *linter) checkActive(engine *admission.Engine, q origin[kueue.ClusterQueue]) {
	view, exists := engine.ClusterQueue(q.object.Name)
	if !exists {
		return
	}
	isHeldForKueue := l.options.Engine.Leader == admission.LedByKueue && q.object.Annotations[apis.EngineAnnotation] == apis.EngineTranche
	if !isHeldForKueue {
		l.checkStop(q.source, q.object.Spec.StopPolicy)
	}
	activity := view.Active
	if activity.Status != metav1.ConditionTrue {
		l.add(q.source, l.inactivityOf(q.object, activity))
	}
}

// inactivityOf returns the problem of a ClusterQueue that is not active, at the field that causes it.
func (l *linter) inactivityOf(q *kueue.ClusterQueue, activity admission.Activity) problem {
	p := problem{rule: ruleInactiveQueue(), field: "spec", message: activity.Why, cure: "correct the field"}
	checks := "spec.admissionChecksStrategy.admissionChecks"
	switch activity.Reason {
	case kueue.ClusterQueueActiveReasonFlavorNotFound:
		p.field, p.cure = l.missingFlavor(q), "create the ResourceFlavor, or correct its name"
	case kueue.ClusterQueueActiveReasonAdmissionCheckNotFound:
		p.field, p.cure = checks, "create the AdmissionCheck, or correct its name"
	case kueue.ClusterQueueActiveReasonAdmissionCheckInactive:
		p.field, p.cure = checks, "remove the check: the controllers of MultiKueue and of ProvisioningRequests are part of Kueue's manager, which does not run in the mode Instead"
	case kueue.ClusterQueueActiveReasonMultipleMultiKueueAdmissionChecks:
		p.field, p.cure = checks, "keep one MultiKueue AdmissionCheck"
	case kueue.ClusterQueueActiveReasonMultiKueueAdmissionCheckAppliedPerFlavor:
		p.field, p.cure = checks, "remove onFlavors"
	case kueue.ClusterQueueActiveReasonMultiKueueWithProvisioningRequest:
		p.field, p.cure = checks, "keep the checks of one of the two controllers"
	case kueue.ClusterQueueActiveReasonTopologyNotFound:
		p.field, p.cure = "spec.resourceGroups", "remove spec.topologyName from the ResourceFlavors"
	case kueue.ClusterQueueActiveReasonUnknown:
		if strings.Contains(activity.Message, "spec.cohortName: ") {
			p.field, p.cure = "spec.cohortName", "remove spec.parentName from one of these Cohorts"
			p.message = strings.TrimPrefix(p.message, "spec.cohortName: ")
		}
	}
	return p
}

// missingFlavor returns the field that names the first flavor that does not exist.
func (l *linter) missingFlavor(q *kueue.ClusterQueue) string {
	for i, g := range q.Spec.ResourceGroups {
		for j, f := range g.Flavors {
			if !slices.ContainsFunc(l.objects.flavors, func(o origin[kueue.ResourceFlavor]) bool { return o.object.Name == string(f.Name) }) {
				return fmt.Sprintf("spec.resourceGroups[%d].flavors[%d].name", i, j)
			}
		}
	}
	return "spec.resourceGroups"
}

// checkTargets reports LocalQueues whose ClusterQueue does not exist, and those that are stopped.
func (l *linter) checkTargets() {
	for _, q := range l.objects.localQueues {
		name := string(q.object.Spec.ClusterQueue)
		if len(l.objects.clusterQueues) > 0 && l.clusterQueue(name) == nil && !l.isInvalid("ClusterQueue", "", name) {
			l.add(q.source, problem{
				rule: ruleMissingQueue(), field: "spec.clusterQueue", message: fmt.Sprintf("there is no ClusterQueue %s", name),
				cure: "create the ClusterQueue, or recreate the LocalQueue with another one",
			})
		}
		l.checkStop(q.source, q.object.Spec.StopPolicy)
	}
}

func (l *linter) checkStop(m *source, policy *kueue.StopPolicy) {
	if stop := ptr.Deref(policy, kueue.None); stop != kueue.None {
		l.add(m, problem{
			rule: ruleStoppedQueue(), field: "spec.stopPolicy", message: fmt.Sprintf("the queue is stopped (%s)", stop), cure: "remove spec.stopPolicy to admit again",
		})
	}
}

// clusterQueue returns a ClusterQueue, or nil if it is not given.
func (l *linter) clusterQueue(name string) *kueue.ClusterQueue {
	for _, q := range l.objects.clusterQueues {
		if q.object.Name == name {
			return q.object
		}
	}
	return nil
}

// checkJobSet reports why a JobSet has no plan, or which of its stages can never be admitted.
func (l *linter) checkJobSet(engine *admission.Engine, js origin[jobsetapi.JobSet]) {
	object := js.object.DeepCopy()
	if m := ptr.Deref(object.Spec.ManagedBy, jobset.JobSetControllerName); m != jobset.JobSetControllerName {
		return
	}
	plan, err := stageplan.New(&object.Spec)
	if problems, ok := errors.AsType[stageplan.Problems](err); ok {
		for _, p := range problems {
			l.add(js.source, problem{rule: rulePlan(), field: p.Field, message: p.Message, cure: "correct the field"})
		}
		return
	}
	queue := apis.QueueNameOf(object.Labels)
	if queue != "" {
		l.checkPriorityClass(js.source, object.Labels)
		for i := range object.Spec.ReplicatedJobs {
			pods := &object.Spec.ReplicatedJobs[i].Template.Spec.Template.ObjectMeta
			pods.Annotations = l.checkTopology(js.source, fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.", i), pods)
		}
	}
	if queue == "" || len(l.objects.localQueues) == 0 || len(l.objects.clusterQueues) == 0 || l.leadsToInvalid(object.Namespace, queue) {
		return
	}
	object.UID = types.UID(object.Namespace + "/" + object.Name)
	key := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	engine.Apply(admission.NamespaceObserved{Name: object.Namespace, Labels: l.labelsOf(object.Namespace)})
	engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: key}, UID: object.UID, Submitted: time.Unix(0, 0),
		StageAdmission: object.Annotations[apis.StageAdmissionAnnotation], Plan: plan,
	})
	defer engine.Apply(admission.PlanGone{UID: object.UID})
	step := stages.Next(&jobsetstate.Snapshot{Key: key, JobSet: object, Plan: plan})
	var refused []refusedStage
	for _, workload := range step.Workloads(quotastep.Create) {
		if r, isRefused := explain(engine, workload); isRefused {
			refused = append(refused, refusedStage{workload.Labels[apis.StageLabel], firstJob(object, workload), r})
		}
	}
	l.addRefused(js.source, refused)
}

// A refusedStage is a stage that is not admitted although nothing else runs.
type refusedStage struct {
	name string
	// job is the index of its first ReplicatedJob.
	job     int
	refusal admission.Refusal
}

// isAboutItself reports whether a stage is refused for its own pods, and not because of a later stage.
func (r refusedStage) isAboutItself() bool { return !strings.HasPrefix(r.refusal.Message, "stage ") }

func firstJob(js *jobsetapi.JobSet, workload *kueue.Workload) int {
	return slices.IndexFunc(js.Spec.ReplicatedJobs, func(j jobsetapi.ReplicatedJob) bool { return j.Name == string(workload.Spec.PodSets[0].Name) })
}

// explain returns why the engine does not admit a quota Workload.
func explain(engine *admission.Engine, workload *kueue.Workload) (admission.Refusal, bool) {
	quotaworkload.SetGates(workload, nil)
	workload.UID = types.UID(workload.Namespace + "/" + workload.Name)
	engine.Apply(admission.WorkloadObserved{Workload: workload})
	key := admission.StageKey{Namespace: workload.Namespace, Name: workload.Name}
	defer engine.Apply(admission.WorkloadGone{Key: key, UID: workload.UID})
	if refusals := engine.Explain(key); len(refusals) > 0 {
		return refusals[0], true
	}
	return admission.Refusal{}, false
}

// addRefused adds findings about the stages of a JobSet: one if all have the same reason.
func (l *linter) addRefused(m *source, refused []refusedStage) {
	hasOwn := slices.ContainsFunc(refused, refusedStage.isAboutItself)
	isKnown := map[string]bool{}
	for _, s := range refused {
		if isKnown[s.refusal.Message] {
			continue
		}
		isKnown[s.refusal.Message] = true
		p := problem{
			rule: ruleNeverFits(), field: fmt.Sprintf("spec.replicatedJobs[%d]", s.job), cure: "request less, or raise the quota",
			message: fmt.Sprintf("stage %q: %s (%s)", s.name, s.refusal.Message, s.refusal.Check),
		}
		of, isAboutQueue := problemOfQueue(s.refusal)
		switch {
		case isAboutQueue && of == nil || !isAboutQueue && hasOwn && !s.isAboutItself():
			continue
		case isAboutQueue:
			p = *of
		}
		l.add(m, p)
	}
}

// problemOfQueue returns the problem of a refusal that is about the queue, or nil if it is reported at the queue.
func problemOfQueue(refusal admission.Refusal) (p *problem, isAboutQueue bool) {
	switch refusal.Check {
	case "LocalQueueExists":
		return &problem{
			rule: ruleMissingQueue(), field: "metadata.labels[" + apis.QueueLabel + "]", message: refusal.Message, cure: "create the LocalQueue, or name another one",
		}, true
	case "ClusterQueueExists", "ClusterQueueIsActive":
		return nil, true
	case "NamespaceIsSelected":
		return &problem{rule: ruleNeverFits(), field: "metadata.namespace", message: refusal.Message, cure: "label the namespace, or use a queue that selects it"}, true
	}
	return nil, false
}

// leadsToInvalid reports whether a LocalQueue, or its ClusterQueue, has errors of its own.
func (l *linter) leadsToInvalid(namespace, name string) bool {
	if l.isInvalid("LocalQueue", namespace, name) {
		return true
	}
	return slices.ContainsFunc(l.objects.localQueues, func(q origin[kueue.LocalQueue]) bool {
		return q.object.Namespace == namespace && q.object.Name == name && l.isInvalid("ClusterQueue", "", string(q.object.Spec.ClusterQueue))
	})
}
