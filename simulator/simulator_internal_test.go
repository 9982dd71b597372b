package simulator

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// TestAudit changes the objects behind the back of the engine: each time the audit must see that they do not agree.
func TestAudit(t *testing.T) {
	key := admission.StageKey{Namespace: "default", Name: "a"}
	cases := map[string]struct {
		tamper func(*simulation)
		want   string
	}{
		"nothing is wrong":            {func(*simulation) {}, ""},
		"something held is forgotten": {func(s *simulation) { delete(s.Workloads, key) }, "I4: the engine charges 3 gpu"},
		"something is held twice": {func(s *simulation) {
			twin := s.Workloads[key].DeepCopy()
			twin.Name = "twin"
			s.Workloads[cluster.KeyOf(twin)] = twin
		}, "and 6 are held"},
		"a queue is not known": {func(s *simulation) {
			q := s.ClusterQueues["ml"].DeepCopy()
			q.Name = "other"
			s.ClusterQueues["other"] = q
		}, "I5: the engine does not know ClusterQueue other"},
		"more is held than there is": {func(s *simulation) {
			s.ClusterQueues["ml"].Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
			s.AuditAdmission(s.Workloads[key])
		}, "I1: ClusterQueue ml holds 3 gpu of flavor default, and may hold 2"},
		"more is held than the cohort has": {func(s *simulation) {
			s.ClusterQueues["ml"].Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
			s.ClusterQueues["ml"].Spec.CohortName = "lab"
			s.AuditAdmission(s.Workloads[key])
		}, "I1: the tree of Cohort lab holds 3 gpu of flavor default, and has 2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := started(t, "# story\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:3\nrun until=1m\n")
			c.tamper(s)
			s.Audit()
			got := strings.Join(s.Violations, "\n")
			if !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("violations are %q, want %q", got, c.want)
			}
		})
	}
}

// started is a simulation in the middle of its life.
func started(t *testing.T, text string) *simulation {
	t.Helper()
	script, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s := newSimulation()
	if err := s.start(script, nil); err != nil {
		t.Fatal(err)
	}
	for i := range script.Lines {
		if err := s.schedule(&script.Lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestStrangeDecisions are about what is not there: they must be told, and not carried out.
func TestStrangeDecisions(t *testing.T) {
	unknown := admission.StageKey{Namespace: "default", Name: "unknown"}
	s := started(t, "# story\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:3\nrun until=1m\n")
	s.Write(admission.Admit{Stage: unknown})
	s.Write(admission.Evict{Stage: unknown})
	s.Write(admission.Refuse{Stage: unknown})
	again := s.Workloads[admission.StageKey{Namespace: "default", Name: "a"}]
	s.Write(admission.Admit{Stage: cluster.KeyOf(again), UID: again.UID, Admission: *again.Status.Admission})
	want := []string{
		"1m violation I4: the engine decides to admit default/unknown, which does not exist",
		"1m violation I4: the engine decides to evict default/unknown, which does not exist",
		"1m violation I4: the engine admits a once more",
	}
	if diff := cmp.Diff(want, s.Violations); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestEvictions plays decisions that the engine takes about preemption and AdmissionChecks.
func TestEvictions(t *testing.T) {
	s := started(t, "# story\nqueue ml gpu=8\nsubmit a queue=ml stages=ps(gpu=2)=Ready=>train(gpu=3) ready-after=30s stop-after=30s\nsubmit b queue=ml pods=gpu:1\nrun until=1m\n")
	var train admission.StageKey
	for key, w := range s.Workloads {
		if cluster.SubjectOf(w) == "a/train" {
			train = key
		}
	}
	s.Write(admission.Evict{Stage: train, Reason: "Preempted", Preemption: &admission.Preemption{
		Preemptor: admission.StageKey{Namespace: "default", Name: "b"}, Reason: "InClusterQueue",
	}})
	if err := s.runUntil(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0m admit a/ps", "0m admit b", "30s admit a/train",
		"1m evict a/train Preempted InClusterQueue for b", "1m evict a/ps with a/train",
		"1m30s stop a/train", "1m30s stop a/ps", "1m30s admit a/ps", "2m admit a/train",
	}
	if diff := cmp.Diff(want, s.Lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestChecks(t *testing.T) {
	s := started(t, "# story\nadmissioncheck capacity\nqueue ml gpu=8 checks=capacity\nsubmit a queue=ml stages=train(gpu=3) run=1m\n"+
		"check a other=Ready at=1m\nrun until=1m\n")
	isReleased := func() bool {
		jobs := s.JobsOf(s.JobSets[types.NamespacedName{Namespace: "default", Name: "a"}].UID)
		return len(jobs) == 1 && childjob.IsRunning(jobs[0])
	}
	if isReleased() {
		t.Error("the pods start before the check is ready")
	}
	s.check(scenario.Check{Target: scenario.Target{Name: "a"}, States: []scenario.CheckState{{Check: "capacity", State: "Ready"}}})
	if err := s.instant(); err != nil {
		t.Fatal(err)
	}
	if !isReleased() {
		t.Error("the pods do not start when the check is ready")
	}
	want := []string{"0m reserve a/train, checks capacity", "1m ignore check a: it does not wait for a check of this name", "1m admit a/train"}
	if diff := cmp.Diff(want, s.Lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestSameNames submits a JobSet and another job of one name in two namespaces, and acts on some of them.
func TestSameNames(t *testing.T) {
	s := started(t, "# story\nqueue ml gpu=8\nlocalqueue ml queue=ml namespace=team\nsubmit a queue=ml stages=train(gpu=2)\nsubmit b queue=ml pods=gpu:1\nrun until=1m\n")
	for name, key := range map[string]string{"a": "stages=train(gpu=3)", "b": "pods=gpu:1"} {
		script, err := scenario.Parse("# story\nsubmit " + name + " queue=ml namespace=team " + key + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.submit(*script.Lines[1].Statement.(scenario.Submit).Submission); err != nil { //nolint:forcetypeassert // it is a submit line
			t.Fatal(err)
		}
	}
	if err := s.runUntil(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		s.act(scenario.Act{Action: scenario.Finish, Target: scenario.Target{Namespace: "team", Name: name}})
	}
	if err := s.runUntil(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"held ml gpu 3/8: a/train 2, b 1"}, s.HeldLines("")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(s.Violations) > 0 {
		t.Error(s.Violations)
	}
}
