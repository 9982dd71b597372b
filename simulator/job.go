package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// job is a submission and its progress: the state that the JobSet controller, the stage controller and the pods have of it.
type job struct {
	*scenario.Submission
	uid     types.UID
	created time.Time
	// attempt counts restarts.
	attempt int
	stages  []*stage
	// pods of the ReplicatedJobs whose Jobs run, or have succeeded.
	pods map[string]*pods
	// settings are the changes of set lines, which also apply to quota Workloads that are recreated.
	settings []scenario.Set
	// suspended is true if the user has suspended the job; stopping lasts until evicted pods have terminated; isOver is true once it has
	// succeeded or failed.
	suspended, stopping, isOver, isDeleted bool
}

// A stage is one stage of a job.
type stage struct {
	*stageplan.Stage
	index int
	// own is the quota Workload of the stage, and growths those of the pods by which it has grown, the oldest first.
	own     workloadRef
	growths []workloadRef
	// gates of the user.
	gates []string
	// isOpen is sticky: a stage that has been opened stays open for the attempt, until it is evicted.
	isOpen bool
	// isShut is true if another stage is deactivated.
	isShut bool
	// isReleased is true if its pods have been started.
	isReleased bool
	// starts counts releases.
	starts int
}

// A workloadRef is a quota Workload of a job.
type workloadRef struct {
	key   admission.StageKey
	stage *stage
	// growth is its number, or 0 for that of the stage itself.
	growth int
}

// workloadRefs are all quota Workloads of a job, those of a stage before those of its growths.
func (j *job) workloadRefs() []workloadRef {
	var all []workloadRef
	for _, st := range j.stages {
		all = append(append(all, st.own), st.growths...)
	}
	return all
}

// subject returns the name of a quota Workload in the timeline: after its stage.
func (j *job) subject(p workloadRef) string {
	switch {
	case !j.IsJobSet:
		return j.Name
	case p.growth > 0:
		return fmt.Sprintf("%s/%s+%d", j.Name, p.stage.Name, p.growth)
	}
	return j.Name + "/" + p.stage.Name
}

// submit creates a job and its quota Workloads.
func (s *simulation) submit(submission scenario.Submission) error {
	sub := &submission
	s.needNamespace(sub.Namespace)
	j := &job{Submission: sub, pods: map[string]*pods{}, created: s.time()}
	if class := s.objects.classes[sub.Class]; class != nil {
		sub.Priority = class.Value
	} else if sub.Class != "" {
		return fmt.Errorf("there is no priority class %q: declare it with priorityclass", sub.Class)
	}
	for i := range sub.Plan.Stages {
		st := &stage{Stage: &sub.Plan.Stages[i], index: i, gates: sub.Gates}
		st.own = workloadRef{key: admission.StageKey{Namespace: sub.Namespace, Name: sub.Name}, stage: st}
		if sub.IsJobSet {
			st.own.key.Name += "-" + st.Name
		}
		if s.objects.workloads[st.own.key] != nil {
			return fmt.Errorf("there is a quota Workload %s already: take another name", st.own.key)
		}
		j.stages = append(j.stages, st)
	}
	s.jobs[sub.Name] = j
	if sub.IsJobSet {
		j.uid = s.objects.newUID()
		s.putPlan(j)
	}
	for _, st := range j.stages {
		st.isOpen = j.reached(st)
		s.create(j, st)
	}
	return nil
}

// putPlan makes the engine observe the plan of a JobSet.
func (s *simulation) putPlan(j *job) {
	plan := admission.PlanObserved{
		JobSet: types.NamespacedName{Namespace: j.Namespace, Name: j.Name}, UID: j.uid, Submitted: j.created,
		StageAdmission: j.StageAdmission, Plan: j.Plan,
	}
	s.objects.plans[j.uid] = plan
	s.observe(plan)
}

// create creates the quota Workload of a stage.
func (s *simulation) create(j *job, st *stage) {
	w := j.newWorkload(st.own)
	w.Spec.MaximumExecutionTimeSeconds = j.MaxSeconds
	for i := range st.PodSets {
		w.Spec.PodSets = append(w.Spec.PodSets, podSet(st, i, st.PodSets[i].Count))
	}
	w.Spec.PodSets[0].MinCount = j.MinCount
	s.enter(j, st.own, w)
}

// newWorkload returns a quota Workload without requests.
func (j *job) newWorkload(p workloadRef) *kueue.Workload {
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.key.Namespace, Name: p.key.Name, Annotations: map[string]string{}, OwnerReferences: j.owners(),
		},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(j.Queue), Priority: new(j.Priority), Active: new(true)},
	}
	if j.Class != "" {
		w.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(j.Class)
	}
	if j.IsJobSet {
		w.Labels = map[string]string{
			apis.JobSetLabel: j.Name, apis.StageLabel: p.stage.Name, apis.StageIndexLabel: strconv.Itoa(p.stage.index), apis.JobUIDLabel: string(j.uid),
		}
	}
	return w
}

// podSet returns a pod set with count pods of a ReplicatedJob of a stage.
func podSet(st *stage, i int, count int32) kueue.PodSet {
	p := &st.PodSets[i]
	return kueue.PodSet{Name: kueue.NewPodSetReference(p.Name), Count: count, Template: *p.Template.DeepCopy()}
}

// enter writes a quota Workload for the first time.
func (s *simulation) enter(j *job, p workloadRef, w *kueue.Workload) {
	for _, setting := range j.settings {
		if j.concerns(setting.Target, p) {
			// The fields were validated when the scenario was read.
			_ = setting.Fields.ApplyWorkload(w)
		}
	}
	j.annotate(p.stage, w)
	s.put(w)
}

// owners returns a JobSet as the controller of its quota Workloads. The quota Workload of a job of another kind has no owner: an evicted
// one also keeps its quota until the job has stopped its pods.
func (j *job) owners() []metav1.OwnerReference {
	if !j.IsJobSet {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: j.Name, UID: j.uid, Controller: new(true)}}
}

// includes reports whether a target names a stage, or a ReplicatedJob of it.
func (j *job) includes(t scenario.Target, st *stage) bool {
	return t.Part == "" || t.Part == st.Name || slices.Contains(st.ReplicatedJobs, t.Part)
}

// concerns reports whether a target names a quota Workload: the job names all, and a stage its own.
func (j *job) concerns(t scenario.Target, p workloadRef) bool {
	return t.Part == "" || t.Growth == p.growth && j.includes(t, p.stage)
}

// annotate writes the gates and the attempt of a stage, and reports whether they have changed.
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
	before := maps.Clone(w.Annotations)
	quotaworkload.SetGates(w, gates)
	if j.IsJobSet {
		w.Annotations[apis.AttemptAnnotation] = strconv.Itoa(j.attempt)
	}
	return !maps.Equal(before, w.Annotations)
}

// reached reports whether the start conditions of a stage are met.
func (j *job) reached(st *stage) bool {
	for _, c := range st.After {
		for _, target := range c.Targets {
			if p := j.pods[target]; !p.areReady() || c.Status == stageplan.Succeeded && !p.haveSucceeded() {
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
	s.workQueue.add(key)
	s.observe(admission.WorkloadObserved{Workload: w.DeepCopy()})
}

func keyOf(w *kueue.Workload) admission.StageKey {
	return admission.StageKey{Namespace: w.Namespace, Name: w.Name}
}

// drop deletes a quota Workload permanently.
func (s *simulation) drop(p workloadRef) {
	if s.objects.workloads[p.key] != nil {
		delete(s.objects.workloads, p.key)
		s.observe(admission.WorkloadGone{Key: p.key})
	}
	p.stage.growths = slices.DeleteFunc(p.stage.growths, func(growth workloadRef) bool { return growth.key == p.key })
}

// reconcileJob reconciles a job, as the stage controller does: it opens stages, releases admitted ones, and only then finishes those that have
// succeeded, so that no other job can take the quota of the next stage.
func (s *simulation) reconcileJob(j *job) {
	if j.isDeleted {
		return
	}
	for _, st := range j.stages {
		st.isOpen = st.isOpen || j.reached(st)
	}
	s.close(j)
	for _, p := range j.workloadRefs() {
		if w := s.objects.workloads[p.key]; w != nil && !isFinished(w) {
			after := w.DeepCopy()
			isResized := p.growth == 0 && j.fit(p.stage, after)
			if j.annotate(p.stage, after) || isResized {
				s.put(after)
			}
		}
	}
	for _, st := range j.stages {
		s.leadStage(j, st)
		s.reconcileGrowths(j, st)
	}
	if !j.isOver && j.hasSucceeded() {
		s.say("complete %s", j.Name)
		s.end(j, kueue.WorkloadFinishedReasonSucceeded)
	}
}

// hasSucceeded reports whether the ReplicatedJobs of the success policy have succeeded, if the policy does not require all of them.
func (j *job) hasSucceeded() bool {
	if j.SuccessAny {
		return slices.ContainsFunc(j.Success, func(name string) bool { return j.pods[name].haveSucceeded() })
	}
	return len(j.Success) > 0 && !slices.ContainsFunc(j.Success, func(name string) bool { return !j.pods[name].haveSucceeded() })
}

func (s *simulation) leadStage(j *job, st *stage) {
	w := s.objects.workloads[st.own.key]
	switch {
	case w == nil || isFinished(w) || j.isOver:
		return
	case j.mayRun(st, w):
		s.release(j, st)
	case st.isReleased && j.haveSucceeded(st):
		s.finished(j, st, kueue.WorkloadFinishedReasonSucceeded)
		return
	}
	s.tellReadiness(j, w, st.isReleased && s.isSteady(j, st))
}

// close gates the pending stages of a job while one of its stages is deactivated.
func (s *simulation) close(j *job) {
	isOut := func(st *stage) bool {
		w := s.objects.workloads[st.own.key]
		return w != nil && workloadstatus.IsShutOut(w)
	}
	some := slices.ContainsFunc(j.stages, isOut)
	for _, st := range j.stages {
		st.isShut = some && !isOut(st)
	}
}

func (j *job) mayRun(st *stage, w *kueue.Workload) bool {
	return !st.isReleased && !j.stopping && w.Annotations[apis.AdmissionGatedByAnnotation] == "" &&
		quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

func (j *job) haveSucceeded(st *stage) bool {
	return !slices.ContainsFunc(st.ReplicatedJobs, func(name string) bool { return !j.pods[name].haveSucceeded() })
}

// release starts the pods of a stage.
func (s *simulation) release(j *job, st *stage) {
	st.isReleased = true
	st.starts++
	sizes := s.sizes(j, st)
	for i, name := range st.ReplicatedJobs {
		// Jobs that succeeded before an eviction are not run again.
		if j.pods[name] == nil {
			j.pods[name] = &pods{}
			s.begin(j, st, name, sizes[i].First)
		}
	}
}

// finished records that a stage has finished, and releases its quota.
func (s *simulation) finished(j *job, st *stage, reason string) {
	w := s.objects.workloads[st.own.key].DeepCopy()
	s.setFinished(w, reason)
	st.isReleased = false
	switch {
	case j.haveSucceeded(st):
		s.say("finish %s", j.subject(st.own))
	case quotaworkload.HoldsQuota(w):
		s.say("stop %s", j.subject(st.own))
	}
	s.put(w)
	s.dropGrowths(j, st)
}

// failJob ends a job, or restarts it.
func (s *simulation) failJob(j *job, st *stage) {
	if j.attempt < j.MaxRestarts {
		s.restart(j)
		return
	}
	s.say("fail %s", j.subject(st.own))
	s.end(j, kueue.WorkloadFinishedReasonFailed)
}

// end finishes all stages of a job that has succeeded or failed, when the running pods have terminated.
func (s *simulation) end(j *job, reason string) {
	j.isOver = true
	for _, st := range j.stages {
		s.reconcileGrowths(j, st)
		after := time.Duration(0)
		if st.isReleased {
			after = j.StopAfter
		}
		s.eventQueue.add(s.now+after, func() {
			if w := s.objects.workloads[st.own.key]; w != nil && !isFinished(w) {
				s.finished(j, st, reason)
			}
		})
	}
}

// restart begins the next attempt: stages that hold quota keep it. Stages that have finished, or have released quota that they need again,
// get new quota Workloads.
func (s *simulation) restart(j *job) {
	j.attempt++
	s.say("restart %s", j.Name)
	clear(j.pods)
	for _, st := range j.stages {
		st.isOpen, st.isReleased = j.reached(st), false
		w := s.objects.workloads[st.own.key]
		isShort := w != nil && !isFinished(w) && st.isShort(w)
		if isShort && quotaworkload.HoldsQuota(w) {
			s.dropGrowths(j, st)
			s.say("stop %s", j.subject(st.own))
		}
		if w != nil && (isShort || isFinished(w)) {
			s.drop(st.own)
			s.create(j, st)
		}
	}
	s.reconcileJob(j)
}

// isShort reports whether a quota Workload does not pay for any pod of a ReplicatedJob that has to run.
func (st *stage) isShort(w *kueue.Workload) bool {
	return slices.ContainsFunc(st.PodSets, func(p stageplan.PodSet) bool { return p.Count > 0 && elastic.Held(w, p.Name) == 0 })
}

// stop ends the pods of all stages that have not succeeded, and takes the job back to the boundary of the succeeded stages. When the pods
// have terminated, the quota of the stages is released.
func (s *simulation) stop(j *job) {
	for _, st := range j.stages {
		if w := s.objects.workloads[st.own.key]; w == nil || isFinished(w) {
			continue
		}
		st.isReleased = false
		for _, name := range st.ReplicatedJobs {
			if !j.pods[name].haveSucceeded() {
				delete(j.pods, name)
			}
		}
	}
	for _, st := range j.stages {
		st.isOpen = j.reached(st)
	}
	isStopping := j.stopping
	j.stopping = true
	s.reconcileJob(j)
	if !isStopping {
		s.eventQueue.add(s.now+j.StopAfter, func() { s.stopped(j) })
	}
}

func (s *simulation) stopped(j *job) {
	j.stopping = false
	for _, st := range j.stages {
		if !j.isDeleted {
			s.dropGrowths(j, st)
		}
	}
	for _, p := range j.workloadRefs() {
		w := s.objects.workloads[p.key]
		switch {
		case w == nil:
		case j.isDeleted:
			if quotaworkload.HoldsQuota(w) && !isFinished(w) {
				s.say("stop %s", j.subject(p))
			}
			s.drop(p)
		case quotaworkload.HoldsQuota(w) && !isFinished(w):
			s.say("stop %s", j.subject(p))
			s.put(s.giveBack(w))
		}
	}
	s.reconcileJob(j)
}
