package jobset

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

func TestStartsInOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy *jobsetapi.StartupPolicy
		want   bool
	}{
		{"dependsOn alone", nil, true},
		{"AnyOrder", &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.AnyOrder}, true},
		{"InOrder", &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}, false},
		{"rules", &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: make([]jobsetapi.StartupPolicyRule, 1)}, false},
	} {
		js := &jobsetapi.JobSet{}
		js.Spec.StartupPolicy = c.policy
		if got := startsInOrder(js); got != c.want {
			t.Errorf("%s: the JobSet controller starts the stages in order: %t", c.name, got)
		}
	}
}

// A fixedSafety gives the same answer for all JobSets.
type fixedSafety struct{ protection admission.Protection }

func (f fixedSafety) Unsafe(context.Context, *jobsetapi.JobSet, *stageplan.Plan, string) (string, error) {
	return "", nil
}

func (f fixedSafety) Protection(context.Context, *jobsetapi.JobSet) (admission.Protection, error) {
	return f.protection, nil
}

func (f fixedSafety) Changes() <-chan event.GenericEvent { return nil }

// newHolder returns a JobSet whose first stage keeps its quota while the second waits.
func newHolder(t *testing.T) *jobsetstate.Snapshot {
	t.Helper()
	s := newSnapshot(t)
	s.JobSet.Spec.ReplicatedJobs[1].DependsOn[0].Status = jobset.DependencyReady
	plan, err := stageplan.New(&s.JobSet.Spec)
	if err != nil {
		t.Fatal(err)
	}
	s.Plan = plan
	return s
}

func inOrder(js *jobsetapi.JobSet) {
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
}

func TestFirstPlan(t *testing.T) {
	for name, tt := range map[string]struct {
		protection admission.Protection
		change     func(*jobsetapi.JobSet)
		stages     int
		refusal    string
		whole      string
	}{
		"protected":       {stages: 2},
		"lacks the check": {protection: admission.Protection{Lacks: "add the check"}, stages: 1, whole: "add the check"},
		"InOrder":         {protection: admission.Protection{Lacks: "add the check"}, change: inOrder, stages: 2},
		"unknown queue":   {protection: admission.Protection{Missing: "create the queue"}, stages: 2, refusal: "create the queue"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHolder(t)
			if tt.change != nil {
				tt.change(s.JobSet)
			}
			plan := firstPlan(s, s.Plan, tt.protection)
			if len(plan.Stages) != tt.stages || s.Refusal != tt.refusal || s.Whole != tt.whole {
				t.Errorf("%d stages, refused because of %q, whole because of %q, want %d, %q, %q", len(plan.Stages), s.Refusal, s.Whole, tt.stages, tt.refusal, tt.whole)
			}
		})
	}
}

// TestKeptPlan keeps the plan for which the quota Workloads of a JobSet were made, whatever its startup policy is.
func TestKeptPlan(t *testing.T) {
	s := newHolder(t)
	whole, err := stageplan.Whole(s.Plan)
	if err != nil {
		t.Fatal(err)
	}
	staged := stages.Next(s).Workloads(quotastep.Create)
	wholeSnapshot := *s
	wholeSnapshot.Plan = whole
	together := stages.Next(&wholeSnapshot).Workloads(quotastep.Create)
	growth := together[0].DeepCopy()
	growth.Labels[apis.GrowthLabel] = "1"
	foreign := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: together[0].Spec}
	for name, tt := range map[string]struct {
		workloads []*kueue.Workload
		stages    int
	}{
		"of the stages":         {staged, 2},
		"of all stages":         {together, 1},
		"of a growth":           {append([]*kueue.Workload{growth}, staged...), 2},
		"of another controller": {append([]*kueue.Workload{foreign}, staged...), 2},
		"none":                  {nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for _, change := range []func(*jobsetapi.JobSet){func(*jobsetapi.JobSet) {}, inOrder} {
				change(s.JobSet)
				if plan := keptPlan(s.Plan, tt.workloads); len(plan.Stages) != tt.stages {
					t.Errorf("the plan has %d stages, want %d", len(plan.Stages), tt.stages)
				}
				if len(tt.workloads) == 0 {
					continue
				}
				s.Owned.Workloads = tt.workloads
				r := &Reconciler{config: Config{Safety: fixedSafety{admission.Protection{Lacks: "not asked"}}}}
				if plan, err := r.choosePlan(t.Context(), s, s.Plan); err != nil || len(plan.Stages) != tt.stages || s.Whole != "" {
					t.Errorf("the chosen plan has %d stages, want %d; whole because of %q; %v", len(plan.Stages), tt.stages, s.Whole, err)
				}
			}
		})
	}
}

// An engineSafety asks an engine that does not lead.
type engineSafety struct {
	fixedSafety
	runner *engine.Runner
}

func (e engineSafety) Protection(ctx context.Context, js *jobsetapi.JobSet) (protection admission.Protection, err error) {
	queue := types.NamespacedName{Namespace: js.Namespace, Name: apis.QueueNameOf(js.Labels)}
	err = e.runner.View(ctx, func(e *admission.Engine) { protection = e.Protection(js.UID, queue) })
	return protection, err
}

// TestChoosePlanByOwnPolicy asks for a stricter stage admission than the ClusterQueue has, which allows deadlocks: the JobSet is protected from them.
func TestChoosePlanByOwnPolicy(t *testing.T) {
	runner := startRunner(t, &oneJobSet{}, admission.Config{Leader: admission.LedByKueue})
	runner.Observe(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "cq", Annotations: map[string]string{apis.StageAdmissionAnnotation: admission.Greedy}},
		Spec: kueue.ClusterQueueSpec{ResourceGroups: []kueue.ResourceGroup{{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU}, Flavors: []kueue.FlavorQuotas{{Name: "a100"}},
		}}},
	}})
	runner.Observe(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ml"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"},
	}})
	r := &Reconciler{config: Config{Runner: runner, Safety: engineSafety{runner: runner}}}
	for policy, want := range map[string]int{"": 2, admission.Safe: 1} {
		s := newHolder(t)
		s.JobSet.UID += types.UID(policy)
		metav1.SetMetaDataAnnotation(&s.JobSet.ObjectMeta, apis.StageAdmissionAnnotation, policy)
		if plan, err := r.choosePlan(t.Context(), s, s.Plan); err != nil || len(plan.Stages) != want || s.Refusal != "" {
			t.Errorf("with stage admission %q the plan has %d stages, want %d; %q, %v", policy, len(plan.Stages), want, s.Refusal, err)
		}
	}
}
