package schedulergang

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// MaxGangs is the maximum number of gangs of a JobSet. It bounds the cost of one JobSet for the API server: a gang is an object, and
// ReplicatedGang makes one of each replica.
const MaxGangs = 4096

// A GangSet is the gangs that a JobSet asks for in its current attempt. The zero GangSet has none. A GangSet is immutable after New, so it may be
// shared.
type GangSet struct {
	// JobSet and UID of the JobSet.
	JobSet types.NamespacedName
	UID    types.UID
	// Restarts is how often the JobSet has been restarted as a whole.
	Restarts int32
	// PodGroupTemplates in the order of the spec.
	PodGroupTemplates []PodGroupTemplate
	// UserGangs are the user-created gangs that pod templates name, one for each ReplicatedJob that names one.
	UserGangs []UserGang
}

// A PodGroupTemplate is the gangs that one gangMode asks for.
type PodGroupTemplate struct {
	// Name is unique in the GangSet and a valid DNS label: that of the ReplicatedJob, or "all" for the whole JobSet.
	Name string
	// Mode is Gang or ReplicatedGang.
	Mode jobsetapi.GangMode
	// Stage is the index of the stage that all members start in, and StageName its name.
	Stage     int
	StageName string
	// Members are the ReplicatedJobs with pods in the gangs: all of the JobSet, or one.
	Members []Member
	// MinCount is how many pods each gang of the template has.
	MinCount int32
	// token stands for the template in names, and field is the path of the gangMode that asks for it.
	token, field string
}

// A Member is a ReplicatedJob with pods in gangs.
type Member struct {
	// ReplicatedJob is its name, and Index its index in the spec.
	ReplicatedJob string
	Index         int
	// Jobs is how many Jobs it has, and PodsPerJob how many pods each has at once.
	Jobs, PodsPerJob int32
	// Requests of one pod as the scheduler counts them, and Template of its pods. They are shared with the stage plan.
	Requests corev1.ResourceList
	Template *corev1.PodTemplateSpec
	// jobRestarts counts how often each Job was restarted alone. Jobs beyond its end never were.
	jobRestarts []int32
}

// A UserGang is a user-created gang that the pod template of a ReplicatedJob names.
type UserGang struct {
	ReplicatedJob string
	// Name is the name of the gang in the pod template.
	Name string
}

// New returns the gangs of a JobSet with this stage plan, for the scheduler of a provider. It does not rely on the validation of the API server,
// never panics, and neither keeps nor changes the JobSet, except that pod templates are shared. The error names the JobSet and wraps
// stageplan.Problems, with all problems.
func New(js *jobsetapi.JobSet, plan *stageplan.Plan, provider Provider) (*GangSet, error) {
	gangSet := &GangSet{
		JobSet:   types.NamespacedName{Namespace: js.Namespace, Name: js.Name},
		UID:      js.UID,
		Restarts: js.Status.Restarts,
	}
	if plan == nil {
		plan = &stageplan.Plan{}
	}
	asked, problems := modesOf(js)
	if len(problems) == 0 {
		problems = gangSet.addTemplates(js, plan, asked)
	}
	if len(problems) == 0 {
		problems = gangSet.excludeUserGangs(provider)
	}
	if len(problems) == 0 {
		problems = gangSet.validate(provider)
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("JobSet %q: %w", gangSet.JobSet, problems)
	}
	return gangSet, nil
}

// addTemplates adds the requested templates.
func (s *GangSet) addTemplates(js *jobsetapi.JobSet, plan *stageplan.Plan, asked modes) stageplan.Problems {
	members, stages, problems := membersOf(js, plan)
	if len(problems) > 0 {
		return problems
	}
	if asked.jobSet.mode == jobsetapi.GangModeGang {
		if problems := checkStages(plan, asked.jobSet.field); len(problems) > 0 {
			return problems
		}
		s.PodGroupTemplates = []PodGroupTemplate{{
			Name: wholeJobSet, Mode: jobsetapi.GangModeGang, StageName: plan.Stages[0].Name, Members: members, token: wholeJobSet, field: asked.jobSet.field,
		}}
		return s.countPods()
	}
	for i, mode := range asked.replicatedJobs {
		if mode.mode == jobsetapi.GangModeOff {
			continue
		}
		s.PodGroupTemplates = append(s.PodGroupTemplates, PodGroupTemplate{
			Name: members[i].ReplicatedJob, Mode: mode.mode, Stage: stages[i], StageName: plan.Stages[stages[i]].Name,
			Members: members[i : i+1 : i+1], token: fmt.Sprint(i), field: mode.field,
		})
	}
	return s.countPods()
}

// membersOf returns all ReplicatedJobs in the order of the spec, each with the index of its stage.
func membersOf(js *jobsetapi.JobSet, plan *stageplan.Plan) (members []Member, stages []int, problems stageplan.Problems) {
	type place struct {
		stage  int
		podSet *stageplan.PodSet
	}
	places := map[string]place{}
	for s := range plan.Stages {
		for i := range plan.Stages[s].PodSets {
			podSet := &plan.Stages[s].PodSets[i]
			places[podSet.Name] = place{s, podSet}
		}
	}
	restarts := map[string][]int32{}
	for i := range js.Status.ReplicatedJobsStatus {
		restarts[js.Status.ReplicatedJobsStatus[i].Name] = js.Status.ReplicatedJobsStatus[i].JobRestarts
	}
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		at, planned := places[job.Name]
		if !planned {
			problems = append(problems, problemf(jobField(i)+".name", "%q is not in the stage plan of the JobSet", job.Name))
			continue
		}
		member := Member{
			ReplicatedJob: job.Name, Index: i, Jobs: max(job.Replicas, 0),
			Requests: placedRequests(at.podSet), Template: at.podSet.Template, jobRestarts: restarts[job.Name],
		}
		if member.Jobs > 0 {
			member.PodsPerJob = at.podSet.Count / member.Jobs
		}
		members, stages = append(members, member), append(stages, at.stage)
	}
	return members, stages, problems
}

// placedRequests returns what a pod requests of a node. Its devices are allocated by their claims, and no node has the resources that quota is
// charged for them.
func placedRequests(podSet *stageplan.PodSet) corev1.ResourceList {
	devices := device.Resources(podSet.Template)
	if len(devices) == 0 {
		return podSet.Requests
	}
	requests := podSet.Requests.DeepCopy()
	for _, name := range devices {
		left := requests[name]
		left.Sub(podSet.Template.Spec.Overhead[name])
		requests[name] = left
		if left.Sign() <= 0 {
			delete(requests, name)
		}
	}
	return requests
}

// countPods sets the number of pods of each gang, and reports gangs without pods, and gangs with too many.
func (s *GangSet) countPods() stageplan.Problems {
	var problems stageplan.Problems
	var gangs int64
	for g := range s.PodGroupTemplates {
		podGroupTemplate := &s.PodGroupTemplates[g]
		field, pods, many := podGroupTemplate.field, podGroupTemplate.pods(), int64(podGroupTemplate.Gangs())
		switch {
		case pods == 0 || many == 0:
			problems = append(problems, problemf(field, "%s makes a gang without pods, which no scheduler can place: "+
				"set replicas, parallelism and completions to at least 1, or set %s here", podGroupTemplate.Mode, jobsetapi.GangModeOff))
		case pods > math.MaxInt32:
			problems = append(problems, problemf(field, "%s makes a gang of %d pods, at most %d are allowed: set gangMode on the ReplicatedJobs instead, or use fewer pods",
				podGroupTemplate.Mode, pods, math.MaxInt32))
		case gangs <= MaxGangs && gangs+many > MaxGangs:
			problems = append(problems, problemf(field, "the JobSet has more than %d gangs with the %d gangs of this ReplicatedJob: "+
				"set %s here, or use fewer replicas", MaxGangs, many, jobsetapi.GangModeGang))
		}
		gangs += many
		podGroupTemplate.MinCount = int32(min(pods, math.MaxInt32)) //nolint:gosec // bounded by min
	}
	return problems
}

// pods returns how many pods each gang of the template has.
func (p *PodGroupTemplate) pods() int64 {
	var pods int64
	for _, podSet := range p.podSets() {
		pods += int64(podSet.Count)
	}
	return pods
}

// Gangs returns how many gangs the template has: one, or one for each Job.
func (p *PodGroupTemplate) Gangs() int32 {
	if p.Mode == jobsetapi.GangModeReplicatedGang {
		return p.Members[0].Jobs
	}
	return 1
}

// Pods returns how many pods all Jobs of a ReplicatedJob have at once. The stage plan guarantees that the number fits an int32.
func (m *Member) Pods() int32 { return m.Jobs * m.PodsPerJob }

// restartsOf returns how often a Job of the ReplicatedJob was restarted alone.
func (m *Member) restartsOf(job int32) int32 {
	if int(job) >= len(m.jobRestarts) {
		return 0
	}
	return m.jobRestarts[job]
}

// findTemplate returns the template with the pods of a Job, and its ReplicatedJob, or nil if they are in no gang.
func (s *GangSet) findTemplate(replicatedJob string, job int32) (*PodGroupTemplate, *Member) {
	for g := range s.PodGroupTemplates {
		podGroupTemplate := &s.PodGroupTemplates[g]
		for m := range podGroupTemplate.Members {
			if member := &podGroupTemplate.Members[m]; member.ReplicatedJob == replicatedJob && job >= 0 && job < member.Jobs {
				return podGroupTemplate, member
			}
		}
	}
	return nil, nil
}

// PodFields returns the fields that put the pods of a Job into their gang. They are empty if the pods are in none.
func (s *GangSet) PodFields(provider Provider, replicatedJob string, job int32) PodFields {
	podGroupTemplate, member := s.findTemplate(replicatedJob, job)
	if podGroupTemplate == nil {
		return PodFields{}
	}
	return provider.Pods(s, podGroupTemplate, member, s.gangName(podGroupTemplate, member, job))
}

// GangOf returns the name of the gang that has the pods of a Job, or nothing if they are in none. Schedulers may represent it by several objects.
func (s *GangSet) GangOf(replicatedJob string, job int32) string {
	for _, userGang := range s.UserGangs {
		if userGang.ReplicatedJob == replicatedJob {
			return userGang.Name
		}
	}
	podGroupTemplate, member := s.findTemplate(replicatedJob, job)
	if podGroupTemplate == nil {
		return ""
	}
	return s.gangName(podGroupTemplate, member, job)
}
