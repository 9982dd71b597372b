package scenario

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// A Submission is a submitted job, and how long its pods take.
type Submission struct {
	Name, Namespace, Queue string
	// IsJobSet is true for a JobSet, and false for a job of another kind, which has one quota Workload that belongs to no JobSet.
	IsJobSet bool
	// IsQueued is true for a Job that is queued by itself. Job is its spec, and its size can change while it runs if IsElastic is true.
	IsQueued, IsElastic bool
	Job                 *batchv1.JobSpec
	// Plan has its stages. A job that is no JobSet has one.
	Plan *stageplan.Plan
	// Spec is that of the JobSet, or nil.
	Spec *jobsetapi.JobSetSpec
	// Priority is used if Class is empty.
	Priority int32
	// Class is the name of a WorkloadPriorityClass.
	Class string
	// StageAdmission is the policy that the JobSet asks for, or empty.
	StageAdmission string
	// Gates of the user.
	Gates []string
	// MaxSeconds bounds how long each quota Workload may be admitted, if it is not nil.
	MaxSeconds *int32
	// MinCount lets the first pod set be admitted with fewer pods, if it is not nil.
	MinCount *int32
	// MaxRestarts is how many times the JobSet restarts when one of its Jobs has failed.
	MaxRestarts int32
	// Success are the ReplicatedJobs that have to succeed for the JobSet to have succeeded, or nil for all.
	Success []string
	// SuccessAny is true if it is enough that one of them succeeds.
	SuccessAny bool
	// StopAfter is how long pods take to terminate when they are evicted.
	StopAfter time.Duration

	run, readyAfter perJob[time.Duration]
	fails           perJob[int]

	stages, pods string
	replicas     perJob[int32]
	// sizes are the numbers of pods of ReplicatedJobs that have been resized.
	sizes       map[string]int32
	startup     *jobsetapi.StartupPolicy
	selector    map[string]string
	tolerations []corev1.Toleration
	affinity    *corev1.Affinity
	limits      corev1.ResourceList
	// runtimeClass is that of its pods, or nil.
	runtimeClass *string
}

// allJobs is the key of what holds for all ReplicatedJobs. No name has a comma, which separates the parts of a field.
const allJobs = ","

// A perJob has a value for each of some ReplicatedJobs, and for all others.
type perJob[T any] map[string]T

func (p perJob[T]) of(job string) (value T, ok bool) {
	if value, ok = p[job]; !ok {
		value, ok = p[allJobs]
	}
	return value, ok
}

// RunTime returns how long after its start a ReplicatedJob finishes, if it finishes by itself.
func (s *Submission) RunTime(job string) (time.Duration, bool) { return s.run.of(job) }

// ReadyAfter returns how long after its start a ReplicatedJob gets ready, if it gets ready by itself.
func (s *Submission) ReadyAfter(job string) (time.Duration, bool) {
	if d, ok := s.readyAfter.of(job); ok {
		return d, true
	}
	_, runs := s.run.of(job)
	return 0, runs
}

// Fails reports whether a ReplicatedJob fails at its end in this attempt, counted from 0.
func (s *Submission) Fails(job string, attempt int) bool {
	times, ok := s.fails.of(job)
	return ok && attempt < times
}

// perJobOf reads VALUE or JOB:VALUE, several with commas.
func perJobOf[T any](read func(string) (T, error)) func(string) (perJob[T], error) {
	return func(text string) (perJob[T], error) {
		p := perJob[T]{}
		for part := range strings.SplitSeq(text, ",") {
			job, rest, isForOne := strings.Cut(part, ":")
			if !isForOne {
				job, rest = allJobs, part
			}
			value, err := read(rest)
			if err != nil {
				return nil, err
			}
			if _, twice := p[job]; twice {
				return nil, fmt.Errorf("%q is there twice", part)
			}
			p[job] = value
		}
		return p, nil
	}
}

// failures reads JOB or JOB:TIMES.
func failures(text string) (perJob[int], error) {
	const everyTime = 1 << 30
	p := perJob[int]{}
	for part := range strings.SplitSeq(text, ",") {
		job, times, limited := strings.Cut(part, ":")
		if _, twice := p[job]; twice {
			return p, fmt.Errorf("%q is there twice", job)
		}
		p[job] = everyTime
		if limited {
			n, err := count(times)
			if err != nil {
				return p, err
			}
			p[job] = int(n)
		}
	}
	return p, nil
}

func submitOptions(s *Submission) []Option {
	return slices.Concat(planOptions(s), shapeOptions(s), courseOptions(s))
}

// planOptions are the options for the queue and the stages of a submission.
func planOptions(s *Submission) []Option {
	return []Option{
		{"queue", "NAME", "The LocalQueue.", into(&s.Queue, name)},
		namespace(&s.Namespace),
		{"stages", "STAGES", "What a JobSet consists of; see below.", into(&s.stages, anyText)},
		choice("order", "AnyOrder|InOrder", "Its startupPolicy; with InOrder each ReplicatedJob waits until the one before is ready, and needs no arrow.",
			func(v jobset.StartupPolicyOptions) { s.startupPolicy().StartupPolicyOrder = v }),
		{
			"rules", "JOB[+JOB]:Ready|Succeeded,...", "The rules of its startupPolicy, which is InOrder: what the ReplicatedJobs after these wait for.",
			then(list(rule), func(v []jobsetapi.StartupPolicyRule) { s.startupPolicy().Rules = v }),
		},
		{
			"replicas", "COUNT|JOB:COUNT,...", "How many Jobs each ReplicatedJob has; 1 if left out. Each has the pods that stages names.",
			into(&s.replicas, perJobOf(replicas)),
		},
		{"pods", "PODS", "What a job of another kind consists of; see below.", into(&s.pods, anyText)},
	}
}

// shapeOptions are the options for the requests of a submission.
func shapeOptions(s *Submission) []Option {
	return []Option{
		{"priority", "NUMBER", "Its priority; 0 if left out.", into(&s.Priority, number)},
		{"class", "NAME", "Its WorkloadPriorityClass, instead of a priority.", into(&s.Class, name)},
		choice("policy", "Safe|Reserve|Greedy", "The stage-admission policy that the JobSet asks for.", func(v string) { s.StageAdmission = v }),
		{"selector", "KEY=VALUE,...", "The nodeSelector of its pods.", into(&s.selector, labels)},
		{
			"affinity", "KEY=VALUE|VALUE,...", "The required node affinity of its pods: each label has one of the values.",
			into(&s.affinity, affinity),
		},
		{
			"tolerates", "KEY=VALUE:EFFECT,...", "The tolerations of its pods; KEY alone tolerates every value and effect.",
			into(&s.tolerations, list(toleration)),
		},
		{
			"limits", "RESOURCE:AMOUNT,...", "The limits of its containers, which count as requests where a container has none.",
			into(&s.limits, amountsWithColon),
		},
		{
			"runtimeclass", "NAME", "The RuntimeClass of its pods, which adds its overhead to them.",
			intoPointer(&s.runtimeClass, name),
		},
		{
			"gates", "NAME,...", "Admission gates, which keep it from being admitted; `set NAME gates=none` takes them off.",
			into(&s.Gates, gates),
		},
		{"max-time", "TIME", "Its maximumExecutionTimeSeconds.", intoPointer(&s.MaxSeconds, seconds)},
		choice("kind", "Job|ElasticJob", "With pods: it is a Job of Kubernetes, which Tranche suspends and releases; the size of an elastic one can change while it runs.",
			func(kind string) { s.IsQueued, s.IsElastic = true, kind == "ElasticJob" }),
		{"min", "COUNT", "With pods: it may be admitted with so few of them (minCount).", intoPointer(&s.MinCount, count)},
	}
}

// courseOptions are the options for the progress of a submission.
func courseOptions(s *Submission) []Option {
	return []Option{
		{
			"run", "TIME|JOB:TIME,...", "How long after its start it succeeds; without it, only a finish line ends it.",
			into(&s.run, perJobOf(duration)),
		},
		{
			"ready-after", "TIME|JOB:TIME,...",
			"How long after its start it is ready; at once if left out and run is there, else only a ready line makes it so.",
			into(&s.readyAfter, perJobOf(duration)),
		},
		{
			"fails", "JOB|JOB:TIMES,...", "Which ReplicatedJobs fail after their run time, in each attempt or in the first ones.",
			into(&s.fails, failures),
		},
		{"restarts", "COUNT", "How many times the JobSet restarts when a Job has failed; 0 if left out.", into(&s.MaxRestarts, count)},
		{
			"success", "JOB,...|any:JOB,...",
			"The ReplicatedJobs that have to succeed for the JobSet to have succeeded (successPolicy All), or one of which has to (Any); all if left out.",
			func(text string) error {
				jobs, isAny := strings.CutPrefix(text, "any:")
				s.Success, s.SuccessAny = strings.Split(jobs, ","), isAny
				return nil
			},
		},
		{"stop-after", "TIME", "How long pods take to end when they are evicted; no time if left out.", into(&s.StopAfter, duration)},
	}
}

// replicas reads a number of Jobs.
func replicas(text string) (int32, error) {
	n, err := count(text)
	if err == nil && n == 0 {
		err = errors.New("a ReplicatedJob needs at least one Job")
	}
	return n, err
}

// gates reads names that may have a domain, or none.
func gates(text string) ([]string, error) {
	if text == "none" {
		return nil, nil
	}
	parts := strings.Split(text, ",")
	if slices.Contains(parts, "") {
		return nil, errors.New("a gate has no name")
	}
	return parts, nil
}

func seconds(text string) (int32, error) {
	d, err := duration(text)
	if err != nil {
		return 0, err
	}
	n := int64(d / time.Second)
	if n < 1 || n > math.MaxInt32 || d%time.Second != 0 {
		return 0, fmt.Errorf("%q must be whole seconds", text)
	}
	return int32(n), nil
}

// complete checks what a line has set, and plans the stages.
func (s *Submission) complete() error {
	switch {
	case (s.stages == "") == (s.pods == ""):
		return errors.New("say what it consists of: either stages=train(gpu=6), for a JobSet, or pods=3*gpu:2")
	case s.pods != "" && (s.MaxRestarts > 0 || s.StageAdmission != "" || s.startup != nil || s.Success != nil):
		return errors.New("restarts, policy, order, rules and success are for JobSets: write stages instead of pods")
	case s.pods != "" && s.replicas != nil:
		return errors.New("replicas are for JobSets: write stages instead of pods")
	case s.pods == "" && s.IsQueued:
		return errors.New("kind needs pods: stages are those of a JobSet")
	case s.IsQueued && strings.Contains(s.pods, "("):
		return errors.New("a Job has one pod set: write pods=3*gpu:2")
	case s.pods == "" && s.MinCount != nil:
		return errors.New("min needs pods: stages of JobSets are admitted whole")
	}
	s.IsJobSet = s.stages != ""
	return s.plan()
}

// plan reads the stages of the submission.
func (s *Submission) plan() error {
	var err error
	p := &planner{pod: s.podSpec(), startup: s.startup, sizes: s.sizes, replicas: s.replicas}
	if s.IsJobSet {
		s.Plan, err = p.readStages(s.stages)
		s.Spec = s.spec(p)
	} else {
		s.Plan, err = p.readPods(s.pods)
	}
	if err != nil {
		return err
	}
	if s.IsQueued {
		s.Job = &p.jobs[0].Template.Spec
		s.Job.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	}
	for _, jobs := range [][]string{keys(s.replicas), keys(s.run), keys(s.readyAfter), keys(s.fails), s.Success} {
		for _, job := range jobs {
			if job != allJobs && !slices.Contains(s.jobsOf(""), job) {
				return fmt.Errorf("%s has no ReplicatedJob %q", s.Name, job)
			}
		}
	}
	return nil
}

// spec returns the spec of the JobSet that was read.
func (s *Submission) spec(p *planner) *jobsetapi.JobSetSpec {
	spec := &jobsetapi.JobSetSpec{ReplicatedJobs: p.jobs, StartupPolicy: p.startup}
	spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: s.MaxRestarts}
	if s.Success != nil {
		spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: s.Success}
		if s.SuccessAny {
			spec.SuccessPolicy.Operator = jobset.OperatorAny
		}
	}
	return spec
}

func (s *Submission) startupPolicy() *jobsetapi.StartupPolicy {
	if s.startup == nil {
		s.startup = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	}
	return s.startup
}

// rule reads JOB+JOB:STATUS.
func rule(text string) (jobsetapi.StartupPolicyRule, error) {
	jobs, word, _ := strings.Cut(text, ":")
	status, err := oneOf[jobsetapi.ReplicatedJobsStatus](word, "Ready|Succeeded")
	if err != nil {
		err = fmt.Errorf("%q: what to wait for: %w", text, err)
	}
	return jobsetapi.StartupPolicyRule{TargetReplicatedJobs: strings.Split(jobs, "+"), WaitForReplicatedJobsStatus: status}, err
}

func keys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

func (s *Submission) podSpec() corev1.PodSpec {
	spec := corev1.PodSpec{
		NodeSelector: s.selector, Tolerations: s.tolerations, Affinity: s.affinity, RuntimeClassName: s.runtimeClass,
		Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: s.limits}}},
	}
	if s.MaxSeconds != nil { // otherwise no decision depends on it
		spec.TerminationGracePeriodSeconds = new(int64(math.Ceil(s.StopAfter.Seconds())))
	}
	return spec
}

// Resized returns the submission with another number of pods in a ReplicatedJob. It has the same stages.
func (s *Submission) Resized(job string, pods int32) (*Submission, error) {
	after := *s
	after.sizes = maps.Clone(s.sizes)
	if after.sizes == nil {
		after.sizes = map[string]int32{}
	}
	after.sizes[job] = pods
	return &after, after.plan()
}

// jobsOf returns the ReplicatedJobs that a part of the submission names; without a part, all.
func (s *Submission) jobsOf(part string) []string {
	var all []string
	for i := range s.Plan.Stages {
		stage := &s.Plan.Stages[i]
		if slices.Contains(stage.ReplicatedJobs, part) {
			return []string{part}
		}
		if part == "" || part == stage.Name {
			all = append(all, stage.ReplicatedJobs...)
		}
	}
	return all
}

func (s *Submission) hasStage(name string) bool {
	return slices.ContainsFunc(s.Plan.Stages, func(stage stageplan.Stage) bool { return stage.Name == name })
}

// has reports whether a stage or ReplicatedJob of this name exists.
func (s *Submission) has(part string) bool {
	return slices.ContainsFunc(s.Plan.Stages, func(stage stageplan.Stage) bool {
		return stage.Name == part || slices.Contains(stage.ReplicatedJobs, part)
	})
}
