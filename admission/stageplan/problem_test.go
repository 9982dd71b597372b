package stageplan_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

func TestStructureProblems(t *testing.T) {
	a, b, c := newJob("a", ""), newJob("b", ""), newJob("c", "")
	withOrder := func(order jobset.StartupPolicyOptions, rules []string) *spec {
		s := inOrder(rules, a, b)
		s.StartupPolicy.StartupPolicyOrder = order
		return s
	}
	cases := map[string]struct {
		spec *spec
		want []string
	}{
		"no spec": {
			want: []string{"spec.replicatedJobs: must have at least one ReplicatedJob, otherwise there is nothing to start"},
		},
		"no ReplicatedJobs, but rules": {
			spec: inOrder([]string{"a Ready"}),
			want: []string{"spec.replicatedJobs: must have at least one ReplicatedJob, otherwise there is nothing to start"},
		},
		"name that no PodSet can have": {
			spec: newSpec(newJob("A.b", ""), newJob("", "")),
			want: []string{
				"spec.replicatedJobs[0].name: \"A.b\" must consist of lower-case letters, digits and '-', begin and end with a letter or a digit, and have at most 63 characters",
				"spec.replicatedJobs[1].name: \"\" must consist of lower-case letters, digits and '-', begin and end with a letter or a digit, and have at most 63 characters",
			},
		},
		"name twice": {
			spec: newSpec(a, b, a),
			want: []string{`spec.replicatedJobs[2].name: "a" is already the name of spec.replicatedJobs[0]`},
		},
		"unknown order": {
			spec: withOrder("Sometimes", nil),
			want: []string{`spec.startupPolicy.startupPolicyOrder: "Sometimes" must be AnyOrder or InOrder`},
		},
		"rules with AnyOrder": {
			spec: withOrder(jobset.AnyOrder, []string{"a Ready"}),
			want: []string{"spec.startupPolicy.rules: need startupPolicyOrder: InOrder"},
		},
		"rules without an order": {
			spec: withOrder("", []string{"a Ready"}),
			want: []string{"spec.startupPolicy.rules: need startupPolicyOrder: InOrder"},
		},
		"unknown target": {
			spec: inOrder([]string{"a absent Ready"}, a, b),
			want: []string{`spec.startupPolicy.rules[0].targetReplicatedJobs[1]: "absent" is not a ReplicatedJob of this JobSet`},
		},
		"target twice in one rule": {
			spec: inOrder([]string{"a a Ready"}, a, b), //nolint:dupword // the same name twice is the case
			want: []string{`spec.startupPolicy.rules[0].targetReplicatedJobs[1]: "a" is already a target of spec.startupPolicy.rules[0]`},
		},
		"target in two rules": {
			spec: inOrder([]string{"a Ready", "b a Ready"}, a, b, c),
			want: []string{`spec.startupPolicy.rules[1].targetReplicatedJobs[1]: "a" is already a target of spec.startupPolicy.rules[0]`},
		},
		"ReplicatedJob in no rule": {
			spec: inOrder([]string{"a Ready"}, a, b, c),
			want: []string{`spec.startupPolicy.rules: "b" is in no rule: every ReplicatedJob but the last must be in one`},
		},
		"name twice and in no rule": {
			spec: inOrder([]string{"a Ready"}, a, b, b, c),
			want: []string{
				`spec.replicatedJobs[2].name: "b" is already the name of spec.replicatedJobs[1]`,
				`spec.startupPolicy.rules: "b" is in no rule: every ReplicatedJob but the last must be in one`,
			},
		},
		"last ReplicatedJob in a rule": {
			spec: inOrder([]string{"a Ready", "b Ready"}, a, b),
			want: []string{`spec.startupPolicy.rules[1].targetReplicatedJobs[0]: "b" is the last ReplicatedJob, so that nothing waits for it: remove it from the rules`},
		},
		"rules out of order": {
			spec: inOrder([]string{"b Ready", "a Ready"}, a, b, c),
			want: []string{`spec.startupPolicy.rules[1].targetReplicatedJobs[0]: "a" comes before "b" of an earlier rule in spec.replicatedJobs: rules must keep that order`},
		},
		"rule without targets": {
			spec: inOrder([]string{"Ready", "a Ready"}, a, b),
			want: []string{"spec.startupPolicy.rules[0].targetReplicatedJobs: must name at least one ReplicatedJob"},
		},
		"rule with unknown status": {
			spec: func() *spec {
				s := inOrder([]string{"a"}, a, b)
				s.StartupPolicy.Rules[0].WaitForReplicatedJobsStatus = "Complete"
				return s
			}(),
			want: []string{`spec.startupPolicy.rules[0].waitForReplicatedJobsStatus: "Complete" must be Ready or Succeeded`},
		},
		"rules with dependsOn": {
			spec: inOrder([]string{"a Ready"}, a, newJob("b", "", after("a Ready"))),
			want: []string{"spec.replicatedJobs[1].dependsOn: excludes spec.startupPolicy.rules: order the ReplicatedJobs by one of the two"},
		},
		"InOrder with dependsOn": {
			spec: inOrder(nil, a, newJob("b", "", after("a Ready"))),
			want: []string{"spec.replicatedJobs[1].dependsOn: excludes startupPolicyOrder: InOrder: order the ReplicatedJobs by one of the two"},
		},
		"dependsOn unknown": {
			spec: newSpec(a, newJob("b", "", after("absent Ready"))),
			want: []string{`spec.replicatedJobs[1].dependsOn[0].name: "absent" is not a ReplicatedJob of this JobSet`},
		},
		"dependsOn itself": {
			spec: newSpec(a, newJob("b", "", after("a Ready", "b Ready"))),
			want: []string{`spec.replicatedJobs[1].dependsOn[1].name: "b" cannot wait for itself`},
		},
		"dependsOn later": {
			spec: newSpec(newJob("a", "", after("b Ready")), b),
			want: []string{`spec.replicatedJobs[0].dependsOn[0].name: "b" comes later in spec.replicatedJobs: a ReplicatedJob can only wait for those before it`},
		},
		"dependsOn twice": {
			spec: newSpec(a, newJob("b", "", after("a Ready", "a Complete"))),
			want: []string{`spec.replicatedJobs[1].dependsOn[1].name: "a" is already in this list`},
		},
		"dependsOn with unknown status": {
			spec: newSpec(a, newJob("b", "", after("a Succeeded"))),
			want: []string{`spec.replicatedJobs[1].dependsOn[0].status: "Succeeded" must be Ready or Complete`},
		},
		"all at once": {
			spec: inOrder([]string{"x Ready", "b Ready"}, a, b, newJob("c", "", replicas(-1))),
			want: []string{
				"spec.replicatedJobs[2].replicas: -1 must not be negative",
				`spec.startupPolicy.rules[0].targetReplicatedJobs[0]: "x" is not a ReplicatedJob of this JobSet`,
				`spec.startupPolicy.rules: "a" is in no rule: every ReplicatedJob but the last must be in one`,
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problemsOf(t, c.spec)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	jobs := func(n int, more ...func(*job)) []job {
		var list []job
		for i := range n {
			list = append(list, newJob(fmt.Sprintf("j%d", i), "", more...))
		}
		return list
	}
	names := func(list []job) (names string) {
		for i := range list {
			names += list[i].Name + " "
		}
		return names
	}
	const cure = ": let some wait for others, or make one with more replicas of those that have the same pods"
	cases := map[string]struct {
		spec *spec
		want []string
	}{
		"18 start together":         {spec: newSpec(jobs(18)...)},
		"18 and one that waits":     {spec: newSpec(append(jobs(18), newJob("z", "", after("j0 Ready")))...)},
		"100 stages":                {spec: inOrder(nil, jobs(100)...)},
		"19 without policy":         {spec: newSpec(jobs(19)...), want: []string{"spec.replicatedJobs: lets 19 ReplicatedJobs start together, the most is 18" + cure}},
		"19 targets of a rule":      {spec: inOrder([]string{"a", names(jobs(19))}, append(append([]job{newJob("a", "")}, jobs(19)...), newJob("z", ""))...), want: []string{"spec.startupPolicy.rules[1].targetReplicatedJobs: lets 19 ReplicatedJobs start together, the most is 18" + cure}},
		"19 with equal dependsOn":   {spec: newSpec(append([]job{newJob("a", "")}, jobs(19, after("a Ready"))...)...), want: []string{"spec.replicatedJobs[1].dependsOn: lets 19 ReplicatedJobs start together, the most is 18" + cure}},
		"101 stages":                {spec: inOrder(nil, jobs(101)...), want: []string{"spec.replicatedJobs: make 101 stages, the most is 100: let more of them start together, or split the JobSet"}},
		"ten thousand, quickly":     {spec: inOrder(nil, jobs(10000)...), want: []string{"spec.replicatedJobs: make 10000 stages, the most is 100: let more of them start together, or split the JobSet"}},
		"the most that is possible": {spec: layered(100, 18)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problemsOf(t, c.spec)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// layered makes a JobSet of stages with as many ReplicatedJobs each, every one waiting for the stage before.
func layered(stages, width int) *spec {
	s := newSpec()
	s.StartupPolicy = &jobsetv1alpha2.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	for i := range stages - 1 {
		rule := jobsetv1alpha2.StartupPolicyRule{WaitForReplicatedJobsStatus: "Succeeded"}
		if i%3 == 0 {
			rule.WaitForReplicatedJobsStatus = "Ready"
		}
		for k := range width {
			name := fmt.Sprintf("s%d-%d", i, k)
			rule.TargetReplicatedJobs = append(rule.TargetReplicatedJobs, name)
			s.ReplicatedJobs = append(s.ReplicatedJobs, newJob(name, "cpu=1 memory=1Gi nvidia.com/gpu=1"))
		}
		s.StartupPolicy.Rules = append(s.StartupPolicy.Rules, rule)
	}
	s.ReplicatedJobs = append(s.ReplicatedJobs, newJob("last", "cpu=1 memory=1Gi nvidia.com/gpu=1"))
	return s
}

func TestAmountProblems(t *testing.T) {
	cases := map[string]struct {
		spec *spec
		want []string
	}{
		"the most pods": {spec: newSpec(newJob("a", "", replicas(math.MaxInt32)))},
		"one more": {
			spec: newSpec(newJob("a", "", replicas(1<<16), parallelism(1<<15))),
			want: []string{"spec.replicatedJobs[0].replicas: 65536 Jobs of 32768 pods each are more than 2147483647 pods"},
		},
		"numbers below zero": {
			spec: newSpec(newJob("a", "cpu=-1", replicas(-1), parallelism(-2), completions(-3))),
			want: []string{
				"spec.replicatedJobs[0].template.spec.parallelism: -2 must not be negative",
				"spec.replicatedJobs[0].template.spec.completions: -3 must not be negative",
				"spec.replicatedJobs[0].replicas: -1 must not be negative",
				"spec.replicatedJobs[0].template.spec.template.spec: requests of cpu must not be negative",
			},
		},
		"one pod too large, as the API server reads what does not fit": {
			spec: newSpec(newJob("a", "memory=9e30")),
			want: []string{"spec.replicatedJobs[0].template.spec.template.spec: requests of memory are larger than any quota"},
		},
		"CPUs are counted in thousandths": {
			spec: newSpec(newJob("a", "cpu=10P memory=10P")),
			want: []string{"spec.replicatedJobs[0].template.spec.template.spec: requests of cpu are larger than any quota"},
		},
		"all pods too large": {
			spec: newSpec(newJob("a", "memory=5E", replicas(2))),
			want: []string{"spec.replicatedJobs[0].template.spec.template.spec: requests of memory times 2 pods are larger than any quota"},
		},
		"all ReplicatedJobs too large, even one after the other": {
			spec: inOrder([]string{"a Succeeded"}, newJob("a", "memory=5E"), newJob("b", "memory=5E")),
			want: []string{"spec.replicatedJobs: requests of memory by all ReplicatedJobs together are larger than any quota"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, problemsOf(t, c.spec)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProblemsError(t *testing.T) {
	var problems stageplan.Problems
	for i := range 10 {
		problems = append(problems, stageplan.Problem{Field: fmt.Sprintf("f%d", i), Message: "m"})
	}
	want := "f0: m; f1: m; f2: m; f3: m; f4: m; f5: m; f6: m; f7: m; and 2 more"
	if diff := cmp.Diff(want, problems.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}
