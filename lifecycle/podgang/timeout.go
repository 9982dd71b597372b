package podgang

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/apis"
)

// A gang that did not start within its waiting time releases its quota, and its gated pods get Koordinator's annotation. A PodGroup for which quota
// was reserved gets it, too, because it may have no pods. The next step is a setting:
//
//	Requeue: annotated, backs off, is admitted  ->  pods released without the annotation, which would keep Koordinator from placing them
//	Stop:    annotated, not admitted            ->  the user recreates the pods, or removes the annotation  ->  queues again

// All returns all pods of the gang. Those that have timed out come last.
func (g *Gang) All() []*corev1.Pod { return slices.Concat(g.Pods, g.TimedOut) }

// splitTimedOut moves pods from Pods to TimedOut if they are not admitted because their gang did not start in time.
func (g *Gang) splitTimedOut() {
	isOut := func(pod *corev1.Pod) bool { return g.stops && waiting(pod) && isMarked(pod.Annotations) }
	for _, pod := range g.Pods {
		if isOut(pod) {
			g.TimedOut = append(g.TimedOut, pod)
		}
	}
	g.Pods = slices.DeleteFunc(g.Pods, isOut)
}

// hasTimedOutObject reports whether no quota is reserved for the PodGroup before its pods exist, because they were not created in time before.
func (g *Gang) hasTimedOutObject() bool { return g.stops && isMarked(g.Object.Annotations) }

func isMarked(annotations map[string]string) bool {
	return annotations[apis.KoordinatorTimeoutAnnotation] == "true"
}

// timedOut describes which pods have to be recreated before the gang queues again, and is empty if it does not need them.
func (t *stepBuilder) timedOut() string {
	g := t.Gang
	switch {
	case len(t.waiting) >= t.needed() || t.reserves():
		return ""
	case len(g.TimedOut) > 0:
		return "The gang did not start within its waiting time: " + t.stopped()
	case g.Object != nil && len(g.Object.MinResources) > 0 && g.hasTimedOutObject():
		return fmt.Sprintf("No quota is reserved for PodGroup %q: it has the annotation %s=true, because its pods did not come within the waiting time; "+
			"create the pods, or remove the annotation", g.Name, apis.KoordinatorTimeoutAnnotation)
	}
	return ""
}

// stopped describes what to do with the pods that are not admitted.
func (t *stepBuilder) stopped() string {
	return fmt.Sprintf("pod %q and all others with the annotation %s=true are not admitted; recreate them, or remove the annotation",
		t.Gang.TimedOut[0].Name, apis.KoordinatorTimeoutAnnotation)
}

// noteTimeout marks the pods and the PodGroup that have waited for too long.
func (t *stepBuilder) noteTimeout() {
	if !t.Gang.hasSettings() {
		return
	}
	for _, pod := range t.waiting {
		if !isMarked(pod.Annotations) {
			t.step.TimeOut = append(t.step.TimeOut, pod)
		}
	}
	t.step.TimeOutObject = t.reserves() && !isMarked(t.Gang.Object.Annotations)
}

// forgetTimeout clears the annotation of the PodGroup of a started gang, and reports the state of its other pods.
func (t *stepBuilder) forgetTimeout() {
	g := t.Gang
	t.step.ClearObject = g.Object != nil && g.hasSettings() && isMarked(g.Object.Annotations)
	if len(g.TimedOut) > 0 && !t.step.Message.IsWarning {
		t.step.Message.Text += "; " + t.stopped()
	}
}
