package stageplan

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/validation"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// checkStructure checks for all that would prevent groupsOf from making a plan in which every ReplicatedJob is in exactly one stage.
func checkStructure(spec *jobsetv1alpha2.JobSetSpec) Problems {
	problems := checkNames(spec)
	problems = append(problems, checkOrder(spec)...)
	problems = append(problems, checkDependencies(spec)...)
	return append(problems, checkRules(spec)...)
}

func checkNames(spec *jobsetv1alpha2.JobSetSpec) Problems {
	var problems Problems
	if len(spec.ReplicatedJobs) == 0 {
		problems = problems.addf(replicatedJobsField, "must have at least one ReplicatedJob, otherwise there is nothing to start")
	}
	index := indexByName(spec)
	for i := range spec.ReplicatedJobs {
		name := spec.ReplicatedJobs[i].Name
		if len(validation.IsDNS1123Label(name)) > 0 { // the name of a PodSet of its quota Workload
			problems = problems.addf(jobField(i)+".name", "%q must consist of lower-case letters, digits and '-', "+
				"begin and end with a letter or a digit, and have at most %d characters", name, maxNameLength)
		}
		if first := index[name]; first != i {
			problems = problems.addf(jobField(i)+".name", "%q is already the name of %s", name, jobField(first))
		}
	}
	return problems
}

func checkOrder(spec *jobsetv1alpha2.JobSetSpec) Problems {
	var problems Problems
	if spec.StartupPolicy == nil {
		return nil
	}
	switch order := spec.StartupPolicy.StartupPolicyOrder; order {
	case jobset.InOrder:
	case jobset.AnyOrder, "":
		if len(spec.StartupPolicy.Rules) > 0 {
			problems = problems.addf(rulesField, "need startupPolicyOrder: InOrder")
		}
	default:
		problems = problems.addf("spec.startupPolicy.startupPolicyOrder", "%q must be %s or %s", order, jobset.AnyOrder, jobset.InOrder)
	}
	return problems
}

func checkDependencies(spec *jobsetv1alpha2.JobSetSpec) Problems {
	var problems Problems
	index := indexByName(spec)
	for i := range spec.ReplicatedJobs {
		field := jobField(i) + ".dependsOn"
		dependencies := spec.ReplicatedJobs[i].DependsOn
		switch {
		case len(dependencies) == 0:
			continue
		case spec.StartupPolicy != nil && len(spec.StartupPolicy.Rules) > 0:
			problems = problems.addf(field, "excludes %s: order the ReplicatedJobs by one of the two", rulesField)
		case inOrder(spec):
			problems = problems.addf(field, "excludes startupPolicyOrder: InOrder: order the ReplicatedJobs by one of the two")
		}
		problems = append(problems, checkDependsOn(i, dependencies, index)...)
	}
	return problems
}

func checkDependsOn(job int, dependencies []jobset.DependsOn, index map[string]int) Problems {
	var problems Problems
	seen := map[string]bool{}
	for k, d := range dependencies {
		field := dependencyField(job, k)
		on, known := index[d.Name]
		switch {
		case !known:
			problems = problems.addf(field+".name", "%q is not a ReplicatedJob of this JobSet", d.Name)
		case on == job:
			problems = problems.addf(field+".name", "%q cannot wait for itself", d.Name)
		case on > job:
			problems = problems.addf(field+".name", "%q comes later in %s: a ReplicatedJob can only wait for those before it", d.Name, replicatedJobsField)
		case seen[d.Name]:
			problems = problems.addf(field+".name", "%q is already in this list", d.Name)
		}
		seen[d.Name] = true
		if d.Status != jobset.DependencyReady && d.Status != jobset.DependencyComplete {
			problems = problems.addf(field+".status", "%q must be %s or %s", d.Status, jobset.DependencyReady, jobset.DependencyComplete)
		}
	}
	return problems
}

// checkRules compares the rules with the ReplicatedJobs: each except the last is a target exactly once, in the same order.
func checkRules(spec *jobsetv1alpha2.JobSetSpec) Problems {
	if spec.StartupPolicy == nil || len(spec.StartupPolicy.Rules) == 0 || len(spec.ReplicatedJobs) == 0 {
		return nil
	}
	c := rulesChecker{spec: spec, index: indexByName(spec), ruleOf: map[string]int{}, latest: -1}
	for i := range spec.StartupPolicy.Rules {
		c.checkRule(i)
	}
	for i := range len(spec.ReplicatedJobs) - 1 {
		name := spec.ReplicatedJobs[i].Name
		if _, named := c.ruleOf[name]; !named && c.index[name] == i {
			c.problems = c.problems.addf(rulesField, "%q is in no rule: every ReplicatedJob but the last must be in one", name)
		}
	}
	return c.problems
}

type rulesChecker struct {
	spec  *jobsetv1alpha2.JobSetSpec
	index map[string]int
	// ruleOf has the first rule that names a target.
	ruleOf map[string]int
	// latest is the index in the spec of the last ReplicatedJob that an earlier rule has named.
	latest   int
	problems Problems
}

func (c *rulesChecker) checkRule(i int) {
	rule := &c.spec.StartupPolicy.Rules[i]
	if len(rule.TargetReplicatedJobs) == 0 {
		c.problems = c.problems.addf(ruleField(i)+".targetReplicatedJobs", "must name at least one ReplicatedJob")
	}
	latest := c.latest
	for k, name := range rule.TargetReplicatedJobs {
		if c.checkTarget(i, k) {
			latest = max(latest, c.index[name])
		}
	}
	c.latest = latest
	if s := cmp.Or(Status(rule.WaitForReplicatedJobsStatus), Ready); s != Ready && s != Succeeded {
		c.problems = c.problems.addf(ruleField(i)+".waitForReplicatedJobsStatus", "%q must be %s or %s", s, Ready, Succeeded)
	}
}

// checkTarget reports whether the target counts for the order of those that follow.
func (c *rulesChecker) checkTarget(rule, target int) bool {
	name := c.spec.StartupPolicy.Rules[rule].TargetReplicatedJobs[target]
	field := targetField(rule, target)
	job, known := c.index[name]
	first, repeated := c.ruleOf[name]
	if !repeated {
		c.ruleOf[name] = rule
	}
	switch {
	case !known:
		c.problems = c.problems.addf(field, "%q is not a ReplicatedJob of this JobSet", name)
	case repeated:
		c.problems = c.problems.addf(field, "%q is already a target of %s", name, ruleField(first))
	case job == len(c.spec.ReplicatedJobs)-1:
		c.problems = c.problems.addf(field, "%q is the last ReplicatedJob, so that nothing waits for it: remove it from the rules", name)
	case job < c.latest:
		c.problems = c.problems.addf(field, "%q comes before %q of an earlier rule in %s: rules must keep that order",
			name, c.spec.ReplicatedJobs[c.latest].Name, replicatedJobsField)
	default:
		return true
	}
	return false
}

// checkLimits reports stages that are too large, and whether there are too many.
func checkLimits(groups []group) Problems {
	var problems Problems
	if len(groups) > MaxStages {
		problems = problems.addf(replicatedJobsField, "make %d stages, the most is %d: let more of them start together, or split the JobSet",
			len(groups), MaxStages)
	}
	for _, g := range groups {
		if len(g.jobs) > MaxReplicatedJobs {
			problems = problems.addf(g.field, "lets %d ReplicatedJobs start together, the most is %d: let some wait for others, "+
				"or make one with more replicas of those that have the same pods", len(g.jobs), MaxReplicatedJobs)
		}
	}
	return problems
}
