package simulator

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
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
		"something held is forgotten": {func(s *simulation) { delete(s.objects.workloads, key) }, "I4: the engine charges 3 gpu"},
		"something is held twice": {func(s *simulation) {
			twin := s.objects.workloads[key].DeepCopy()
			twin.Name = "twin"
			s.objects.workloads[keyOf(twin)] = twin
		}, "and 6 are held"},
		"a queue is not known": {func(s *simulation) {
			q := s.objects.clusterQueues["ml"].DeepCopy()
			q.Name = "other"
			s.objects.clusterQueues["other"] = q
		}, "I5: the engine does not know ClusterQueue other"},
		"more is held than there is": {func(s *simulation) {
			s.objects.clusterQueues["ml"].Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
			s.auditAdmission(s.objects.workloads[key])
		}, "I1: ClusterQueue ml holds 3 gpu of flavor default, and may hold 2"},
		"more is held than the cohort has": {func(s *simulation) {
			s.objects.clusterQueues["ml"].Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota = resource.MustParse("2")
			s.objects.clusterQueues["ml"].Spec.CohortName = "lab"
			s.auditAdmission(s.objects.workloads[key])
		}, "I1: the tree of Cohort lab holds 3 gpu of flavor default, and has 2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := started(t, "# story\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:3\nrun until=1m\n")
			c.tamper(s)
			s.audit()
			got := strings.Join(s.out.violations, "\n")
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
	unknown := admission.StageKey{Namespace: "default", Name: "nobody"}
	s := started(t, "# story\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:3\nrun until=1m\n")
	s.write(admission.Admit{Stage: unknown})
	s.write(admission.Evict{Stage: unknown})
	s.write(admission.Refuse{Stage: unknown})
	again := s.objects.workloads[admission.StageKey{Namespace: "default", Name: "a"}]
	s.write(admission.Admit{Stage: keyOf(again), UID: again.UID, Admission: *again.Status.Admission})
	want := []string{
		"1m violation I4: the engine admits default/nobody, which does not exist",
		"1m violation I4: the engine evicts default/nobody, which does not exist",
		"1m violation I4: the engine admits a once more",
	}
	if diff := cmp.Diff(want, s.out.violations); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestEvictions plays decisions that the engine takes about preemption and AdmissionChecks.
func TestEvictions(t *testing.T) {
	s := started(t, "# story\nqueue ml gpu=8\nsubmit a queue=ml stages=ps(gpu=2)=Ready=>train(gpu=3) ready-after=30s stop-after=30s\nsubmit b queue=ml pods=gpu:1\nrun until=1m\n")
	var train admission.StageKey
	for key, w := range s.objects.workloads {
		if s.subjectOf(w) == "a/train" {
			train = key
		}
	}
	s.write(admission.Evict{Stage: train, Reason: "Preempted", Preemption: &admission.Preemption{
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
	if diff := cmp.Diff(want, s.out.lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestChecks(t *testing.T) {
	s := started(t, "# story\nadmissioncheck capacity\nqueue ml gpu=8 checks=capacity\nsubmit a queue=ml stages=train(gpu=3) run=1m\n"+
		"check a other=Ready at=1m\nrun until=1m\n")
	isReleased := func() bool {
		jobs := s.objects.jobsOf(s.objects.jobSets[s.jobs["a"].key()].UID)
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
	want := []string{"0m reserve a/train, checks capacity", "1m ignore check a: it waits for no check of this name", "1m admit a/train"}
	if diff := cmp.Diff(want, s.out.lines); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestConfigure(t *testing.T) {
	var c config
	if err := configure(&c, []scenario.Field{{Key: "stage-admission", Value: "Greedy"}}); err != nil {
		t.Fatal(err)
	}
	if c.StageAdmission != admission.Greedy {
		t.Errorf("StageAdmission is %q", c.StageAdmission)
	}
}

func TestClock(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0m", time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h", 100 * time.Minute: "1h40m",
		20 * time.Second: "20s", time.Hour + 30*time.Second: "1h0m30s", 500 * time.Millisecond: "500ms",
	} {
		if got := clock(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestEventQueue(t *testing.T) {
	var e eventQueue
	var got []int
	for i, at := range []time.Duration{2, 1, 2, 0} {
		e.add(at, func() { got = append(got, i) })
	}
	for f := e.due(1); f != nil; f = e.due(1) {
		f()
	}
	if diff := cmp.Diff([]int{3, 1}, got); diff != "" {
		t.Errorf("by 1: -want +got\n%s", diff)
	}
	for f := e.due(2); f != nil; f = e.due(2) {
		f()
	}
	if diff := cmp.Diff([]int{3, 1, 0, 2}, got); diff != "" {
		t.Errorf("by 2: -want +got\n%s", diff)
	}
}

// TestSettings finds and sets fields of every kind that a configuration may have.
func TestSettings(t *testing.T) {
	type inner struct {
		Timeout time.Duration
		Names   []string
	}
	type outer struct {
		FairSharing bool
		Limit       *int32
		Share       float64
		Wait        *inner
		hidden      string
	}
	o := outer{hidden: "x"}
	known := settings(reflect.TypeFor[outer](), "", func() reflect.Value { return reflect.ValueOf(&o).Elem() })
	if diff := cmp.Diff([]string{"fair-sharing", "limit", "share", "wait.names", "wait.timeout"}, sorted(known)); diff != "" {
		t.Fatalf("settings: -want +got\n%s", diff)
	}
	if o.Wait != nil {
		t.Error("a struct is made before one of its fields is set")
	}
	for key, value := range map[string]string{
		"fair-sharing": "true", "limit": "7", "share": "0.5", "wait.timeout": "90s", "wait.names": "a,b",
	} {
		if err := assign(known[key](), value); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if !o.FairSharing || *o.Limit != 7 || o.Share != 0.5 || o.Wait.Timeout != 90*time.Second || !slices.Equal(o.Wait.Names, []string{"a", "b"}) {
		t.Errorf("got %+v, limit %d, wait %+v", o, *o.Limit, *o.Wait)
	}
	for key, value := range map[string]string{"fair-sharing": "yes", "limit": "many", "share": "half", "wait.timeout": "5"} {
		if err := assign(known[key](), value); err == nil {
			t.Errorf("%s takes %q", key, value)
		}
	}
}
