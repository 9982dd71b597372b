package admission_test

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

// Beside Kueue the annotations have an effect, and one that is added or removed changes the condition.
func TestActivityOfTakeovers(t *testing.T) {
	active := func(w *world, annotations map[string]string) string {
		w.queue("q", "a100: gpu=4", func(q *kueue.ClusterQueue) { q.Annotations = annotations })
		w.engine.Decide(w.now())
		view, _ := w.engine.ClusterQueue("q")
		return view.Active.Message
	}
	asks := map[string]string{apis.EngineAnnotation: apis.EngineTranche}
	if got := active(newWorld(t, admission.Config{Leader: admission.LedByKueue}), asks); got != "Can admit new workloads" {
		t.Errorf("beside Kueue: %q", got)
	}
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.engine.Decide(w.now())
	w.engine.Changed()
	for _, annotations := range []map[string]string{asks, nil} {
		if got := active(w, annotations); strings.Contains(got, "no effect") != (annotations != nil) {
			t.Errorf("with annotations %v: %q", annotations, got)
		}
		if changed, _ := w.engine.Changed(); !slices.Contains(changed, "q") {
			t.Errorf("with annotations %v the engine reports changes of %v", annotations, changed)
		}
	}
}

// The condition Active of a ClusterQueue has Kueue's reasons and messages.
func TestActivity(t *testing.T) {
	check := func(w *world, name, controller string, isActive bool) {
		c := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
		if isActive {
			c.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
		}
		w.engine.Apply(admission.CheckObserved{AdmissionCheck: c})
	}
	rule := func(name string, flavors ...kueue.ResourceFlavorReference) kueue.AdmissionCheckStrategyRule {
		return kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(name), OnFlavors: flavors}
	}
	for name, tc := range map[string]struct {
		world           func(*world)
		change          func(*kueue.ClusterQueue)
		rules           []kueue.AdmissionCheckStrategyRule
		reason, message string
	}{
		"active":      {reason: "Ready", message: "Can admit new workloads"},
		"stopped":     {change: func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.Hold) }, reason: "Stopped", message: "Can't admit new workloads: is stopped."},
		"terminating": {change: func(q *kueue.ClusterQueue) { q.DeletionTimestamp = new(metav1.Now()) }, reason: "Terminating", message: "Can't admit new workloads; clusterQueue is terminating"},
		"with annotations for a takeover": {
			change: func(q *kueue.ClusterQueue) {
				q.Annotations = map[string]string{apis.EngineAnnotation: apis.EngineTranche, apis.StopPolicyAnnotation: "None"}
			},
			reason: "Ready", message: "Can admit new workloads; metadata.annotations: tranche.dev/engine, tranche.dev/stop-policy: no effect in the mode Instead, " +
				"where Tranche admits in all ClusterQueues; remove them",
		},
		"held for a takeover": {
			change: func(q *kueue.ClusterQueue) {
				q.Annotations, q.Spec.StopPolicy = map[string]string{apis.EngineAnnotation: apis.EngineTranche}, new(kueue.Hold)
			},
			reason: "Stopped", message: "Can't admit new workloads: is stopped, metadata.annotations: tranche.dev/engine: no effect in the mode Instead, " +
				"where Tranche admits in all ClusterQueues; remove them, and set spec.stopPolicy to None if it was Hold for a takeover.",
		},
		"without its flavors": {
			world: func(w *world) {
				w.engine.Apply(admission.FlavorGone{Name: "a100"})
				w.engine.Apply(admission.FlavorGone{Name: "h100"})
			},
			reason: "FlavorNotFound", message: "Can't admit new workloads: references missing ResourceFlavor(s): a100,h100.",
		},
		"without its checks, and stopped": {
			change: func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.HoldAndDrain) },
			rules:  []kueue.AdmissionCheckStrategyRule{rule("y"), rule("x"), rule("idle")}, world: func(w *world) { check(w, "idle", "example.com/budget", false) },
			reason: "Stopped", message: "Can't admit new workloads: is stopped, references missing AdmissionCheck(s): x,y, references inactive AdmissionCheck(s): idle.",
		},
		"without a check": {
			rules:  []kueue.AdmissionCheckStrategyRule{rule("x")},
			reason: "AdmissionCheckNotFound", message: "Can't admit new workloads: references missing AdmissionCheck(s): x.",
		},
		"with a check that is not active": {
			rules: []kueue.AdmissionCheckStrategyRule{rule("x")}, world: func(w *world) { check(w, "x", "example.com/budget", false) },
			reason: "AdmissionCheckInactive", message: "Can't admit new workloads: references inactive AdmissionCheck(s): x.",
		},
		"with two checks of MultiKueue": {
			rules: []kueue.AdmissionCheckStrategyRule{rule("y"), rule("x", "h100", "a100")},
			world: func(w *world) {
				check(w, "x", kueue.MultiKueueControllerName, true)
				check(w, "y", kueue.MultiKueueControllerName, true)
			},
			reason:  "MultipleMultiKueueAdmissionChecks",
			message: "Can't admit new workloads: Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: x,y.",
		},
		"with MultiKueue for a flavor": {
			rules: []kueue.AdmissionCheckStrategyRule{rule("x", "a100")}, world: func(w *world) { check(w, "x", kueue.MultiKueueControllerName, true) },
			reason:  "MultiKueueAdmissionCheckAppliedPerFlavor",
			message: "Can't admit new workloads: Cannot specify MultiKueue AdmissionCheck per flavor, found: x.",
		},
		"with MultiKueue and ProvisioningRequests": {
			rules: []kueue.AdmissionCheckStrategyRule{rule("x"), rule("y")},
			world: func(w *world) {
				check(w, "x", kueue.MultiKueueControllerName, true)
				check(w, "y", kueue.ProvisioningRequestControllerName, true)
			},
			reason:  "MultiKueueWithProvisioningRequest",
			message: "Can't admit new workloads: Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: x, y.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=4; h100: gpu=4", func(q *kueue.ClusterQueue) {
				q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: tc.rules}
				if tc.change != nil {
					tc.change(q)
				}
			})
			if tc.world != nil {
				tc.world(w)
			}
			view, _ := w.engine.ClusterQueue("q")
			if view.Active.Reason != tc.reason || view.Active.Message != tc.message || (view.Active.Status == metav1.ConditionTrue) != (tc.reason == "Ready") {
				t.Errorf("Active is %q with reason %s: %q, want %s: %q", view.Active.Status, view.Active.Reason, view.Active.Message, tc.reason, tc.message)
			}
		})
	}
}
