package simulator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/life"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// A job is a submission and how far it has come: what the JobSet controller, the stage controller and the pods know of it.
type job struct {
	*scenario.Submission
	uid     types.UID
	created time.Time
	// attempt counts restarts.
	attempt int
	stages  []*stage
	// states of the ReplicatedJobs.
	states map[string]state
	// settings are what set lines have changed, for quota Workloads that are made anew.
	settings []scenario.Set
	// suspended is the wish of the user; stopping lasts until evicted pods have ended; isOver once it has succeeded or failed.
	suspended, stopping, isOver, isDeleted bool
	// stops counts stops, so that what was planned for pods that have been stopped is forgotten.
	stops int
}

// A stage is one stage of a job.
type stage struct {
	*stageplan.Stage
	index int
	key   admission.StageKey
	// gates of the user.
	gates []string
	// isOpen is sticky: a stage that has been opened stays open for the attempt, until it is evicted.
	isOpen bool
	// isShut tells that another stage is deactivated.
	isShut bool
	// isReleased tells that its pods have been started.
	isReleased bool
	// starts counts releases.
	starts int
}

// A state is how far a ReplicatedJob is.
type state int

const (
	held state = iota
	running
	ready
	succeeded
)

// subject is how the timeline calls a stage.
func (j *job) subject(st *stage) string {
	if !j.IsJobSet {
		return j.Name
	}
	return j.Name + "/" + st.Name
}

// submit creates a job and its quota Workloads.
func (s *simulation) submit(submission scenario.Submission) error {
	sub := &submission
	s.needNamespace(sub.Namespace)
	j := &job{Submission: sub, states: map[string]state{}, created: s.time()}
	if class := s.objects.classes[sub.Class]; class != nil {
		sub.Priority = class.Value
	} else if sub.Class != "" {
		return fmt.Errorf("there is no priority class %q: declare it with priorityclass", sub.Class)
	}
	for i := range sub.Plan.Stages {
		st := &stage{Stage: &sub.Plan.Stages[i], index: i, key: admission.StageKey{Namespace: sub.Namespace, Name: sub.Name}, gates: sub.Gates}
		if sub.IsJobSet {
			st.key.Name += "-" + st.Name
		}
		if s.objects.workloads[st.key] != nil {
			return fmt.Errorf("there is a quota Workload %s already: take another name", st.key)
		}
		j.stages = append(j.stages, st)
	}
	s.jobs[sub.Name] = j
	if sub.IsJobSet {
		j.uid = s.objects.newUID()
		plan := admission.PlanObserved{
			JobSet: types.NamespacedName{Namespace: sub.Namespace, Name: sub.Name}, UID: j.uid, Submitted: j.created,
			StageAdmission: sub.StageAdmission, Plan: sub.Plan,
		}
		s.objects.plans[j.uid] = plan
		s.observe(plan)
	}
	for _, st := range j.stages {
		st.isOpen = j.reached(st)
		s.create(j, st)
	}
	return nil
}

// create makes the quota Workload of a stage.
func (s *simulation) create(j *job, st *stage) {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: st.key.Namespace, Name: st.key.Name, Annotations: map[string]string{}},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(j.Queue), Priority: new(j.Priority), Active: new(true), MaximumExecutionTimeSeconds: j.MaxSeconds,
		},
	}
	if j.Class != "" {
		w.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(j.Class)
	}
	if j.IsJobSet {
		w.Labels = map[string]string{
			apis.JobSetLabel: j.Name, apis.StageLabel: st.Name, apis.StageIndexLabel: strconv.Itoa(st.index), apis.JobUIDLabel: string(j.uid),
		}
	}
	w.OwnerReferences = []metav1.OwnerReference{j.reference()}
	for i := range st.PodSets {
		p := &st.PodSets[i]
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{
			Name: kueue.NewPodSetReference(p.Name), Count: p.Count, Template: *p.Template.DeepCopy(),
		})
	}
	w.Spec.PodSets[0].MinCount = j.MinCount
	for _, setting := range j.settings {
		if j.concerns(setting.Target, st) {
			// The fields have been tried when the scenario was read.
			_ = setting.Fields.ApplyWorkload(w)
		}
	}
	j.annotate(st, w)
	s.put(w)
}

// reference names the job as the controller of its quota Workloads: who evicts one waits for the job to stop its pods.
func (j *job) reference() metav1.OwnerReference {
	if !j.IsJobSet {
		return metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: j.Name, Controller: new(true)}
	}
	return metav1.OwnerReference{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: j.Name, UID: j.uid, Controller: new(true)}
}

// concerns tells whether a target means a stage, or a ReplicatedJob of it.
func (j *job) concerns(t scenario.Target, st *stage) bool {
	return t.Part == "" || t.Part == st.Name || slices.Contains(st.ReplicatedJobs, t.Part)
}

// annotate writes the gates and the attempt of a stage, and tells whether they were others before.
func (j *job) annotate(st *stage, w *kueue.Workload) (differs bool) {
	gates := slices.Clone(st.gates)
	if !st.isOpen {
		gates = append(gates, apis.StageGate)
	}
	if j.suspended {
		gates = append(gates, apis.SuspendedGate)
	}
	if st.isShut {
		gates = append(gates, apis.DeactivatedGate)
	}
	before := w.Annotations
	w.Annotations = map[string]string{}
	if len(gates) > 0 {
		w.Annotations[apis.AdmissionGatedByAnnotation] = strings.Join(gates, ",")
	}
	if j.IsJobSet {
		w.Annotations[apis.AttemptAnnotation] = strconv.Itoa(j.attempt)
	}
	return before[apis.AdmissionGatedByAnnotation] != w.Annotations[apis.AdmissionGatedByAnnotation] ||
		before[apis.AttemptAnnotation] != w.Annotations[apis.AttemptAnnotation]
}

// reached tells whether all that a stage waits for has happened.
func (j *job) reached(st *stage) bool {
	for _, c := range st.After {
		want := ready
		if c.Status == stageplan.Succeeded {
			want = succeeded
		}
		for _, target := range c.Targets {
			if j.states[target] < want {
				return false
			}
		}
	}
	return true
}

// put writes a quota Workload.
func (s *simulation) put(w *kueue.Workload) {
	s.objects.stamp(w, s.time())
	key := keyOf(w)
	s.objects.workloads[key] = w
	s.lives.add(key)
	s.observe(admission.WorkloadObserved{Workload: w.DeepCopy()})
}

func keyOf(w *kueue.Workload) admission.StageKey {
	return admission.StageKey{Namespace: w.Namespace, Name: w.Name}
}

// drop deletes a quota Workload for good.
func (s *simulation) drop(st *stage) {
	if s.objects.workloads[st.key] != nil {
		delete(s.objects.workloads, st.key)
		s.observe(admission.WorkloadGone{Key: st.key})
	}
}

// lead brings a job further, as the stage controller does: what is open is opened, what is admitted is released, and only then what
// has succeeded is finished, so that no gap lets a stranger take the quota of the next stage.
func (s *simulation) lead(j *job) {
	if j.isDeleted {
		return
	}
	for _, st := range j.stages {
		st.isOpen = st.isOpen || j.reached(st)
	}
	s.close(j)
	for _, st := range j.stages {
		if w := s.objects.workloads[st.key]; w != nil && !isFinished(w) {
			if after := w.DeepCopy(); j.annotate(st, after) {
				s.put(after)
			}
		}
	}
	for _, st := range j.stages {
		w := s.objects.workloads[st.key]
		switch {
		case w == nil || isFinished(w) || j.isOver:
		case j.mayRun(st, w):
			s.release(j, st)
			s.tellReadiness(j, st, w)
		case st.isReleased && j.all(st, succeeded):
			s.finished(j, st, kueue.WorkloadFinishedReasonSucceeded)
		default:
			s.tellReadiness(j, st, w)
		}
	}
}

// close shuts the stages of a job that wait while one of them is deactivated.
func (s *simulation) close(j *job) {
	isOut := func(st *stage) bool { w := s.objects.workloads[st.key]; return w != nil && life.IsShutOut(w) }
	some := slices.ContainsFunc(j.stages, isOut)
	for _, st := range j.stages {
		st.isShut = some && !isOut(st)
	}
}

func (j *job) mayRun(st *stage, w *kueue.Workload) bool {
	return !st.isReleased && !j.stopping && w.Annotations[apis.AdmissionGatedByAnnotation] == "" &&
		life.HoldsQuota(w) && life.IsTrue(w, kueue.WorkloadAdmitted) && !life.IsTrue(w, kueue.WorkloadEvicted)
}

func (j *job) all(st *stage, want state) bool {
	return !slices.ContainsFunc(st.ReplicatedJobs, func(name string) bool { return j.states[name] < want })
}

// release starts the pods of a stage and plans what becomes of them.
func (s *simulation) release(j *job, st *stage) {
	st.isReleased = true
	st.starts++
	start := st.starts
	later := func(after time.Duration, f func()) {
		s.agenda.add(s.now+after, func() {
			if st.starts == start && st.isReleased {
				f()
			}
		})
	}
	for _, name := range st.ReplicatedJobs {
		j.states[name] = running
		if after, ok := j.ReadyAfter(name); ok {
			later(after, func() { s.reach(j, name, ready) })
		}
		if after, ok := j.RunTime(name); ok {
			later(after, func() {
				if j.Fails(name, j.attempt) {
					s.failJob(j, st)
				} else {
					s.reach(j, name, succeeded)
				}
			})
		}
	}
}

// reach brings a running ReplicatedJob to a state.
func (s *simulation) reach(j *job, name string, to state) {
	if j.states[name] > held && j.states[name] < to {
		j.states[name] = to
		s.lead(j)
	}
}

// finished says that a stage is over. It gives back what the stage holds.
func (s *simulation) finished(j *job, st *stage, reason string) {
	w := s.objects.workloads[st.key].DeepCopy()
	s.setFinished(w, reason)
	st.isReleased = false
	switch {
	case reason == kueue.WorkloadFinishedReasonSucceeded:
		s.say("finish %s", j.subject(st))
	case life.HoldsQuota(w):
		s.say("stop %s", j.subject(st))
	}
	s.put(w)
}

// failJob ends a job, or starts it anew.
func (s *simulation) failJob(j *job, st *stage) {
	if j.attempt < j.MaxRestarts {
		s.restart(j)
		return
	}
	s.say("fail %s", j.subject(st))
	j.isOver = true
	for _, st := range j.stages {
		after := time.Duration(0)
		if st.isReleased {
			after = j.StopAfter
		}
		s.agenda.add(s.now+after, func() {
			if w := s.objects.workloads[st.key]; w != nil && !isFinished(w) {
				s.finished(j, st, kueue.WorkloadFinishedReasonFailed)
			}
		})
	}
}

// restart begins the next attempt: stages that hold quota keep it, and finished ones get new quota Workloads.
func (s *simulation) restart(j *job) {
	j.attempt++
	s.say("restart %s", j.Name)
	clear(j.states)
	for _, st := range j.stages {
		st.isOpen, st.isReleased = j.reached(st), false
		if w := s.objects.workloads[st.key]; w != nil && isFinished(w) {
			s.drop(st)
			s.create(j, st)
		}
	}
	s.lead(j)
}

// stop lets the pods of all stages end that have not succeeded, and takes the job back to the boundary of those that have. When the
// pods have ended, what the stages hold is given back.
func (s *simulation) stop(j *job) {
	for _, st := range j.stages {
		if w := s.objects.workloads[st.key]; w == nil || isFinished(w) {
			continue
		}
		st.isReleased = false
		for _, name := range st.ReplicatedJobs {
			delete(j.states, name)
		}
	}
	for _, st := range j.stages {
		st.isOpen = j.reached(st)
	}
	j.stopping = true
	j.stops++
	stop := j.stops
	s.lead(j)
	s.agenda.add(s.now+j.StopAfter, func() {
		if stop == j.stops {
			s.stopped(j)
		}
	})
}

func (s *simulation) stopped(j *job) {
	j.stopping = false
	for _, st := range j.stages {
		w := s.objects.workloads[st.key]
		switch {
		case w == nil:
		case j.isDeleted:
			if life.HoldsQuota(w) && !isFinished(w) {
				s.say("stop %s", j.subject(st))
			}
			s.drop(st)
		case life.HoldsQuota(w) && !isFinished(w):
			s.say("stop %s", j.subject(st))
			s.put(s.giveBack(w))
		}
	}
	s.lead(j)
}
