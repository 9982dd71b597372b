package jobsetstatus

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// maxTimeline is how many bytes a timeline may have: a quarter of the limit for all annotations of an object.
const maxTimeline = 64 << 10

// A Hold is the time for which a stage has held quota, according to its quota Workload.
type Hold struct {
	Stage string
	// Workload holds the quota, or has finished with it.
	Workload *kueue.Workload
	// Growths hold quota for the pods by which the stage has grown.
	Growths []*kueue.Workload
	// Queued is when the stage could be admitted.
	Queued time.Time
	// End is the end of the hold, or the time until which it is counted.
	End time.Time
	// Opens has the quota Workloads of the stages that this one opens by being ready.
	Opens []*kueue.Workload
	// Closes is true if the hold continues, and a restart gates the stage.
	Closes bool
}

// TimelineOf parses the timeline of a JobSet. A timeline that cannot be parsed counts as none.
func TimelineOf(js *jobsetapi.JobSet) apis.Timeline {
	var t apis.Timeline
	if json.Unmarshal([]byte(js.Annotations[apis.TimelineAnnotation]), &t) != nil {
		return apis.Timeline{}
	}
	return t
}

// RenderTimeline returns the value of the annotation. If it would be too long, it omits earlier holds, and then the first stages.
func RenderTimeline(t apis.Timeline) (string, error) {
	if data, err := json.Marshal(t); err != nil || len(data) <= maxTimeline {
		return string(data), err
	}
	t.Stages = slices.Clone(t.Stages)
	for i := range t.Stages {
		t.Stages[i].Earlier = nil
	}
	for {
		data, err := json.Marshal(t)
		if err != nil || len(data) <= maxTimeline || len(t.Stages) == 0 {
			return string(data), err
		}
		out := (len(t.Stages) + 7) / 8
		t.Stages = t.Stages[out:]
		t.Omitted += out
	}
}

// IsCounted reports whether a timeline has the end of the stage of this finished quota Workload, or has omitted that stage. order has the
// names of all stages in their order.
func IsCounted(t *apis.Timeline, stage string, workload *kueue.Workload, order []string) bool {
	i := indexOf(t, stage)
	if i < 0 {
		return isLeftOut(t, stage, order)
	}
	finished := quotaworkload.FindTrue(workload, kueue.WorkloadFinished)
	return finished != nil && t.Stages[i].Finished != nil && t.Stages[i].Finished.Equal(&finished.LastTransitionTime)
}

func indexOf(t *apis.Timeline, stage string) int {
	return slices.IndexFunc(t.Stages, func(s apis.StageTimes) bool { return s.Name == stage })
}

// isLeftOut reports whether a stage that a timeline does not have is one of the first, which were omitted. Such a stage stays out, or it
// would be added and omitted again forever.
func isLeftOut(t *apis.Timeline, stage string, order []string) bool {
	return t.Omitted > 0 && (len(t.Stages) == 0 || slices.Index(order, stage) < slices.Index(order, t.Stages[0].Name))
}

// Count adds a hold to a timeline, as far as it is not counted yet. order has the names of all stages in their order; an omitted stage
// stays out. Count returns for how long the stage was ready and waited for others.
func (h *Hold) Count(t *apis.Timeline, order []string) (waited time.Duration) {
	if indexOf(t, h.Stage) < 0 && isLeftOut(t, h.Stage, order) {
		_, _, waited = h.spans(t, time.Time{})
		return waited
	}
	s := stageTimes(t, h.Stage, order)
	counted := s.Counted.Time
	held, idle, waited := h.spans(t, counted)
	s.NotReadySince = h.notReadySince(t)
	if !h.isLast(s) {
		h.keepEarlier(s)
		s.Ready = nil
	}
	// When quota is released, the condition no longer has since when the pods were ready: they have terminated.
	s.Ready = cmp.Or(s.Ready, h.readyTime())
	s.Queued, s.Counted = metav1.NewTime(h.Queued.UTC()), metav1.NewTime(h.End.UTC())
	s.Admitted, s.Finished = h.admitted(), nil
	if c := quotaworkload.FindTrue(h.Workload, kueue.WorkloadFinished); c != nil {
		s.Finished = &c.LastTransitionTime
	}
	add(s, h.Workload, held, idle)
	for _, growth := range h.Growths {
		held, idle, _ := (&Hold{Workload: growth, End: h.End}).spans(&apis.Timeline{}, counted)
		add(s, growth, held, idle)
	}
	return waited
}

// admitted returns when the quota of a hold was admitted, or reserved if it never was.
func (h *Hold) admitted() metav1.Time {
	if c := cmp.Or(quotaworkload.FindTrue(h.Workload, kueue.WorkloadAdmitted), quotaworkload.FindTrue(h.Workload, kueue.WorkloadQuotaReserved)); c != nil {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

// isLast reports whether the last hold of a stage in a timeline is the one that is counted now: such a hold has been reserved before the time until
// which it is counted.
func (h *Hold) isLast(s *apis.StageTimes) bool {
	reserved := quotaworkload.FindTrue(h.Workload, kueue.WorkloadQuotaReserved)
	admitted := h.admitted()
	return !s.Admitted.IsZero() && (s.Admitted.Equal(&admitted) || reserved == nil || reserved.LastTransitionTime.Before(&s.Counted))
}

// keepEarlier adds the last hold of a stage to the earlier ones.
func (h *Hold) keepEarlier(s *apis.StageTimes) {
	if s.Admitted.IsZero() {
		return
	}
	last := apis.HoldTimes{Queued: s.Queued, Admitted: s.Admitted, Ready: s.Ready, End: s.Counted}
	if s.Finished != nil {
		last.End = *s.Finished
	}
	s.Earlier = slices.Insert(s.Earlier, 0, last)
	s.Earlier = s.Earlier[:min(len(s.Earlier), apis.MaxEarlierHolds)]
}

// add adds the quota that a quota Workload has held, times the duration.
func add(s *apis.StageTimes, workload *kueue.Workload, held, idle time.Duration) {
	for name, amount := range accelerators(workload.Status.Admission) {
		if s.Held == nil {
			s.Held, s.Idle = map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
		}
		s.Held[name] += amount * int64(held/time.Second)
		s.Idle[name] += amount * int64(idle/time.Second)
	}
}

// stageTimes returns the entry of a stage, and creates it if there is none.
func stageTimes(t *apis.Timeline, stage string, order []string) *apis.StageTimes {
	if i := indexOf(t, stage); i >= 0 {
		return &t.Stages[i]
	}
	i := 0
	for _, name := range order[:max(0, slices.Index(order, stage))] {
		if i < len(t.Stages) && t.Stages[i].Name == name {
			i++
		}
	}
	t.Stages = slices.Insert(t.Stages, i, apis.StageTimes{Name: stage})
	return &t.Stages[i]
}

// spans returns for how long quota was held since it was last counted, for how long of that it was idle, and for how long of that the stage
// was ready and waited for others:
//
//	reserved ---------- ready ------------ the stages that this one opens are ready ---------- end
//	|<------------------------------- held -------------------------------------------------->|
//	|<-------------------- idle --------->|
//	                    |<--- waited ---->|
func (h *Hold) spans(t *apis.Timeline, counted time.Time) (held, idle, waited time.Duration) {
	reserved := quotaworkload.FindTrue(h.Workload, kueue.WorkloadQuotaReserved)
	if reserved == nil || h.Workload.Status.Admission == nil {
		return 0, 0, 0
	}
	from := workloadstatus.Later(reserved.LastTransitionTime.Time, counted)
	held = max(0, h.End.Sub(from))
	ready, ok := readySince(h.Workload, NotReadySince(t, h.Stage, h.Workload))
	if !ok {
		return held, held, 0
	}
	busy := ready
	for _, opened := range h.Opens {
		since, ok := readySince(opened, NotReadySince(t, opened.Labels[apis.StageLabel], opened))
		if !ok {
			since = h.End
		}
		busy = workloadstatus.Later(busy, since)
	}
	if busy.After(h.End) {
		busy = h.End
	}
	return held, max(0, busy.Sub(from)), max(0, busy.Sub(workloadstatus.Later(from, ready)))
}

// NotReadySince returns since when the pods of a stage have not been ready, if a restart has gated the stage while it held its quota and
// the pods have not been ready again. It is zero otherwise.
func NotReadySince(t *apis.Timeline, stage string, w *kueue.Workload) time.Time {
	i := indexOf(t, stage)
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if i < 0 || t.Stages[i].NotReadySince == nil || reserved == nil || t.Stages[i].NotReadySince.Before(&reserved.LastTransitionTime) {
		return time.Time{}
	}
	return t.Stages[i].NotReadySince.Time
}

// notReadySince returns the NotReadySince to record.
func (h *Hold) notReadySince(t *apis.Timeline) *metav1.Time {
	since := NotReadySince(t, h.Stage, h.Workload)
	reserved := quotaworkload.FindTrue(h.Workload, kueue.WorkloadQuotaReserved)
	switch _, isReady := readySince(h.Workload, since); {
	case isReady && h.Closes:
		since = h.End
	case isReady:
		return nil
	case h.Closes && since.IsZero() && reserved != nil:
		since = reserved.LastTransitionTime.Time
	}
	if since.IsZero() {
		return nil
	}
	return new(metav1.NewTime(since.UTC()))
}

// readySince returns when all pods of a quota Workload that holds quota, or has finished, were ready for the first time, or for the first
// time since the given NotReadySince. If a pod was lost since then, even if it was replaced, that time is unknown: the pods count as ready
// from the beginning, which is right for the time after the loss. The time before the loss is recorded when the pod is lost.
func readySince(w *kueue.Workload, notReadySince time.Time) (time.Time, bool) {
	reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	switch {
	case reserved == nil || reserved.Status != metav1.ConditionTrue || ready == nil:
		return time.Time{}, false
	case ready.Reason == kueue.WorkloadRecovered || ready.Reason == kueue.WorkloadWaitForRecovery:
		return reserved.LastTransitionTime.Time, true
	case ready.Status == metav1.ConditionTrue:
		return workloadstatus.Later(reserved.LastTransitionTime.Time, ready.LastTransitionTime.Time), true
	case !notReadySince.IsZero():
		return time.Time{}, false
	}
	return reserved.LastTransitionTime.Time, ready.LastTransitionTime.After(reserved.LastTransitionTime.Time)
}

// IsReadyUncounted reports whether the pods of a stage have become ready after the time that the timeline has counted. When a pod is lost,
// no other record shows since when they were ready.
func IsReadyUncounted(t *apis.Timeline, stage string, w *kueue.Workload) bool {
	ready := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadPodsReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason == kueue.WorkloadRecovered {
		return false
	}
	i := indexOf(t, stage)
	return i < 0 || t.Stages[i].Counted.Before(&ready.LastTransitionTime)
}

// readyTime returns since when all pods have been ready, or nil.
func (h *Hold) readyTime() *metav1.Time {
	reserved, ready := quotaworkload.FindTrue(h.Workload, kueue.WorkloadQuotaReserved), quotaworkload.FindTrue(h.Workload, kueue.WorkloadPodsReady)
	if reserved == nil || ready == nil {
		return nil
	}
	return new(metav1.NewTime(workloadstatus.Later(reserved.LastTransitionTime.Time, ready.LastTransitionTime.Time)))
}

// QueuedSince returns when a quota Workload was created or last requeued, or when the last of its start conditions was met: stages that had
// to succeed, and stages that had to be ready.
func QueuedSince(w *kueue.Workload, succeeded, ready []*kueue.Workload) time.Time {
	since := w.CreationTimestamp.Time
	for _, other := range succeeded {
		if c := apimeta.FindStatusCondition(other.Status.Conditions, kueue.WorkloadFinished); c != nil {
			since = workloadstatus.Later(since, c.LastTransitionTime.Time)
		}
	}
	for _, other := range ready {
		if t, ok := readySince(other, time.Time{}); ok {
			since = workloadstatus.Later(since, t)
		}
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadRequeued); c != nil {
		since = workloadstatus.Later(since, c.LastTransitionTime.Time)
	}
	// A stage is opened before the stage that it waited for is finished.
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.LastTransitionTime.Time.Before(since) {
		since = c.LastTransitionTime.Time
	}
	return since
}

// accelerators sums the extended resources that an admission charges.
func accelerators(admission *kueue.Admission) map[corev1.ResourceName]int64 {
	amounts := map[corev1.ResourceName]int64{}
	if admission == nil {
		return amounts
	}
	for i := range admission.PodSetAssignments {
		for name, quantity := range admission.PodSetAssignments[i].ResourceUsage {
			if domain, _, qualified := strings.Cut(string(name), "/"); qualified && !strings.HasSuffix(domain, "kubernetes.io") {
				amounts[name] += quantity.Value()
			}
		}
	}
	return amounts
}
