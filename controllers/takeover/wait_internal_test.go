package takeover

import (
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestAnswer tells a probe that the lock rejects from one that is rejected for another reason, or not at all.
func TestAnswer(t *testing.T) {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "tranche-takeover-probe", errors.New(why))
	}
	if inForce, err := answerOf(forbidden("ValidatingAdmissionPolicy denied request: the ClusterQueue is locked")); !inForce || err != nil {
		t.Errorf("locked: %t, %v", inForce, err)
	}
	if inForce, err := answerOf(nil); inForce || err != nil {
		t.Errorf("not locked: %t, %v", inForce, err)
	}
	if inForce, err := answerOf(forbidden("no permission")); inForce || err == nil || !strings.Contains(err.Error(), "let the manager create ConfigMaps") {
		t.Errorf("forbidden: %t, %v", inForce, err)
	}
}

// TestWait reports a lock that is not in force after a while, not at once.
func TestWait(t *testing.T) {
	now := time.Now()
	w := wait{}.still(now, nil)
	if problem := w.problem(now.Add(patience - 1)); problem != "" {
		t.Errorf("reported early: %s", problem)
	}
	w = w.still(now.Add(patience), nil)
	if problem := w.problem(now.Add(patience)); !strings.Contains(problem, "install the ValidatingAdmissionPolicies") {
		t.Errorf("the problem is %q", problem)
	}
	w = w.still(now.Add(patience), errors.New("why"))
	if problem := w.problem(now.Add(patience)); problem != "why" {
		t.Errorf("the problem is %q", problem)
	}
}
