package podgang

import (
	"fmt"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// A gang that did not start within its waiting time releases its quota, and its gated pods get Koordinator's annotation. A PodGroup for which quota
// was reserved gets it, too, because it may have no pods. The next step is a setting:
//
//	Requeue: annotated, backs off, is admitted  ->  pods released without the annotation, which would keep Koordinator from placing them
//	Stop:    annotated, not admitted            ->  the user recreates the pods, or removes the annotation  ->  queues again

// timedOut describes which pods have to be recreated before the gang queues again, and is empty if it does not need them.
func (b *stepBuilder) timedOut() string {
	g := b.Gang
	switch {
	case len(b.waiting) >= b.needed() || b.Gang.Reserves():
		return ""
	case len(g.TimedOut) > 0:
		return "The gang did not start within its waiting time: " + b.stopped()
	case g.Object != nil && len(g.Object.MinResources) > 0:
		return fmt.Sprintf("No quota is reserved for PodGroup %q: it has annotation %s=true, because its pods were not created within the waiting time: "+
			"create the pods, or remove the annotation", g.Name, apis.KoordinatorTimeoutAnnotation)
	}
	return ""
}

// stopped describes what to do with the pods that are not admitted.
func (b *stepBuilder) stopped() string {
	return fmt.Sprintf("pod %q and all other pods with annotation %s=true are not admitted: recreate the pods, or remove the annotation",
		b.Gang.TimedOut[0].Name, apis.KoordinatorTimeoutAnnotation)
}

// noteTimeout marks the pods and the PodGroup that have waited for too long.
func (b *stepBuilder) noteTimeout() {
	if !b.Gang.HasKoordinatorSettings() {
		return
	}
	for _, pod := range b.waiting {
		if !podgroup.HasTimeoutAnnotation(pod.Annotations) {
			b.step.TimeOut = append(b.step.TimeOut, pod)
		}
	}
	b.step.TimeOutObject = b.Gang.Reserves() && !podgroup.HasTimeoutAnnotation(b.Gang.Object.Annotations)
}

// forgetTimeout clears the annotation of the PodGroup of a started gang, and reports the state of its other pods.
func (b *stepBuilder) forgetTimeout() {
	g := b.Gang
	b.step.ClearObject = g.Object != nil && g.HasKoordinatorSettings() && podgroup.HasTimeoutAnnotation(g.Object.Annotations)
	if len(g.TimedOut) > 0 && !b.step.Message.IsWarning {
		b.step.Message.Text += "; " + b.stopped()
	}
}
