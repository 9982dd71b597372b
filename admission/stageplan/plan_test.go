package stageplan_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

type (
	spec = jobsetv1alpha2.JobSetSpec
	job  = jobsetv1alpha2.ReplicatedJob
)

// newJob makes a ReplicatedJob of one pod that asks for the given resources, written "cpu=1 nvidia.com/gpu=2".
func newJob(name, requests string, more ...func(*job)) job {
	var j job
	j.Name = name
	j.Replicas = 1
	j.Template.Spec.Template.Spec.Containers = []corev1.Container{{
		Name:      "main",
		Resources: corev1.ResourceRequirements{Requests: resources(requests)},
	}}
	for _, m := range more {
		m(&j)
	}
	return j
}

func replicas(n int32) func(*job) { return func(j *job) { j.Replicas = n } }

func parallelism(n int32) func(*job) { return func(j *job) { j.Template.Spec.Parallelism = &n } }

func completions(n int32) func(*job) { return func(j *job) { j.Template.Spec.Completions = &n } }

// after adds dependencies, written "name Ready" or "name Complete".
func after(dependencies ...string) func(*job) {
	return func(j *job) {
		for _, d := range dependencies {
			name, status, _ := strings.Cut(d, " ")
			j.DependsOn = append(j.DependsOn, jobset.DependsOn{Name: name, Status: jobset.DependsOnStatus(status)})
		}
	}
}

func resources(s string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for field := range strings.FieldsSeq(s) {
		name, amount, _ := strings.Cut(field, "=")
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return list
}

func newSpec(jobs ...job) *spec { return &spec{ReplicatedJobs: jobs} }

// inOrder makes a JobSet with startupPolicyOrder InOrder and rules written "a b Ready".
func inOrder(rules []string, jobs ...job) *spec {
	s := newSpec(jobs...)
	s.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	for _, r := range rules {
		words := strings.Fields(r)
		var rule jobsetv1alpha2.StartupPolicyRule
		switch last := words[len(words)-1]; last {
		case "Ready":
			rule.WaitForReplicatedJobsStatus = "Ready"
			words = words[:len(words)-1]
		case "Succeeded":
			rule.WaitForReplicatedJobsStatus = "Succeeded"
			words = words[:len(words)-1]
		}
		rule.TargetReplicatedJobs = words
		s.StartupPolicy.Rules = append(s.StartupPolicy.Rules, rule)
	}
	return s
}

func mustPlan(t *testing.T, s *spec) *stageplan.Plan {
	t.Helper()
	p, err := stageplan.New(s)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return p
}

func TestNew(t *testing.T) {
	gpu := func(name string, more ...func(*job)) job { return newJob(name, "gpu=1", more...) }
	anyOrder := newSpec(gpu("a"), gpu("b"))
	anyOrder.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobset.AnyOrder}
	cases := map[string]struct {
		spec     *spec
		want     string
		wantPeak string
		wantSum  string
		wantRuns [][]int
	}{
		"no policy: one stage": {
			spec: newSpec(gpu("a"), gpu("b")), want: "a.b", wantPeak: "gpu=2", wantSum: "gpu=2", wantRuns: [][]int{{0}},
		},
		"AnyOrder: one stage": {
			spec: anyOrder, want: "a.b", wantPeak: "gpu=2", wantSum: "gpu=2", wantRuns: [][]int{{0}},
		},
		"InOrder without rules: each waits until the one before is ready": {
			spec: inOrder(nil, gpu("a"), gpu("b"), gpu("c")),
			want: "a -Ready-> b -Ready-> c", wantPeak: "gpu=3", wantSum: "gpu=3", wantRuns: [][]int{{0, 1, 2}},
		},
		"InOrder with one ReplicatedJob": {
			spec: inOrder(nil, gpu("a")), want: "a", wantPeak: "gpu=1", wantSum: "gpu=1", wantRuns: [][]int{{0}},
		},
		"KEP-672 story 1": {
			spec: inOrder([]string{"initializer Succeeded"},
				newJob("initializer", "cpu=1"), newJob("trainer-node", "nvidia.com/gpu=5", parallelism(3), completions(3))),
			want:     "initializer -Succeeded-> trainer-node",
			wantPeak: "cpu=1 nvidia.com/gpu=15", wantSum: "cpu=1 nvidia.com/gpu=15", wantRuns: [][]int{{0}, {1}},
		},
		"KEP-672 story 2": {
			spec: inOrder([]string{"initializer Succeeded", "launcher Ready"},
				newJob("initializer", "gpu=7"), newJob("launcher", "gpu=5"), newJob("trainer-node", "gpu=5", parallelism(3), completions(3))),
			want:     "initializer -Succeeded-> launcher -Ready-> trainer-node",
			wantPeak: "gpu=20", wantSum: "gpu=27", wantRuns: [][]int{{0}, {1, 2}},
		},
		"a rule without status waits until ready": {
			spec: inOrder([]string{"a"}, gpu("a"), gpu("b")),
			want: "a -Ready-> b", wantPeak: "gpu=2", wantSum: "gpu=2", wantRuns: [][]int{{0, 1}},
		},
		"targets of one rule start together in the order of the spec": {
			spec: inOrder([]string{"b a Succeeded", "c Ready"}, gpu("a"), gpu("b"), gpu("c"), gpu("d")),
			want: "a.b -Succeeded-> c -Ready-> d", wantPeak: "gpu=2", wantSum: "gpu=4", wantRuns: [][]int{{0}, {1, 2}},
		},
		"a stage that was only ready goes on beside all later ones": {
			spec: inOrder([]string{"ps Ready", "train Succeeded"}, newJob("ps", "gpu=2"), newJob("train", "gpu=6"), newJob("eval", "gpu=1")),
			want: "ps -Ready-> train -Succeeded-> eval", wantPeak: "gpu=8", wantSum: "gpu=9", wantRuns: [][]int{{0, 1, 2}},
		},
		"resources peak at different times": {
			spec: inOrder([]string{"a Succeeded"}, newJob("a", "cpu=8 gpu=1"), newJob("b", "cpu=2 gpu=4")),
			want: "a -Succeeded-> b", wantPeak: "cpu=8 gpu=4", wantSum: "cpu=10 gpu=5", wantRuns: [][]int{{0}, {1}},
		},
		"dependsOn chain": {
			spec: newSpec(gpu("a"), gpu("b", after("a Complete")), gpu("c", after("b Ready"))),
			want: "a -Succeeded-> b -Ready-> c", wantPeak: "gpu=2", wantSum: "gpu=3", wantRuns: [][]int{{0}, {1, 2}},
		},
		"dependsOn with AnyOrder written out": {
			spec: func() *spec {
				s := newSpec(gpu("a"), gpu("b", after("a Complete")))
				s.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobset.AnyOrder}
				return s
			}(),
			want: "a -Succeeded-> b", wantPeak: "gpu=1", wantSum: "gpu=2", wantRuns: [][]int{{0}, {1}},
		},
		"same dependencies in any order start together, roots too": {
			spec: newSpec(gpu("a"), gpu("x", after("a Ready")), gpu("b"),
				gpu("c", after("a Complete", "b Ready")), gpu("d", after("b Ready", "a Complete"))),
			want:     "a.b; a.b[a] -Ready-> x; a.b[b] -Ready-> c.d & a.b[a] -Succeeded-> c.d",
			wantPeak: "gpu=4", wantSum: "gpu=5", wantRuns: [][]int{{0, 1, 2}},
		},
		"the same target with another status is another stage": {
			spec: newSpec(gpu("a"), gpu("b", after("a Ready")), gpu("c", after("a Complete"))),
			want: "a -Ready-> b; a -Succeeded-> c", wantPeak: "gpu=2", wantSum: "gpu=3", wantRuns: [][]int{{0, 1, 2}},
		},
		"diamond": {
			spec: newSpec(gpu("a"), gpu("b", after("a Complete")), gpu("c", after("a Complete", "b Ready")),
				gpu("d", after("b Complete", "c Complete"))),
			want:     "a -Succeeded-> b; a -Succeeded-> c & b -Ready-> c; b -Succeeded-> d & c -Succeeded-> d",
			wantPeak: "gpu=2", wantSum: "gpu=4", wantRuns: [][]int{{0}, {1, 2}, {3}},
		},
		"a crossing, where the first pairs found must be taken back to find the peak": {
			spec: newSpec(newJob("r", "cpu=1"), gpu("a", after("r Complete")), gpu("b", after("r Ready")),
				gpu("c", after("a Complete", "b Complete")), gpu("d", after("a Complete"))),
			want:     "r -Succeeded-> a; r -Ready-> b; a -Succeeded-> c & b -Succeeded-> c; a -Succeeded-> d",
			wantPeak: "cpu=1 gpu=2", wantSum: "cpu=1 gpu=4", wantRuns: [][]int{{0, 1, 2, 3, 4}},
		},
		"a part that succeeded does not finish its stage, and gives its own quota back": {
			spec: newSpec(gpu("a"), gpu("b"), gpu("c", after("a Complete"))),
			want: "a.b; a.b[a] -Succeeded-> c", wantPeak: "gpu=2", wantSum: "gpu=3", wantRuns: [][]int{{0, 1}},
		},
		"parts that succeeded one after the other do": {
			spec: newSpec(gpu("a"), gpu("b"), gpu("c", after("a Complete")), gpu("d", after("b Complete", "c Ready"))),
			want: "a.b; a.b[a] -Succeeded-> c; a.b[b] -Succeeded-> d & c -Ready-> d",
			// d opens after a.b has finished, beside c.
			wantPeak: "gpu=2", wantSum: "gpu=4", wantRuns: [][]int{{0, 1, 2}},
		},
		"dependencies are merged by stage and status": {
			spec: newSpec(gpu("a"), gpu("b"), gpu("c"), gpu("d", after("a Ready")),
				gpu("e", after("d Complete", "c Complete", "b Ready", "a Complete"))),
			want:     "a.b.c; a.b.c[a] -Ready-> d; a.b.c[b] -Ready-> e & a.b.c[a,c] -Succeeded-> e & d -Succeeded-> e",
			wantPeak: "gpu=4", wantSum: "gpu=5", wantRuns: [][]int{{0, 1, 2}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := mustPlan(t, c.spec)
			if diff := cmp.Diff(c.want, p.String()); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(resources(c.wantPeak), p.Peak()); diff != "" {
				t.Errorf("peak (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(resources(c.wantSum), p.Sum()); diff != "" {
				t.Errorf("sum (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.wantRuns, p.HoldSegments()); diff != "" {
				t.Errorf("hold segments (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNewFields shows the whole value once.
func TestNewFields(t *testing.T) {
	s := inOrder([]string{"a b Succeeded"}, newJob("a", "cpu=1"), newJob("b", "cpu=2", replicas(3)), newJob("c", "gpu=4"))
	template := func(i int) *corev1.PodTemplateSpec { return &s.ReplicatedJobs[i].Template.Spec.Template }
	want := &stageplan.Plan{Stages: []stageplan.Stage{
		{
			Name:           "a.b",
			ReplicatedJobs: []string{"a", "b"},
			PodSets: []stageplan.PodSet{
				{Name: "a", Count: 1, Requests: resources("cpu=1"), Template: template(0)},
				{Name: "b", Count: 3, Requests: resources("cpu=2"), Template: template(1)},
			},
		},
		{
			Name:           "c",
			ReplicatedJobs: []string{"c"},
			PodSets:        []stageplan.PodSet{{Name: "c", Count: 1, Requests: resources("gpu=4"), Template: template(2)}},
			After:          []stageplan.Condition{{Stage: 0, Targets: []string{"a", "b"}, Status: stageplan.Succeeded}},
		},
	}}
	got := mustPlan(t, s)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(resources("cpu=7"), got.Stages[0].Requests()); diff != "" {
		t.Errorf("requests of the first stage (-want +got):\n%s", diff)
	}
}

func TestPeakOf(t *testing.T) {
	p := mustPlan(t, inOrder([]string{"a Succeeded", "b Ready"},
		newJob("a", "gpu=7"), newJob("b", "gpu=2"), newJob("c", "gpu=3")))
	cases := map[string]struct {
		stages []int
		want   string
	}{
		"all":                {stages: []int{0, 1, 2}, want: "gpu=7"},
		"the first finished": {stages: []int{1, 2}, want: "gpu=5"},
		"only the last left": {stages: []int{2}, want: "gpu=3"},
		"none":               {},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(resources(c.want), p.PeakOf(c.stages)); diff != "" {
				t.Errorf("peak (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMostHeldOfAmounts(t *testing.T) {
	chain := mustPlan(t, inOrder([]string{"a Succeeded", "b Ready"}, newJob("a", ""), newJob("b", ""), newJob("c", "")))
	crossing := mustPlan(t, newSpec(newJob("r", ""), newJob("a", "", after("r Complete")), newJob("b", "", after("r Ready")),
		newJob("c", "", after("a Complete", "b Complete")), newJob("d", "", after("a Complete"))))
	cases := map[string]struct {
		plan    *stageplan.Plan
		amounts []int64
		want    int64
	}{
		"the first":                 {plan: chain, amounts: []int64{7, 2, 3}, want: 7},
		"those after it":            {plan: chain, amounts: []int64{4, 2, 3}, want: 5},
		"below zero counts as zero": {plan: chain, amounts: []int64{-9, 2, -3}, want: 2},
		"the sum fits exactly":      {plan: chain, amounts: []int64{0, math.MaxInt64 - 2, 1}, want: math.MaxInt64 - 1},
		"the sum does not fit":      {plan: chain, amounts: []int64{math.MaxInt64 / 2, math.MaxInt64 / 2, 2}, want: math.MaxInt64},
		// b and d are held together, whichever part of a was first paired with c.
		"fewer pairs taken back than asked for": {plan: crossing, amounts: []int64{0, 1, 3, 2, 3}, want: 6},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.plan.MostHeld(c.amounts); got != c.want {
				t.Errorf("most held %d, want %d", got, c.want)
			}
		})
	}
}

func TestZeroPlan(t *testing.T) {
	var p stageplan.Plan
	if p.String() != "" || len(p.Sum()) > 0 || len(p.Peak()) > 0 || len(p.HoldSegments()) > 0 || p.MostHeld(nil) != 0 {
		t.Errorf("the zero Plan holds something: %q %v %v", p.String(), p.Sum(), p.Peak())
	}
}

func TestStageNames(t *testing.T) {
	long := strings.Repeat("x", 60)
	four := []job{newJob("alpha-alpha-alpha", ""), newJob("beta-beta-beta-beta", ""), newJob("gamma-gamma-gamma", ""), newJob("delta-delta", "")}
	cases := map[string]struct {
		spec *spec
		want []string
	}{
		"exactly 63 characters": {
			spec: newSpec(newJob(strings.Repeat("a", 31), ""), newJob(strings.Repeat("b", 31), "")),
			want: []string{strings.Repeat("a", 31) + "." + strings.Repeat("b", 31)},
		},
		"one more": {
			spec: newSpec(newJob(strings.Repeat("a", 31), ""), newJob(strings.Repeat("b", 32), "")),
			want: []string{strings.Repeat("a", 31) + ".1-more"},
		},
		"too many to list": {
			spec: newSpec(four...),
			want: []string{"alpha-alpha-alpha.3-more"},
		},
		"names that are equal when cut": {
			spec: inOrder([]string{long + "-1 b c", long + "-2 d e"},
				newJob(long+"-1", ""), newJob("b", ""), newJob("c", ""), newJob(long+"-2", ""), newJob("d", ""), newJob("e", ""), newJob("last", "")),
			want: []string{strings.Repeat("x", 56) + ".2-more", strings.Repeat("x", 54) + ".2-more.2", "last"},
		},
		"a cut never ends in a dash": {
			spec: newSpec(newJob(strings.Repeat("y", 50)+"------yyyy", ""), newJob("b", "")),
			want: []string{strings.Repeat("y", 50) + "------yyyy.b"},
		},
		"a cut in a dash": {
			spec: newSpec(newJob(strings.Repeat("y", 50)+"------yyyyy", ""), newJob("b", ""), newJob("c", "")),
			want: []string{strings.Repeat("y", 50) + ".2-more"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range mustPlan(t, c.spec).Stages {
				got = append(got, s.Name)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// problemsOf returns the problems that New reports, one line each.
func problemsOf(t *testing.T, s *spec) []string {
	t.Helper()
	p, err := stageplan.New(s)
	if err == nil {
		return nil
	}
	if p != nil {
		t.Errorf("New returned a plan and an error")
	}
	var problems stageplan.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("New: %T is not Problems", err)
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return lines
}
