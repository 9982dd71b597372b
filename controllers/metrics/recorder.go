package metrics

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A Cache has the objects beside quota Workloads on which the metrics depend.
type Cache interface {
	ClusterQueueExists(name string) bool
	LocalQueueExists(key types.NamespacedName) bool
	// CohortsOf returns the Cohort of a ClusterQueue and all above it.
	CohortsOf(clusterQueue string) []string
	// CohortIsNamed reports whether there is an object for a Cohort, or a ClusterQueue or another Cohort names it.
	CohortIsNamed(name string) bool
	// NotReadySince returns the NotReadySince of the stage of a quota Workload, according to the timeline of its JobSet, or zero.
	NotReadySince(workload *kueue.Workload) time.Time
}

// A Recorder counts the transitions of quota Workloads, from each change in the cache of the leader. There each transition appears exactly
// once, regardless of its writer and of repeated writes: a write that is repeated, or reconciled again, changes nothing and is not seen as
// a change; and a new manager finds objects at its start, not changes. A transition while no manager runs is not counted, and neither is
// one of which the cache sees only the end after it lost its watch.
//
// Times are those of the conditions, in whole seconds, not those of the observations.
type Recorder struct {
	cache   Cache
	metrics *Metrics
	now     func() time.Time

	// mu makes sure that the series of a deleted queue do not come back: either the queue exists and they are cleared later, or nothing is
	// recorded.
	mu sync.Mutex
	// opened is when the pending stages were opened.
	opened map[types.UID]time.Time
	// cohorts are the Cohorts with series.
	cohorts map[string]struct{}
}

// NewRecorder returns a Recorder without changes.
func NewRecorder(cache Cache, metrics *Metrics, now func() time.Time) *Recorder {
	return &Recorder{cache: cache, metrics: metrics, now: now, opened: map[types.UID]time.Time{}, cohorts: map[string]struct{}{}}
}

// A change is a change of a quota Workload, and where to count it.
type change struct {
	before, after   *kueue.Workload
	clusterQueue    string
	localQueue      types.NamespacedName
	priority, role  string
	inCluster, here bool
	cache           Cache
	metrics         *Metrics
}

// Changed records the differences between two observations of a quota Workload.
func (r *Recorder) Changed(before, after *kueue.Workload) {
	if before.UID != after.UID || before.ResourceVersion == after.ResourceVersion && after.ResourceVersion != "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteOpening(before, after)
	if !r.metrics.replica.leads() {
		return
	}
	c := r.change(before, after)
	if condition := c.reached(kueue.WorkloadQuotaReserved); condition != nil {
		c.reserved(condition)
	}
	if condition := c.reached(kueue.WorkloadAdmitted); condition != nil {
		c.admitted(condition)
		r.admittedInCohorts(&c)
		r.recordWait(&c, condition)
	}
	if condition := c.reached(kueue.WorkloadPodsReady); condition != nil && condition.Reason != kueue.WorkloadRecovered {
		c.ready(condition)
		c.idleUntilReady(condition)
	}
	if condition := c.reached(kueue.WorkloadEvicted); condition != nil {
		c.evicted(condition)
	}
	c.released()
	if condition := c.reached(kueue.WorkloadFinished); condition != nil {
		c.finished()
	}
}

// Gone records the end of a quota Workload that may still have held quota.
func (r *Recorder) Gone(last *kueue.Workload) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.opened, last.UID)
	reserved := isTrue(last, kueue.WorkloadQuotaReserved)
	if c := r.change(last, last); r.metrics.replica.leads() && c.inCluster && reserved != nil && isTrue(last, kueue.WorkloadFinished) == nil {
		observe(r.metrics.stageHold, r.now().Sub(reserved.LastTransitionTime.Time), c.clusterQueue, "deleted", c.role)
		c.idleUntil(r.now())
	}
}

// ClusterQueueGone deletes the series of a ClusterQueue.
func (r *Recorder) ClusterQueueGone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics.forget(prometheus.Labels{"cluster_queue": name})
	r.metrics.forget(prometheus.Labels{"preempting_cluster_queue": name})
}

// CohortGone deletes the series of a Cohort whose object was deleted.
func (r *Recorder) CohortGone(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetCohort(name)
}

// CohortsMoved deletes the series of Cohorts that have no object and that nothing names after a ClusterQueue or a Cohort has another parent
// or none.
func (r *Recorder) CohortsMoved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.cohorts {
		if !r.cache.CohortIsNamed(name) {
			r.forgetCohort(name)
		}
	}
}

func (r *Recorder) forgetCohort(name string) {
	delete(r.cohorts, name)
	r.metrics.forget(prometheus.Labels{"cohort": name})
}

// admittedInCohorts counts an admission in each Cohort above its ClusterQueue.
func (r *Recorder) admittedInCohorts(c *change) {
	if !c.inCluster {
		return
	}
	for _, name := range r.cache.CohortsOf(c.clusterQueue) {
		r.cohorts[name] = struct{}{}
		r.metrics.cohortAdmitted.WithLabelValues(name, c.priority, c.role).Inc()
	}
}

// LocalQueueGone deletes the series of a LocalQueue.
func (r *Recorder) LocalQueueGone(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metrics.forget(prometheus.Labels{"name": key.Name, "namespace": key.Namespace})
}

func (r *Recorder) change(before, after *kueue.Workload) change {
	c := change{
		before: before, after: after, role: r.metrics.replica.role(), cache: r.cache, metrics: r.metrics,
		localQueue: types.NamespacedName{Namespace: after.Namespace, Name: string(after.Spec.QueueName)},
	}
	if ref := after.Spec.PriorityClassRef; ref != nil {
		c.priority = ref.Name
	}
	for _, w := range []*kueue.Workload{before, after} {
		if w.Status.Admission != nil {
			c.clusterQueue = string(w.Status.Admission.ClusterQueue)
		}
	}
	c.inCluster = c.clusterQueue != "" && r.cache.ClusterQueueExists(c.clusterQueue)
	c.here = r.cache.LocalQueueExists(c.localQueue)
	return c
}

// noteOpening records when a stage was opened, which none of its fields contains. A replica that does not lead also records it, because it
// may lead later.
func (r *Recorder) noteOpening(before, after *kueue.Workload) {
	switch {
	case isTrue(after, kueue.WorkloadFinished) != nil:
		delete(r.opened, after.UID)
	case len(quotaworkload.Gates(before)) > 0 && len(quotaworkload.Gates(after)) == 0:
		r.opened[after.UID] = r.now()
	}
}

// recordWait records how long a stage that is admitted now has waited. That is not known for a stage that was opened before this manager
// started.
func (r *Recorder) recordWait(c *change, admitted *metav1.Condition) {
	since, position := workloadstatus.QueuedSince(c.after), "first"
	if index := c.after.Labels[apis.StageIndexLabel]; index != "" && index != "0" {
		position = "later"
	}
	if c.after.Labels[apis.GrowthLabel] != "" {
		position = "growth"
	}
	opened, isKnown := r.opened[c.after.UID]
	delete(r.opened, c.after.UID)
	if opened.After(since) {
		since = opened
	}
	requeued := apimeta.FindStatusCondition(c.after.Status.Conditions, kueue.WorkloadRequeued)
	if c.inCluster && (position != "later" || isKnown || requeued != nil) {
		observe(r.metrics.stageWait, admitted.LastTransitionTime.Sub(since), c.clusterQueue, position, c.role)
	}
}

// reached returns a condition that is true now and was not before.
func (c *change) reached(conditionType string) *metav1.Condition {
	if isTrue(c.before, conditionType) != nil {
		return nil
	}
	return isTrue(c.after, conditionType)
}

func (c *change) reserved(reserved *metav1.Condition) {
	wait := reserved.LastTransitionTime.Sub(workloadstatus.QueuedSince(c.after))
	c.count(c.metrics.quotaReserved)
	c.observe(c.metrics.quotaReservedWait, wait)
}

func (c *change) admitted(now *metav1.Condition) {
	c.count(c.metrics.admitted)
	c.observe(c.metrics.admissionWait, now.LastTransitionTime.Sub(workloadstatus.QueuedSince(c.after)))
	if reserved := isTrue(c.after, kueue.WorkloadQuotaReserved); reserved != nil {
		c.observe(c.metrics.checksWait, now.LastTransitionTime.Sub(reserved.LastTransitionTime.Time))
	}
}

func (c *change) ready(now *metav1.Condition) {
	c.observe(c.metrics.readyWait, now.LastTransitionTime.Sub(workloadstatus.QueuedSince(c.after)))
	if admitted := isTrue(c.after, kueue.WorkloadAdmitted); admitted != nil {
		c.observe(c.metrics.admittedUntilReady, now.LastTransitionTime.Sub(admitted.LastTransitionTime.Time))
	}
}

func (c *change) finished() { c.count(c.metrics.finished) }

// evicted counts an eviction. A Workload without quota is not counted.
func (c *change) evicted(now *metav1.Condition) {
	if c.clusterQueue == "" {
		return
	}
	reason, cause, _ := strings.Cut(now.Reason, "DueTo")
	isFirst := false
	if counted := c.countedEviction(reason); counted != nil {
		cause = string(counted.UnderlyingCause)
		isFirst = evictions(c.before, counted) == 0
	}
	c.count(c.metrics.evicted, reason, cause)
	if !c.inCluster {
		return
	}
	if isFirst {
		c.metrics.evictedOnce.WithLabelValues(c.clusterQueue, reason, cause, c.priority, c.role).Inc()
	}
	if ready := isTrue(c.before, kueue.WorkloadPodsReady); ready != nil {
		observe(c.metrics.readyToEvicted, now.LastTransitionTime.Sub(ready.LastTransitionTime.Time), c.clusterQueue, reason, cause, c.role)
	}
}

// countedEviction returns the eviction that was added to the statistics in the status, or nil. The reason of the condition Evicted names the cause only of a
// deactivation.
func (c *change) countedEviction(reason string) *kueue.WorkloadSchedulingStatsEviction {
	if c.after.Status.SchedulingStats == nil {
		return nil
	}
	for i := range c.after.Status.SchedulingStats.Evictions {
		if e := &c.after.Status.SchedulingStats.Evictions[i]; e.Reason == reason && e.Count > evictions(c.before, e) {
			return e
		}
	}
	return nil
}

// evictions returns how often a quota Workload was evicted for the reason and cause of an eviction.
func evictions(w *kueue.Workload, like *kueue.WorkloadSchedulingStatsEviction) int32 {
	if w.Status.SchedulingStats == nil {
		return 0
	}
	for _, e := range w.Status.SchedulingStats.Evictions {
		if e.Reason == like.Reason && e.UnderlyingCause == like.UnderlyingCause {
			return e.Count
		}
	}
	return 0
}

// released records how long quota was held that is released now.
func (c *change) released() {
	reserved := isTrue(c.before, kueue.WorkloadQuotaReserved)
	if reserved == nil || !c.inCluster || isTrue(c.before, kueue.WorkloadFinished) != nil {
		return
	}
	since := reserved.LastTransitionTime.Time
	if end := isTrue(c.after, kueue.WorkloadFinished); end != nil {
		observe(c.metrics.stageHold, end.LastTransitionTime.Sub(since), c.clusterQueue, "finished", c.role)
		c.idleUntil(end.LastTransitionTime.Time)
		return
	}
	end := apimeta.FindStatusCondition(c.after.Status.Conditions, kueue.WorkloadQuotaReserved)
	if end == nil || end.Status == metav1.ConditionTrue {
		return
	}
	observe(c.metrics.stageHold, end.LastTransitionTime.Sub(since), c.clusterQueue, "evicted", c.role)
	c.idleUntil(end.LastTransitionTime.Time)
	if eviction := isTrue(c.after, kueue.WorkloadEvicted); eviction != nil {
		reason, _, _ := strings.Cut(eviction.Reason, "DueTo")
		observe(c.metrics.evictionLatency, end.LastTransitionTime.Sub(eviction.LastTransitionTime.Time), c.clusterQueue, reason, c.role)
	}
}

func (c *change) count(counters perQueue[*prometheus.CounterVec], labels ...string) {
	labels = append(labels, c.priority, c.role)
	if c.inCluster {
		counters.clusterQueues.WithLabelValues(append([]string{c.clusterQueue}, labels...)...).Inc()
	}
	if c.here {
		counters.localQueues.WithLabelValues(append([]string{c.localQueue.Name, c.localQueue.Namespace}, labels...)...).Inc()
	}
}

func (c *change) observe(histograms perQueue[*prometheus.HistogramVec], d time.Duration) {
	if c.inCluster {
		observe(histograms.clusterQueues, d, c.clusterQueue, c.priority, c.role)
	}
	if c.here {
		observe(histograms.localQueues, d, c.localQueue.Name, c.localQueue.Namespace, c.priority, c.role)
	}
}

// observe counts a negative duration as zero: clocks differ, and creation times are rounded down.
func observe(v *prometheus.HistogramVec, d time.Duration, labels ...string) {
	v.WithLabelValues(labels...).Observe(max(0, d.Seconds()))
}

func isTrue(w *kueue.Workload, conditionType string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(w.Status.Conditions, conditionType); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}
