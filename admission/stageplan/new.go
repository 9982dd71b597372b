package stageplan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetv1alpha2 "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const (
	// MaxReplicatedJobs is the maximum number of ReplicatedJobs of a stage: the limit of PodSets of a quota Workload.
	MaxReplicatedJobs = 18

	// MaxStages is the maximum number of stages of a plan. It bounds the cost of one JobSet for the manager: computations on a plan take time
	// that grows with the third power of its stages.
	MaxStages = 100
)

// New returns the plan of a JobSet. It does not rely on the validation of the API server, never panics, and does not keep or change the spec, except
// that the pod templates are shared. The error is of type Problems and lists all problems.
//
// Stages come in the order of their first ReplicatedJobs. That order is topological: a ReplicatedJob may only wait for those
// listed before it, and the ReplicatedJobs of a stage all wait for the same ones, hence for ones listed before the first of them.
func New(spec *jobsetv1alpha2.JobSetSpec) (*Plan, error) {
	groups, podSets, problems := read(spec)
	if len(problems) > 0 {
		return nil, problems
	}
	if problems := checkLimits(groups); len(problems) > 0 {
		return nil, problems
	}
	plan := &Plan{Stages: stagesOf(groups, podSets)}
	if problems := plan.checkSum(); len(problems) > 0 {
		return nil, problems
	}
	return plan, nil
}

// NewUnqueued returns the plan of a JobSet that has no quota Workloads, and may therefore be larger than MaxReplicatedJobs and MaxStages. Only
// the order of its stages is meaningful, not what they hold.
func NewUnqueued(spec *jobsetv1alpha2.JobSetSpec) (*Plan, error) {
	groups, podSets, problems := read(spec)
	if len(problems) > 0 {
		return nil, problems
	}
	return &Plan{Stages: stagesOf(groups, podSets)}, nil
}

// read returns the stages of a spec and the pods of all ReplicatedJobs, or the problems.
func read(spec *jobsetv1alpha2.JobSetSpec) ([]group, []PodSet, Problems) {
	if spec == nil {
		spec = &jobsetv1alpha2.JobSetSpec{}
	}
	podSets, problems := podSetsOf(spec)
	problems = append(problems, checkStructure(spec)...)
	if len(problems) > 0 {
		return nil, nil, problems
	}
	return groupsOf(spec), podSets, nil
}

// A wait is a ReplicatedJob, given by its index in the spec, with the status that it must reach.
type wait struct {
	job    int
	status Status
}

// A group is a stage under construction: ReplicatedJobs that wait for the same, by their indexes in the spec.
type group struct {
	jobs  []int
	waits []wait
	// field of the JobSet that makes these ReplicatedJobs start together.
	field string
}

// groupsOf returns the stages of a spec in which checkStructure has found no problem.
func groupsOf(spec *jobsetv1alpha2.JobSetSpec) []group {
	switch {
	case !inOrder(spec):
		return groupsByDependencies(spec)
	case len(spec.StartupPolicy.Rules) == 0:
		return groupsOneByOne(spec)
	default:
		return groupsByRules(spec)
	}
}

func inOrder(spec *jobsetv1alpha2.JobSetSpec) bool {
	return spec.StartupPolicy != nil && spec.StartupPolicy.StartupPolicyOrder == jobset.InOrder
}

// groupsByDependencies groups ReplicatedJobs that depend on the same: without any dependsOn, all of them.
func groupsByDependencies(spec *jobsetv1alpha2.JobSetSpec) []group {
	index := indexByName(spec)
	groupByKey := map[string]int{}
	var groups []group
	for i := range spec.ReplicatedJobs {
		var waits []wait
		for _, d := range spec.ReplicatedJobs[i].DependsOn {
			waits = append(waits, wait{index[d.Name], dependencyStatus(d.Status)})
		}
		slices.SortFunc(waits, func(a, b wait) int {
			return cmp.Or(cmp.Compare(a.job, b.job), cmp.Compare(a.status, b.status))
		})
		key := fmt.Sprint(waits)
		g, ok := groupByKey[key]
		if !ok {
			g = len(groups)
			groupByKey[key] = g
			groups = append(groups, group{waits: waits, field: groupField(i, waits)})
		}
		groups[g].jobs = append(groups[g].jobs, i)
	}
	return groups
}

func dependencyStatus(s jobset.DependsOnStatus) Status {
	if s == jobset.DependencyComplete {
		return Succeeded
	}
	return Ready
}

func groupField(job int, waits []wait) string {
	if len(waits) == 0 {
		return replicatedJobsField
	}
	return jobField(job) + ".dependsOn"
}

// groupsOneByOne returns one group for each ReplicatedJob, which waits until the one before it is ready.
func groupsOneByOne(spec *jobsetv1alpha2.JobSetSpec) []group {
	var groups []group
	for i := range spec.ReplicatedJobs {
		g := group{jobs: []int{i}, field: replicatedJobsField}
		if i > 0 {
			g.waits = []wait{{i - 1, Ready}}
		}
		groups = append(groups, g)
	}
	return groups
}

// groupsByRules returns one group for the targets of each rule, and one for the last ReplicatedJob, which is in no rule.
func groupsByRules(spec *jobsetv1alpha2.JobSetSpec) []group {
	index := indexByName(spec)
	var groups []group
	var waits []wait
	for i, rule := range spec.StartupPolicy.Rules {
		g := group{waits: waits, field: ruleField(i) + ".targetReplicatedJobs"}
		waits = nil
		for _, name := range rule.TargetReplicatedJobs {
			g.jobs = append(g.jobs, index[name])
		}
		slices.Sort(g.jobs)
		for _, job := range g.jobs {
			waits = append(waits, wait{job, cmp.Or(Status(rule.WaitForReplicatedJobsStatus), Ready)})
		}
		groups = append(groups, g)
	}
	last := group{jobs: []int{len(spec.ReplicatedJobs) - 1}, waits: waits, field: replicatedJobsField}
	return append(groups, last)
}

// indexByName returns the first index of each name.
func indexByName(spec *jobsetv1alpha2.JobSetSpec) map[string]int {
	index := make(map[string]int, len(spec.ReplicatedJobs))
	for i := range spec.ReplicatedJobs {
		name := spec.ReplicatedJobs[i].Name
		if _, ok := index[name]; !ok {
			index[name] = i
		}
	}
	return index
}

// stagesOf makes the stages of a plan. podSets has those of all ReplicatedJobs, in the order of the spec.
func stagesOf(groups []group, podSets []PodSet) []Stage {
	stageOf := make([]int, len(podSets))
	for s, g := range groups {
		for _, job := range g.jobs {
			stageOf[job] = s
		}
	}
	stages := make([]Stage, len(groups))
	for s, g := range groups {
		for _, job := range g.jobs {
			stages[s].ReplicatedJobs = append(stages[s].ReplicatedJobs, podSets[job].Name)
			stages[s].PodSets = append(stages[s].PodSets, podSets[job])
		}
		stages[s].After = conditionsOf(g.waits, stageOf, podSets)
	}
	nameStages(stages)
	return stages
}

// conditionsOf merges waits into one condition for each stage and status, in the order of stages, Ready before Succeeded, with
// the targets in the order of the spec.
func conditionsOf(waits []wait, stageOf []int, podSets []PodSet) []Condition {
	waits = slices.SortedFunc(slices.Values(waits), func(a, b wait) int {
		return cmp.Or(cmp.Compare(stageOf[a.job], stageOf[b.job]), cmp.Compare(a.status, b.status), cmp.Compare(a.job, b.job))
	})
	var conditions []Condition
	for i, w := range waits {
		if i == 0 || stageOf[waits[i-1].job] != stageOf[w.job] || waits[i-1].status != w.status {
			conditions = append(conditions, Condition{Stage: stageOf[w.job], Status: w.status})
		}
		c := &conditions[len(conditions)-1]
		c.Targets = append(c.Targets, podSets[w.job].Name)
	}
	return conditions
}

// maxNameLength is the most characters that a label value can have.
const maxNameLength = 63

// nameStages names stages after their ReplicatedJobs. Names of ReplicatedJobs have no dots, so a name that lists them all is
// unique, and so is one that begins with a whole name; only one that had to be cut can clash and gets a number.
func nameStages(stages []Stage) {
	taken := map[string]bool{}
	for i := range stages {
		name := strings.Join(stages[i].ReplicatedJobs, ".")
		if len(name) <= maxNameLength {
			stages[i].Name = name
			taken[name] = true
		}
	}
	for i := range stages {
		if stages[i].Name == "" {
			stages[i].Name = shortName(stages[i].ReplicatedJobs, taken)
			taken[stages[i].Name] = true
		}
	}
}

func shortName(jobs []string, taken map[string]bool) string {
	for n := 1; ; n++ {
		suffix := fmt.Sprintf(".%d-more", len(jobs)-1)
		if n > 1 {
			suffix += fmt.Sprintf(".%d", n)
		}
		first := jobs[0]
		if room := maxNameLength - len(suffix); len(first) > room {
			first = strings.TrimRight(first[:room], "-")
		}
		if !taken[first+suffix] {
			return first + suffix
		}
	}
}
