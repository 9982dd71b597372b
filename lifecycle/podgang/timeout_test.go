package podgang_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// marks returns one letter for each pod: t if it has the annotation of a gang that timed out, or - if it has not.
func (w *world) marks() string {
	var b strings.Builder
	for _, pod := range w.pods {
		b.WriteString(map[bool]string{true: "t", false: "-"}[pod.Annotations[apis.KoordinatorTimeoutAnnotation] == "true"])
	}
	return b.String()
}

func (w *world) expectMarks(want string) {
	w.t.Helper()
	if got := w.marks(); got != want {
		w.t.Errorf("pods that have timed out: %q, want %q", got, want)
	}
}

// newTimedOut creates a gang of which one part was admitted and another was not, so that it releases its quota.
func newTimedOut(t *testing.T, stops bool, settings ...string) *world {
	t.Helper()
	w := newGang(t, 2, append([]string{"min-available", "2", "mode", "NonStrict", "waiting-time", "60s"}, settings...)...)
	w.stops = stops
	w.admit(w.workloads[0])
	w.settle()
	w.expectMarks("--")
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.expectNothingHeld()
	w.expectMarks("tt")
	return w
}

// TestTimeoutRequeues: a gang that did not start in time is marked, queues again, and starts without the mark.
func TestTimeoutRequeues(t *testing.T) {
	w := newTimedOut(t, false)
	w.now = w.now.Add(time.Hour)
	w.settle()
	w.admitAll()
	w.expect("rr", 2, "has started")
	w.expectMarks("--")
}

// TestTimeoutStops: pods that are marked are not admitted before they are recreated, or the mark is removed.
func TestTimeoutStops(t *testing.T) {
	const text = `did not start within its waiting time: pod "pod-01" and all other pods with annotation gang.scheduling.koordinator.sh/timeout=true are not admitted`
	newStopped := func(t *testing.T) *world {
		t.Helper()
		w := newTimedOut(t, true)
		w.now = w.now.Add(time.Hour)
		w.settle()
		w.admitAll()
		w.expectNothingHeld()
		w.expect("gg", 1, text)
		if !w.last.Message.IsWarning || w.last.Message.Reason != "GangTimedOut" {
			t.Errorf("message is %+v", w.last.Message)
		}
		return w
	}
	t.Run("until they are recreated", func(t *testing.T) {
		w := newStopped(t)
		w.vanish(w.pods[0])
		w.add(1)
		w.settle()
		w.admitAll()
		w.expectNothingHeld()
		w.expectMarks("t-")
		w.vanish(w.pods[0])
		w.add(1)
		w.settle()
		w.admitAll()
		w.expect("rr", 2, "has started")
	})
	t.Run("until they are recreated with another waiting time", func(t *testing.T) {
		w := newStopped(t)
		w.settings[apis.KoordinatorPrefix+"waiting-time"] = "90s"
		w.add(1)
		w.add(1)
		w.settle()
		w.admitAll()
		w.expect("ggrr", 2, `has started; pod "pod-01" and all other pods`)
	})
	t.Run("until the mark is removed", func(t *testing.T) {
		w := newStopped(t)
		for _, pod := range w.pods {
			delete(pod.Annotations, apis.KoordinatorTimeoutAnnotation)
		}
		w.settle()
		w.admitAll()
		w.expect("rr", 2, "has started")
	})
	t.Run("and go without a trace", func(t *testing.T) {
		w := newStopped(t)
		w.pods = nil
		w.settle()
		w.now = w.now.Add(w.last.RequeueAfter)
		w.settle()
		w.expect("", 0, "")
	})
	t.Run("and keep a gang waiting that starts together with theirs", func(t *testing.T) {
		w := newTimedOut(t, true, "groups", `["ml/train"]`)
		if p := podgang.PeerOf(w.seen()); !p.Exists || p.IsWhole {
			t.Errorf("counts as %+v", p)
		}
	})
}

// TestTimeoutOfPeerGangs: Koordinator's annotation means nothing to gangs for which its other annotations do not count.
func TestTimeoutOfPeerGangs(t *testing.T) {
	for _, kind := range []podgroup.Kind{podgroup.Kueue, podgroup.Core, podgroup.GroupName} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{apis.KoordinatorTimeoutAnnotation: "true", apis.PodGroupTotalCountAnnotation: "1"}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
		ref := podgroup.Ref{Kind: kind, Namespace: "ml", Name: "train"}
		g, _ := podgroup.New(ref, &podgroup.Object{UID: "object", MinMember: 1}, []*corev1.Pod{pod}, podgroup.Settings{Wait: time.Minute, StopsAfterTimeout: true})
		if len(g.Pods) != 1 || len(g.TimedOut) != 0 {
			t.Errorf("a gang of kind %s has pods %v, and %v have timed out", kind, g.Pods, g.TimedOut)
		}
	}
}

// TestTimeoutOfReservation: a PodGroup whose pods are not created in time is marked, too.
func TestTimeoutOfReservation(t *testing.T) {
	for name, stops := range map[string]bool{"requeues": false, "stops": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, podgroup.Ref{Kind: podgroup.Koordinator, Namespace: "ml", Name: "train"})
			w.stops = stops
			w.object = &podgroup.Object{
				Name: "train", UID: "group", MinMember: 2, MinResources: corev1.ResourceList{"cpu": resource.MustParse("2")}, TimeoutSeconds: 60,
				Labels: map[string]string{apis.QueueLabel: "main"},
			}
			w.settle()
			w.admitAll()
			w.expect("", 1, "waits for its pods")
			w.now = w.now.Add(time.Minute)
			w.settle()
			w.expectNothingHeld()
			if w.object.Annotations[apis.KoordinatorTimeoutAnnotation] != "true" {
				t.Errorf("the PodGroup has annotations %v", w.object.Annotations)
			}
			w.now = w.now.Add(time.Hour)
			w.admitAll()
			if stops {
				w.expectNothingHeld()
				w.expect("", 1, `No quota is reserved for PodGroup "train"`)
			} else {
				w.expect("", 1, "waits for its pods")
			}
			w.add(1)
			w.add(1)
			w.settle()
			w.admitAll()
			w.expect("rr", 1, "has started")
			if _, marked := w.object.Annotations[apis.KoordinatorTimeoutAnnotation]; marked {
				t.Error("the PodGroup of a gang that has started says that it timed out")
			}
		})
	}
}
