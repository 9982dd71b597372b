package stages

import (
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A stage is one stage of the plan and its existing objects.
type stage struct {
	*stageplan.Stage
	index int
	// workload is nil if the stage has no quota Workload.
	workload *kueue.Workload
	// growths are the quota Workloads for the pods by which the stage has grown, the oldest first, and sizes has one entry for each of PodSets.
	growths []*kueue.Workload
	sizes   []elastic.Size
	// jobs of the current attempt, and those that have succeeded and are being deleted.
	jobs, leaving []*batchv1.Job
	// done has the Jobs that have succeeded in the current attempt, including deleted Jobs. forgotten has the ReplicatedJobs without
	// succeeded Jobs in done because their gangs run again as a whole.
	done      childjob.Succeeded
	forgotten map[string]bool
	// hasPods is true if pods of the stage may still run, including those of earlier attempts. awaitPods counts the Jobs that are held although the stage
	// is admitted, because pods of an earlier run of theirs still terminate.
	hasPods   bool
	awaitPods int
	// tallies counts the Jobs of the current attempt, by ReplicatedJob.
	tallies map[string]tally
	// open is true if the start conditions of the stage have been met in the current attempt.
	open bool
	// hasBegun is true if the stage of a JobSet without a queue was opened in the current attempt: it runs, or has succeeded.
	hasBegun bool
	// shut is true if the stage may not be admitted because another stage was deactivated.
	shut bool
	// decided is true if the JobSet controller is about to end or restart the JobSet. awaitsJobs is true if it still has to create Jobs
	// that start together.
	decided, awaitsJobs bool
	// stale is true if workload still counts for an earlier attempt.
	stale bool
	// stops is true if the JobSet is evicted, or suspended by its user. mustRelease is true if it is evicted, and this stage must release
	// its quota.
	stops, mustRelease bool
	// loses is true if another engine takes the quota that it has reserved for the stage back before it has admitted the stage, or if the stage releases
	// quota of another engine because it is closed again. The JobSet is not evicted. unsafe says why the stage, whose start conditions are met, is not open.
	loses  bool
	unsafe string
}

// A tally counts the Jobs of one ReplicatedJob. A Job that has succeeded also counts as ready.
type tally struct {
	replicas, ready, succeeded, failed int32
}

func (t tally) reached(status stageplan.Status) bool {
	if status == stageplan.Succeeded {
		return t.succeeded >= t.replicas
	}
	return t.ready >= t.replicas && t.failed == 0
}

// stagesOf assigns the existing objects of a JobSet to the stages of its plan, and returns the stage that caused its eviction, if it is
// evicted.
func stagesOf(s *jobsetstate.Snapshot) (stages []stage, evicted *stage) {
	stages = make([]stage, len(s.Plan.Stages))
	replicas := jobsetstate.ReplicasOf(s.JobSet)
	for i := range stages {
		st := &stages[i]
		*st = stage{Stage: &s.Plan.Stages[i], index: i, tallies: map[string]tally{}}
		for _, name := range st.ReplicatedJobs {
			st.tallies[name] = tally{replicas: replicas[name]}
		}
		st.addJobs(s)
		st.done = childjob.Succeeded{}
		if s.IsUnqueued {
			st.recall(s.JobSet)
		} else {
			st.addWorkload(s)
			st.readSucceeded()
		}
	}
	inferSucceeded(stages)
	for i := range stages {
		stages[i].count(s)
	}
	evicted = markEvicted(s, stages)
	for i := range stages {
		stages[i].forgetSucceeded(s)
		stages[i].count(s)
	}
	decided, awaitsJobs := isDecided(s, stages), awaitedStage(s, stages) != nil
	deactivated := slices.IndexFunc(stages, func(st stage) bool { return isDeactivated(st.workload) })
	for i := range stages {
		stages[i].decided, stages[i].awaitsJobs = decided, awaitsJobs
		stages[i].stops = evicted != nil || jobsetstate.IsSuspendedByUser(s.JobSet)
		stages[i].open = stages[i].isOpen(stages)
		stages[i].awaitSafety(s)
		stages[i].shut = deactivated >= 0 && !isDeactivated(stages[i].workload)
		for podSet := range stages[i].PodSets {
			stages[i].sizes = append(stages[i].sizes, stages[i].sizeOf(s, podSet))
		}
	}
	return stages, evicted
}

func (st *stage) addJobs(s *jobsetstate.Snapshot) {
	attempt := jobsetstate.AttemptOf(s.JobSet)
	for _, job := range s.Owned.Jobs {
		name := job.Labels[jobset.ReplicatedJobNameKey]
		if _, mine := st.tallies[name]; !mine {
			continue
		}
		st.hasPods = st.hasPods || childjob.HasPods(job)
		switch {
		case job.Labels[jobsetstate.RestartAttemptLabel] != attempt:
		case job.DeletionTimestamp.IsZero():
			st.jobs = append(st.jobs, job)
		case childjob.IsFinished(job, batchv1.JobComplete):
			st.leaving = append(st.leaving, job)
		}
	}
	for _, pod := range s.Owned.Pods {
		_, mine := st.tallies[pod.Labels[jobset.ReplicatedJobNameKey]]
		st.hasPods = st.hasPods || mine
	}
}

func (st *stage) addWorkload(s *jobsetstate.Snapshot) {
	for _, workload := range s.Owned.Workloads {
		switch {
		case workload.Labels[apis.StageIndexLabel] != strconv.Itoa(st.index):
		case jobsetstate.GrowthNumber(workload) > 0:
			st.growths = append(st.growths, workload)
		default:
			st.workload = workload
			st.stale = workload.Annotations[apis.AttemptAnnotation] != jobsetstate.AttemptOf(s.JobSet)
		}
	}
	jobsetstate.SortGrowths(st.growths)
}

// isOpen reports whether a stage may be admitted. An opened stage stays open for the attempt, even if a Job is no longer ready, unless its
// JobSet stops, because it is evicted or suspended by its user. The manager may have missed such a suspension: a stage that holds quota, and
// none of whose Jobs has started, is open only while its start conditions are met. No stage of a JobSet that is about to end or restart is
// admitted.
func (st *stage) isOpen(stages []stage) bool {
	if st.hasBegun {
		return true
	}
	if st.decided && !st.succeeded() && (st.workload == nil || !st.holdsQuota()) {
		return false
	}
	hasStarted := slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool { return !childjob.IsHeld(job) || st.hasSucceeded(job) })
	if st.workload != nil && !st.stale && !quotaworkload.HasGate(st.workload, apis.StageGate) && (st.succeeded() || !st.stops && (hasStarted || !st.holdsQuota())) {
		return true
	}
	for _, condition := range st.After {
		for _, target := range condition.Targets {
			if !stages[condition.Stage].tallies[target].reached(condition.Status) {
				return false
			}
		}
	}
	return true
}

func (st *stage) all(status stageplan.Status) bool {
	for _, count := range st.tallies {
		if !count.reached(status) {
			return false
		}
	}
	return true
}

func (st *stage) succeeded() bool { return st.all(stageplan.Succeeded) }

func (st *stage) holdsQuota() bool { return quotaworkload.HoldsQuota(st.workload) }

// awaitsEngine reports whether the engine may not have observed yet the admission of the stage that the cache shows.
func (st *stage) awaitsEngine(s *jobsetstate.Snapshot) bool {
	return st.holdsQuota() && quotaworkload.IsTrue(st.workload, kueue.WorkloadAdmitted) && !s.Charged[st.workload.UID]
}

// mustRunAgain reports whether a finished stage has Jobs to run, because the JobSet was restarted or because its quota Workload finished
// without success.
func (st *stage) mustRunAgain() bool {
	return st.stale || slices.ContainsFunc(st.jobs, func(job *batchv1.Job) bool { return childjob.IsHeld(job) && !st.hasSucceeded(job) })
}

// mayRun reports whether the Jobs of a stage may be released.
func (st *stage) mayRun(s *jobsetstate.Snapshot) bool {
	w := st.workload
	return w != nil && !st.mustRelease && !st.loses && w.DeletionTimestamp.IsZero() && st.open && !st.stale && len(quotaworkload.Gates(w)) == 0 &&
		st.holdsQuota() && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadFinished) &&
		s.Charged[w.UID] && !st.lacksQuota(s) && !st.hasMoved(s)
}

// isClosedAgain reports whether a gated stage still has the condition PodsReady of an earlier attempt from which it keeps its quota. It has
// no pods now, and gets no condition until it is opened.
func (st *stage) isClosedAgain() bool {
	return !st.open && st.holdsQuota() && quotastep.ReportsReadiness(st.workload)
}

// opensAgain reports whether a stage that has kept its quota is about to be opened again. The timeout for its pods to become ready then
// starts with the condition that is written before it is opened, not with its admission.
func (st *stage) opensAgain() bool {
	return st.open && quotaworkload.HasGate(st.workload, apis.StageGate) && st.holdsQuota() && !quotastep.ReportsReadiness(st.workload)
}

func (st *stage) templateOf(job *batchv1.Job) childjob.Template {
	i := slices.Index(st.ReplicatedJobs, job.Labels[jobset.ReplicatedJobNameKey])
	return childjob.Template{Pods: st.podsPerJob(i), First: st.sizes[i].First, Requests: st.PodSets[i].Requests}
}

// adjusted returns the quota Workload of the stage as it should be, or nil if it is so already.
func (st *stage) adjusted(s *jobsetstate.Snapshot) *kueue.Workload {
	return st.adjust(s, st.workload, func(after *kueue.Workload) {
		st.record(after)
		st.resize(s, after)
		if !st.holdsQuota() {
			after.Spec.MaximumExecutionTimeSeconds = jobsetstate.ExecutionTimeOf(s.JobSet)
		}
		isHeldBack := st.mustRelease || st.loses || quotaworkload.HasGate(st.workload, apis.ResizeGate)
		if (st.mustRelease || st.loses || !st.holdsQuota()) && st.hasWrongSize(after) || isHeldBack && st.hasWrongReclaim() {
			// It must not be admitted for its previous size.
			addGate(after, apis.ResizeGate)
		}
	})
}

func addGate(workload *kueue.Workload, gate string) {
	quotaworkload.SetGates(workload, append(quotaworkload.Gates(workload), gate))
}

// adjust does the same for any quota Workload of the stage. It calls resize last.
func (st *stage) adjust(s *jobsetstate.Snapshot, workload *kueue.Workload, resize func(*kueue.Workload)) *kueue.Workload {
	after := workload.DeepCopy()
	quotaworkload.DropBar(after)
	st.gate(s, after)
	if !quotaworkload.IsTrue(after, kueue.WorkloadQuotaReserved) || workloadstatus.MayReplaceClass(after.Spec.PriorityClassRef, s.Priority.Class) {
		after.Spec.Priority, after.Spec.PriorityClassRef = &s.Priority.Value, s.Priority.Class
	}
	if !quotaworkload.HoldsQuota(workload) {
		after.Spec.QueueName = jobsetstate.QueueOf(s.JobSet)
	}
	if st.mustRelease || !quotaworkload.HoldsQuota(workload) {
		delete(after.Annotations, apis.AdoptedAnnotation)
	}
	resize(after)
	if s.OtherEngine {
		quotaworkload.MoveGates(workload, after)
	}
	if maps.Equal(after.Annotations, workload.Annotations) && equality.Semantic.DeepEqual(after.Spec, workload.Spec) && quotaworkload.HasSameBar(after, workload) {
		return nil
	}
	return after
}

// hasMoved reports whether the stage holds quota for another queue or maximum execution time than those of the JobSet and nothing of it has started: its
// user has changed them between the reservation and the start, and neither can change in a quota Workload that holds quota. What runs stays as it is:
// earlier versions accepted such a change and started it.
func (st *stage) hasMoved(s *jobsetstate.Snapshot) bool {
	hasStarted := func(job *batchv1.Job) bool { return !childjob.IsHeld(job) || childjob.HasPods(job) }
	isAsAsked := func(w *kueue.WorkloadSpec) bool {
		return w.QueueName == jobsetstate.QueueOf(s.JobSet) && ptr.Equal(w.MaximumExecutionTimeSeconds, jobsetstate.ExecutionTimeOf(s.JobSet))
	}
	return st.holdsQuota() && !isAsAsked(&st.workload.Spec) && !st.hasPods && !slices.ContainsFunc(st.jobs, hasStarted)
}

// gate writes the gates that a quota Workload should have: the gates of other controllers on the JobSet, and those of Tranche.
func (st *stage) gate(s *jobsetstate.Snapshot, workload *kueue.Workload) {
	gates := quotaworkload.GatesOfOthers(s.JobSet)
	if !st.open {
		gates = append(gates, apis.StageGate)
	}
	if jobsetstate.IsSuspendedByUser(s.JobSet) {
		gates = append(gates, apis.SuspendedGate)
	}
	if st.shut {
		gates = append(gates, apis.DeactivatedGate)
	}
	quotaworkload.SetGates(workload, gates)
	metav1.SetMetaDataAnnotation(&workload.ObjectMeta, apis.AttemptAnnotation, jobsetstate.AttemptOf(s.JobSet))
}

// newWorkload makes the quota Workload of a stage.
func newWorkload(s *jobsetstate.Snapshot, st *stage) *kueue.Workload {
	js := s.JobSet
	workload := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: js.Namespace,
			Name:      jobsetstate.WorkloadName(js, s.Plan, st.index, 0),
			Labels: map[string]string{
				apis.JobUIDLabel:     string(js.UID),
				apis.JobSetLabel:     js.Name,
				apis.StageLabel:      st.Name,
				apis.StageIndexLabel: strconv.Itoa(st.index),
			},
			Finalizers:      []string{finalizerOf(s)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Spec: kueue.WorkloadSpec{
			QueueName:                   jobsetstate.QueueOf(js),
			Priority:                    &s.Priority.Value,
			PriorityClassRef:            s.Priority.Class,
			Active:                      new(true),
			MaximumExecutionTimeSeconds: jobsetstate.ExecutionTimeOf(js),
		},
	}
	for i := range st.PodSets {
		workload.Spec.PodSets = append(workload.Spec.PodSets, st.newPodSet(s, i))
	}
	st.gate(s, workload)
	return workload
}

// summary returns the summary of the stages for the conditions of the JobSet.
func summary(s *jobsetstate.Snapshot, stages []stage) jobsetstatus.Summary {
	over, outcome := jobsetstate.OutcomeOf(s.JobSet)
	sum := jobsetstatus.Summary{Stages: len(stages), Suspended: jobsetstate.IsSuspendedByUser(s.JobSet), Over: true}
	for i := range stages {
		st := &stages[i]
		if st.workload == nil || quotaworkload.IsTrue(st.workload, kueue.WorkloadFinished) {
			sum.Over = sum.Over && (st.workload != nil || over)
			continue
		}
		sum.Over = false
		if st.open || st.unsafe != "" {
			sum.Current = append(sum.Current, st.state())
		}
	}
	if !over || outcome.Reason != kueue.WorkloadFinishedReasonFailed {
		return sum
	}
	sum.Failure = &jobsetstatus.Failure{Message: outcome.Message}
	for i := range stages {
		if stages[i].failed() {
			sum.Failure.Stages = append(sum.Failure.Stages, stages[i].state())
		}
	}
	return sum
}

func (st *stage) state() jobsetstatus.StageState {
	return jobsetstatus.StageState{Index: st.index, Name: st.Name, Workload: st.workload, Growths: st.growths, Unsafe: st.unsafe, AwaitPods: st.awaitPods}
}

// failed reports whether a Job of the stage has failed in the current attempt.
func (st *stage) failed() bool {
	for _, count := range st.tallies {
		if count.failed > 0 {
			return true
		}
	}
	return false
}
