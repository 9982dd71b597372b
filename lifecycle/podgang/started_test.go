package podgang_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestBelowMinimum: a gang that has started and lost pods reports that until others have replaced them.
func TestBelowMinimum(t *testing.T) {
	w := newGang(t, 3, "min-available", "3")
	w.admitAll()
	expect := func(reason string, isWarning bool) {
		t.Helper()
		if tell := w.last.Message; tell.Reason != reason || tell.IsWarning != isWarning {
			t.Errorf("message is %+v, want reason %s, a warning: %t", tell, reason, isWarning)
		}
	}
	w.pods[0].Status.Phase = corev1.PodSucceeded
	w.settle()
	expect("GangStarted", false)
	w.pods[1].Status.Phase = corev1.PodFailed
	w.settle()
	w.expect("sfr", 1, "only 2 of the 3 required pods run, wait or have succeeded")
	expect("Unschedulable", true)
	w.add(1)
	w.settle()
	w.expect("sfrr", 1, "has started")
	expect("GangStarted", false)
}
