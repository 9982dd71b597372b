package queuespec

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/internal/version"
	"github.com/tranche-dev/tranche/apis"
)

// A Leader is the engine that admits in a cohort tree. The greater one leads a tree whose ClusterQueues disagree: a part of it cannot be taken over.
type Leader int

const (
	// Tranche is this Engine.
	Tranche Leader = iota
	// Kueue is the scheduler of Kueue's manager. This Engine charges what it observes there, decides nothing, and answers which stages are safe.
	Kueue
)

// A Takeover is what a ClusterQueue says about the engine that admits in it beside Kueue.
type Takeover struct {
	// Engine is the value of the annotation, and Policy that of the annotation by which users stop Tranche.
	Engine, Policy string
	// StopInKueue is spec.stopPolicy.
	StopInKueue kueue.StopPolicy
	// IsLeft is true if Kueue's manager has reported that it admits nothing with this spec.
	IsLeft bool
}

// IsAsked reports whether the ClusterQueue asks for Tranche, and is held for Kueue.
func (t *Takeover) IsAsked() bool {
	return t.Engine == apis.EngineTranche && t.StopInKueue == kueue.Hold
}

// Stop returns the stop policy for Tranche. A value that is not supported stops it.
func (t *Takeover) Stop() kueue.StopPolicy {
	if t.Policy == "" || t.Policy == string(kueue.None) {
		return kueue.None
	}
	return kueue.Hold
}

func takeoverOf(object *kueue.ClusterQueue, stop kueue.StopPolicy) Takeover {
	t := Takeover{Engine: object.Annotations[apis.EngineAnnotation], Policy: object.Annotations[apis.StopPolicyAnnotation], StopInKueue: stop}
	c := apimeta.FindStatusCondition(object.Status.Conditions, kueue.ClusterQueueActive)
	t.IsLeft = stop == kueue.Hold && c != nil && c.Status == metav1.ConditionFalse && c.Reason == kueue.ClusterQueueActiveReasonStopped && c.ObservedGeneration == object.Generation
	return t
}

// ignoredAnnotations returns the annotations of a ClusterQueue that are about the engine beside Kueue. Without Kueue they have no effect.
func ignoredAnnotations(object *kueue.ClusterQueue) []string {
	var found []string
	for _, name := range []string{apis.EngineAnnotation, apis.StopPolicyAnnotation} {
		if object.Annotations[name] != "" {
			found = append(found, name)
		}
	}
	return found
}

// whyIgnored says that annotations have no effect, and what to do, or nothing.
func (q *Spec) whyIgnored() string {
	if len(q.ignored) == 0 {
		return ""
	}
	cure := "remove them"
	if q.Stop != kueue.None {
		cure += ", and set spec.stopPolicy to None if it was Hold for a takeover"
	}
	return fmt.Sprintf("metadata.annotations: %s: no effect in the mode Instead, where Tranche admits in all ClusterQueues; %s", strings.Join(q.ignored, ", "), cure)
}

// Obstacles returns what keeps Tranche from admitting in the ClusterQueue beside Kueue, whatever else its cohort tree has, each with its cure.
func (q *Spec) Obstacles(checks map[string]*version.Observed[AdmissionCheck]) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	if q.IsTerminating {
		add("it is being deleted")
	}
	for _, name := range q.ForeignChecks(checks) {
		add("spec.admissionChecksStrategy: AdmissionCheck %s: Kueue takes quota back from what waits for a check in a stopped ClusterQueue; remove the check", name)
	}
	if len(q.Topological) > 0 {
		add("spec.resourceGroups: Tranche does not place pods by topology; remove spec.topologyName from ResourceFlavor(s) %s, or use others", strings.Join(q.Topological, ", "))
	}
	if len(q.Missing) > 0 {
		add("spec.resourceGroups: ResourceFlavor(s) %s do not exist; create them", strings.Join(q.Missing, ", "))
	}
	if q.isConcurrent {
		add("spec.concurrentAdmissionPolicy is not supported; remove it")
	}
	if q.selectorProblem != "" {
		add("spec.namespaceSelector: %s", q.selectorProblem)
	}
	switch q.Takeover.Policy {
	case "", string(kueue.None), string(kueue.Hold):
	default:
		add("metadata.annotations: %s is %q, must be None or Hold", apis.StopPolicyAnnotation, q.Takeover.Policy)
	}
	return found
}

// ForeignChecks returns the AdmissionChecks of other controllers.
func (q *Spec) ForeignChecks(checks map[string]*version.Observed[AdmissionCheck]) []string {
	var names []string
	for _, rule := range q.Checks {
		if check := checks[string(rule.Name)]; check == nil || check.Fact.Controller != apis.StageSafetyController {
			names = append(names, string(rule.Name))
		}
	}
	return names
}

// NotAsked returns what the ClusterQueue lacks to ask for Tranche, or nothing.
func (t *Takeover) NotAsked() string {
	switch {
	case t.Engine != "" && t.Engine != apis.EngineTranche && t.Engine != apis.EngineKueue:
		return fmt.Sprintf("metadata.annotations: %s is %q, must be %s or %s", apis.EngineAnnotation, t.Engine, apis.EngineTranche, apis.EngineKueue)
	case t.Engine != apis.EngineTranche:
		return fmt.Sprintf("it has no annotation %s: %s; add it, or remove that annotation from the other ClusterQueues of the cohort tree", apis.EngineAnnotation, apis.EngineTranche)
	case t.StopInKueue == kueue.HoldAndDrain:
		return "spec.stopPolicy is HoldAndDrain, which Tranche does not support beside Kueue; set it to Hold, and to evict a job set spec.active of its Workload to false"
	case t.StopInKueue != kueue.Hold:
		return fmt.Sprintf("spec.stopPolicy is %s, so that Kueue admits in it; set it to %s", t.StopInKueue, kueue.Hold)
	}
	return ""
}
