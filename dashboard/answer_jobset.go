package dashboard

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// JobSetObjects are a JobSet and what belongs to it, as they were just read. The Model keeps less than an answer about one JobSet needs.
type JobSetObjects struct {
	JobSet    *jobsetapi.JobSet
	Workloads []*kueue.Workload
	// Explanations are the answers of the visibility API about pending quota Workloads, by name.
	Explanations map[string]*visibilityapi.Explanation
	// Notes say in what Explanations from a snapshot may differ from those of the running manager, by name. It may be nil.
	Notes map[string]string
	// LetIn is what would let pending quota Workloads in, by name.
	LetIn map[string]*LetIn
	// Gap is why Explanations are missing, and what to do about it, or empty, and WithoutSets why LetIn is missing.
	Gap, WithoutSets string
}

// A JobSetAnswer describes a JobSet.
type JobSetAnswer struct {
	JobSetRow
	// Problem is why the spec has no stage plan.
	Problem string `json:"problem,omitempty"`
	// Now is the time of the answer.
	Now    time.Time     `json:"now"`
	Stages []StageAnswer `json:"stages"`
	// OmittedStages is how many stages the recorded timeline leaves out for lack of space.
	OmittedStages int `json:"omittedStages,omitempty"`
	// Gap is why explanations are missing, and what to do about it.
	Gap string `json:"gap,omitempty"`
	// WithoutSets is why no stage has a LetIn.
	WithoutSets string `json:"withoutSets,omitempty"`
}

// A StageAnswer describes a stage of a JobSet.
type StageAnswer struct {
	Name           string   `json:"name"`
	ReplicatedJobs []string `json:"replicatedJobs,omitempty"`
	Pods           int32    `json:"pods"`
	// After has the conditions that open the stage.
	After []StageCondition `json:"after,omitempty"`
	Jobs  JobCounts        `json:"jobs"`
	// Workload is the quota Workload of the stage, and State, Reason and Message those of a WorkloadRow. They are missing before it exists.
	Workload     string    `json:"workload,omitempty"`
	State        State     `json:"state,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Message      string    `json:"message,omitempty"`
	Since        time.Time `json:"since,omitzero"`
	ClusterQueue string    `json:"clusterQueue,omitempty"`
	// Position counts the quota Workloads before it in its ClusterQueue. It is missing if not all quota Workloads could be read.
	Position *int `json:"position,omitempty"`
	// ExpectedStart is when a waiting stage is expected to start, if the manager has written that.
	ExpectedStart *StartAnswer `json:"expectedStart,omitempty"`
	// RequeueAt is when a stage that backs off queues again.
	RequeueAt *metav1.Time `json:"requeueAt,omitempty"`
	Requests  []Amount     `json:"requests,omitempty"`
	Held      []Amount     `json:"held,omitempty"`
	// Spans are the times of the stage, for a Gantt chart.
	Spans []Span `json:"spans"`
	// HeldSeconds is the amount of each accelerator times the seconds for which it was held, and IdleSeconds the part of it that was idle.
	HeldSeconds map[corev1.ResourceName]int64 `json:"heldSeconds,omitempty"`
	IdleSeconds map[corev1.ResourceName]int64 `json:"idleSeconds,omitempty"`
	Evictions   []EvictionCount               `json:"evictions,omitempty"`
	// Growths are the quota Workloads of pods by which the stage has grown.
	Growths []WorkloadRow `json:"growths,omitempty"`
	// Explanation is why the stage waits, and LetIn what would let it in, if that is known. Note says in what the Explanation may be wrong.
	Explanation *visibilityapi.Explanation `json:"explanation,omitempty"`
	Note        string                     `json:"note,omitempty"`
	LetIn       *LetIn                     `json:"letIn,omitempty"`
}

// A StageCondition opens a stage when another stage has a status: Ready or Succeeded.
type StageCondition struct {
	Stage  string `json:"stage"`
	Status string `json:"status"`
}

// A JobCounts counts the Jobs of a stage, as the status of the JobSet does.
type JobCounts struct {
	Ready     int32 `json:"ready"`
	Succeeded int32 `json:"succeeded"`
	Failed    int32 `json:"failed"`
	Active    int32 `json:"active"`
	Suspended int32 `json:"suspended"`
}

// An EvictionCount is how often a stage was evicted for a reason.
type EvictionCount struct {
	Reason string `json:"reason"`
	Cause  string `json:"cause,omitempty"`
	Count  int32  `json:"count"`
}

// A jobSetReader computes the answer about one JobSet.
type jobSetReader struct {
	m       *Model
	v       Viewer
	objects *JobSetObjects
	now     time.Time
	plan    *stageplan.Plan
	order   []string
	// workloads has the quota Workload of each stage, and growths those of its growths.
	workloads map[string]*kueue.Workload
	growths   map[string][]*kueue.Workload
	// recorded is the timeline of the JobSet, and current the same with the current holds of quota.
	recorded, current apis.Timeline
}

// JobSet returns the description of a JobSet that the viewer sees.
func (m *Model) JobSet(v Viewer, objects *JobSetObjects, now time.Time) JobSetAnswer {
	r := &jobSetReader{
		m: m, v: v, objects: objects, now: now, workloads: map[string]*kueue.Workload{}, growths: map[string][]*kueue.Workload{},
		recorded: jobsetstatus.TimelineOf(objects.JobSet), current: jobsetstatus.TimelineOf(objects.JobSet),
	}
	js := objects.JobSet
	row := &jobSet{key: types.NamespacedName{Namespace: js.Namespace, Name: js.Name}}
	row.adopt(js)
	answer := JobSetAnswer{JobSetRow: m.jobSetRow(v, row), Now: now, Stages: []StageAnswer{}, OmittedStages: r.recorded.Omitted, Gap: m.redact(v, objects.Gap), WithoutSets: m.redact(v, objects.WithoutSets)}
	if err := r.planStages(); err != nil {
		answer.Problem = err.Error()
	}
	r.groupWorkloads()
	r.countHolds()
	for i := range r.plan.Stages {
		answer.Stages = append(answer.Stages, r.stage(&r.plan.Stages[i]))
	}
	return answer
}

func (r *jobSetReader) planStages() (err error) {
	if r.plan, err = planOf(r.objects.JobSet); err != nil {
		r.plan = &stageplan.Plan{}
		return err
	}
	for i := range r.plan.Stages {
		r.order = append(r.order, r.plan.Stages[i].Name)
	}
	return nil
}

// planOf returns the stage plan of a JobSet.
func planOf(js *jobsetapi.JobSet) (*stageplan.Plan, error) {
	restored, _ := stageplan.Restored(js)
	if jobsetstate.QueueOf(js) == "" {
		return stageplan.NewUnqueued(&restored.Spec)
	}
	return stageplan.New(&restored.Spec)
}

func (r *jobSetReader) groupWorkloads() {
	for _, w := range r.objects.Workloads {
		stage := w.Labels[apis.StageLabel]
		if stage == "" && len(r.order) == 1 {
			stage = r.order[0]
		}
		if w.Labels[apis.GrowthLabel] != "" {
			r.growths[stage] = append(r.growths[stage], w)
			continue
		}
		r.workloads[stage] = w
	}
	for _, growths := range r.growths {
		jobsetstate.SortGrowths(growths)
	}
}

// countHolds adds the current holds of quota to the timeline.
func (r *jobSetReader) countHolds() {
	for i := range r.plan.Stages {
		st := &r.plan.Stages[i]
		w := r.workloads[st.Name]
		if w == nil || !quotaworkload.HoldsQuota(w) || jobsetstatus.IsCounted(&r.current, st.Name, w, r.order) {
			continue
		}
		h := jobsetstatus.Hold{Stage: st.Name, Workload: w, Queued: r.queuedSince(st, w), End: r.now}
		if c := quotaworkload.FindTrue(w, kueue.WorkloadFinished); c != nil {
			h.End = c.LastTransitionTime.Time
		}
		for _, growth := range r.growths[st.Name] {
			if quotaworkload.HoldsQuota(growth) {
				h.Growths = append(h.Growths, growth)
			}
		}
		for k := range r.plan.Stages {
			later := &r.plan.Stages[k]
			opens := func(c stageplan.Condition) bool { return c.Stage == i && c.Status == stageplan.Ready }
			if opened := r.workloads[later.Name]; opened != nil && slices.ContainsFunc(later.After, opens) {
				h.Opens = append(h.Opens, opened)
			}
		}
		h.Count(&r.current, r.order)
	}
}

func (r *jobSetReader) queuedSince(st *stageplan.Stage, w *kueue.Workload) time.Time {
	waitedFor := map[stageplan.Status][]*kueue.Workload{}
	for _, c := range st.After {
		if other := r.workloads[r.order[c.Stage]]; other != nil {
			waitedFor[c.Status] = append(waitedFor[c.Status], other)
		}
	}
	return jobsetstatus.QueuedSince(w, waitedFor[stageplan.Succeeded], waitedFor[stageplan.Ready])
}

func (r *jobSetReader) stage(st *stageplan.Stage) StageAnswer {
	a := StageAnswer{Name: st.Name, ReplicatedJobs: st.ReplicatedJobs, Jobs: r.countJobs(st), Spans: []Span{}}
	for i := range st.PodSets {
		a.Pods += st.PodSets[i].Count
	}
	for _, c := range st.After {
		a.After = append(a.After, StageCondition{r.order[c.Stage], string(c.Status)})
	}
	if t := timesOf(&r.current, st.Name); t != nil {
		a.HeldSeconds, a.IdleSeconds = t.Held, t.Idle
	}
	w := r.workloads[st.Name]
	a.Spans = append(a.Spans, r.recordedSpans(st.Name, w)...)
	if w == nil {
		return a
	}
	a.Spans = append(a.Spans, r.currentSpans(st, w)...)
	r.addWorkload(&a, w)
	return a
}

// addWorkload adds what the quota Workload of the stage reports.
func (r *jobSetReader) addWorkload(a *StageAnswer, object *kueue.Workload) {
	s := statusOf(object)
	a.Workload, a.State, a.Reason, a.Message, a.Since = object.Name, s.state, s.reason, r.m.redact(r.v, s.message), s.since
	a.Requests, a.Explanation = requestsOf(object), r.m.redactExplanation(r.v, r.objects.Explanations[object.Name])
	a.Note, a.LetIn = r.objects.Notes[object.Name], r.m.redactLetIn(r.v, r.objects.LetIn[object.Name])
	if quotaworkload.HoldsQuota(object) {
		a.ClusterQueue = string(object.Status.Admission.ClusterQueue)
		if s.state != Finished {
			a.Held = amountsHeld(chargesOf(object))
		}
	}
	if known := r.m.workloads[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}]; known != nil && known.uid == object.UID {
		a.ClusterQueue = cmp.Or(a.ClusterQueue, known.home)
		if known.state == Pending && known.in != nil && !r.m.isPartial {
			a.Position = new(known.in.Rank(known))
		}
	}
	a.ClusterQueue = r.v.clusterQueueFor(a.ClusterQueue)
	isWaiting := s.state == Pending || s.state == BackingOff
	if e := jobsetstatus.ExpectedStartOf(r.objects.JobSet); e != nil && e.Stage == a.Name && isWaiting {
		a.ExpectedStart = &StartAnswer{Certainty: e.Certainty, By: e.By, About: e.About, Basis: r.m.redact(r.v, e.Basis), Computed: e.Computed}
	}
	if state := object.Status.RequeueState; state != nil && s.state == BackingOff {
		a.RequeueAt = state.RequeueAt
	}
	if stats := object.Status.SchedulingStats; stats != nil {
		for _, e := range stats.Evictions {
			a.Evictions = append(a.Evictions, EvictionCount{e.Reason, string(e.UnderlyingCause), e.Count})
		}
	}
	for _, growth := range r.growths[a.Name] {
		if known := r.m.workloads[types.NamespacedName{Namespace: growth.Namespace, Name: growth.Name}]; known != nil {
			a.Growths = append(a.Growths, known.row(r.m, r.v))
		}
	}
}

func (r *jobSetReader) countJobs(st *stageplan.Stage) (counts JobCounts) {
	for _, s := range r.objects.JobSet.Status.ReplicatedJobsStatus {
		if slices.Contains(st.ReplicatedJobs, s.Name) {
			counts.Ready += s.Ready
			counts.Succeeded += s.Succeeded
			counts.Failed += s.Failed
			counts.Active += s.Active
			counts.Suspended += s.Suspended
		}
	}
	return counts
}

func timesOf(t *apis.Timeline, stage string) *apis.StageTimes {
	for i := range t.Stages {
		if t.Stages[i].Name == stage {
			return &t.Stages[i]
		}
	}
	return nil
}

// recordedSpans returns the spans of the recorded holds of a stage, without the last one if its quota Workload shows that.
func (r *jobSetReader) recordedSpans(stage string, w *kueue.Workload) []Span {
	t := timesOf(&r.recorded, stage)
	if t == nil {
		return nil
	}
	var all []Span
	for _, e := range slices.Backward(t.Earlier) {
		all = append(all, spansBetween(spanMarks{Queued: e.Queued.Time, Admitted: e.Admitted.Time, Ready: timeOf(e.Ready), End: e.End.Time})...)
	}
	return append(all, r.lastRecorded(t, w)...)
}

// lastRecorded returns the spans of the last recorded hold of a stage, unless it is the one that its quota Workload shows.
func (r *jobSetReader) lastRecorded(t *apis.StageTimes, w *kueue.Workload) []Span {
	if w != nil && quotaworkload.HoldsQuota(w) {
		c := cmp.Or(quotaworkload.FindTrue(w, kueue.WorkloadAdmitted), quotaworkload.FindTrue(w, kueue.WorkloadQuotaReserved))
		if !c.LastTransitionTime.After(t.Counted.Time) {
			return nil
		}
	}
	end := t.Counted.Time
	if t.Finished != nil {
		end = t.Finished.Time
	}
	return spansBetween(spanMarks{Queued: t.Queued.Time, Admitted: t.Admitted.Time, Ready: timeOf(t.Ready), NotReady: timeOf(t.NotReadySince), End: end})
}

// currentSpans returns the spans that a quota Workload shows.
func (r *jobSetReader) currentSpans(st *stageplan.Stage, w *kueue.Workload) []Span {
	s := statusOf(w)
	if !quotaworkload.HoldsQuota(w) {
		if s.state != Pending && s.state != BackingOff {
			return nil
		}
		from := r.queuedSince(st, w)
		// An eviction ends a hold, after which the stage waits again.
		if c := quotaworkload.FindTrue(w, kueue.WorkloadEvicted); c != nil && c.LastTransitionTime.After(from) {
			from = c.LastTransitionTime.Time
		}
		return []Span{{Kind: spanWaiting, From: from}}
	}
	t := timesOf(&r.current, st.Name)
	if t == nil {
		return nil
	}
	m := spanMarks{Queued: r.queuedSince(st, w), Admitted: t.Admitted.Time, Ready: timeOf(t.Ready), NotReady: timeOf(t.NotReadySince)}
	if c := quotaworkload.FindTrue(w, kueue.WorkloadQuotaReserved); c != nil {
		m.Reserved = c.LastTransitionTime.Time
	}
	if !quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) {
		m.Admitted = time.Time{}
	}
	if s.state == Finished || s.state == Evicting {
		m.End = s.since
	}
	shown := spansBetween(m)
	if s.state == Evicting {
		shown = append(shown, Span{Kind: spanEvicting, From: s.since})
	}
	return shown
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
