package takeover

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

func stateOf(change func(*state)) *state {
	q := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "research"}}
	s := &state{names: []string{"research"}, queues: map[string]*kueue.ClusterQueue{"research": q}, isBeside: true, kueueVersion: "v0.19.2"}
	change(s)
	return s
}

func TestPlanTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*state)
		want      string
		isRefused bool
	}{
		"free":            {func(*state) {}, "- ClusterQueue research: annotation tranche.dev/engine: Tranche, spec.stopPolicy: Hold\n", false},
		"held":            {func(s *state) { s.queues["research"].Spec.StopPolicy = new(kueue.Hold) }, "annotation tranche.dev/stop-policy: Hold, because it is held", false},
		"drained":         {func(s *state) { s.queues["research"].Spec.StopPolicy = new(kueue.HoldAndDrain) }, "- ClusterQueue research: spec.stopPolicy is HoldAndDrain", true},
		"unknown version": {func(s *state) { s.kueueVersion = "" }, "The version of Kueue's manager is not known: it must be v0.19.x", false},
		"strict":          {func(s *state) { s.queues["research"].Spec.QueueingStrategy = kueue.StrictFIFO }, "the head of a StrictFIFO queue", false},
		"other version":   {func(s *state) { s.kueueVersion = "v0.18.1" }, "Kueue's manager has version v0.18.1", true},
		"Instead":         {func(s *state) { s.isBeside = false }, "Tranche is not installed beside Kueue", true},
		"half a tree":     {func(s *state) { s.missing = []string{"serving"} }, "serving; a tree changes as a whole: tranche takeover research serving", true},
		"obstacle":        {func(s *state) { s.obstacles = []string{"ClusterQueue research: AdmissionCheck x"} }, "- ClusterQueue research: AdmissionCheck x", true},
	} {
		out, err := textOf(t, planTakeover, stateOf(c.change))
		if !strings.Contains(out, c.want) || (err != nil) != c.isRefused {
			t.Errorf("%s: the plan is %q with error %v, want %q", name, out, err, c.want)
		}
	}
}

// textOf returns a plan as text, and the error of its obstacles.
func textOf(t *testing.T, plan func(*state) (*Plan, error), s *state) (string, error) {
	t.Helper()
	p, err := plan(s)
	if err != nil {
		return "", err
	}
	blocked := p.block()
	var out strings.Builder
	if err := p.writeText(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), blocked
}

func TestPlanHandBack(t *testing.T) {
	held := stateOf(func(s *state) {
		s.queues["research"].Annotations = map[string]string{apis.EngineAnnotation: apis.EngineTranche, apis.StopPolicyAnnotation: "Hold"}
	})
	if out, err := textOf(t, planHandBack, held); err != nil || !strings.Contains(out, "spec.stopPolicy: Hold, because it is held for Tranche") {
		t.Errorf("the plan is %q, %v", out, err)
	}
	half := stateOf(func(s *state) { s.missing = []string{"serving"} })
	if out, err := textOf(t, planHandBack, half); err == nil || !strings.Contains(out, "tranche hand-back research serving") {
		t.Errorf("a part of a tree may be handed back: %q, %v", out, err)
	}
}

// A hold on a ClusterQueue that is Kueue's is the administrator's own.
func TestHandBackLeavesOthers(t *testing.T) {
	own := stateOf(func(s *state) { s.queues["research"].Spec.StopPolicy = new(kueue.Hold) })
	if _, err := planHandBack(own); err == nil || !strings.Contains(err.Error(), "to end a hold, set spec.stopPolicy to None") {
		t.Errorf("a ClusterQueue that was not taken: %v", err)
	}
	own.names = append(own.names, "serving")
	own.queues["serving"] = &kueue.ClusterQueue{}
	own.locks = map[string]string{"serving": "Ending"}
	p, err := planHandBack(own)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.changed(); len(got) != 1 || got[0] != "serving" {
		t.Errorf("hands back %v", got)
	}
}

// TestUnreadable: the cure depends on why the API server lists nothing.
func TestUnreadable(t *testing.T) {
	queues := schema.GroupResource{Group: "kueue.x-k8s.io", Resource: "clusterqueues"}
	for want, err := range map[string]error{
		"; ask for the right to list them, for example by a ClusterRoleBinding to the ClusterRole tranche-snapshot-reader": apierrors.NewForbidden(queues, "", errors.New("no")),
		"; install Kueue, or name another cluster with --kubeconfig":                                                       &apimeta.NoKindMatchError{},
		"list ClusterQueues: refused": errors.New("refused"),
	} {
		if got := unreadable("ClusterQueues", err).Error(); !strings.HasSuffix(got, want) {
			t.Errorf("the error is %q, want %q", got, want)
		}
	}
}
