package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// A vector is a counter or histogram with labels.
type vector interface {
	prometheus.Collector
	DeletePartialMatch(labels prometheus.Labels) int
}

// seconds returns Kueue's buckets: 1, 2.5, 5, 10 and so on.
func seconds(count int) []float64 {
	return append([]float64{1}, prometheus.ExponentialBuckets(2.5, 2, count-1)...)
}

func ofQueue(more ...string) []string {
	return slices.Concat([]string{"cluster_queue"}, more, []string{"replica_role"})
}

func ofLocalQueue(more ...string) []string {
	return slices.Concat([]string{"name", "namespace"}, more, []string{"replica_role"})
}

func counter(name, help string, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets int, labels []string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds(buckets)}, labels)
}

// kueueVectors are the metrics that Kueue has too.
type kueueVectors struct {
	attempts, quotaReserved, localQuotaReserved, admitted, localAdmitted, cohortAdmitted, finished, localFinished, evicted, localEvicted, evictedOnce, preempted                                                                        *prometheus.CounterVec
	attemptDuration, quotaReservedWait, localQuotaReservedWait, admissionWait, localAdmissionWait, checksWait, localChecksWait, readyWait, localReadyWait, admittedUntilReady, localAdmittedUntilReady, readyToEvicted, evictionLatency *prometheus.HistogramVec
}

func newKueueVectors() kueueVectors {
	return kueueVectors{
		attempts: counter("kueue_admission_attempts_total",
			"Number of scheduling cycles, by result: success if a quota Workload was admitted, inadmissible if quota Workloads were refused and none was admitted.",
			[]string{"result", "replica_role"}),
		attemptDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kueue_admission_attempt_duration_seconds", Help: "Duration of a scheduling cycle, by result.",
		}, []string{"result", "replica_role"}),
		quotaReserved: counter("kueue_quota_reserved_workloads_total", "Number of quota Workloads for which quota was reserved.", ofQueue("priority_class")),
		localQuotaReserved: counter("kueue_local_queue_quota_reserved_workloads_total", "Number of quota Workloads for which quota was reserved.",
			ofLocalQueue("priority_class")),
		quotaReservedWait: histogram("kueue_quota_reserved_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, to its quota reservation.", 14, ofQueue("priority_class")),
		localQuotaReservedWait: histogram("kueue_local_queue_quota_reserved_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, to its quota reservation.", 14, ofLocalQueue("priority_class")),
		admitted:      counter("kueue_admitted_workloads_total", "Number of quota Workloads admitted.", ofQueue("priority_class")),
		localAdmitted: counter("kueue_local_queue_admitted_workloads_total", "Number of quota Workloads admitted.", ofLocalQueue("priority_class")),
		cohortAdmitted: counter("kueue_cohort_subtree_admitted_workloads_total", "Number of quota Workloads admitted by the ClusterQueues below the Cohort.",
			ofCohort("priority_class")),
		admissionWait: histogram("kueue_admission_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, to its admission.", 16, ofQueue("priority_class")),
		localAdmissionWait: histogram("kueue_local_queue_admission_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, to its admission.", 14, ofLocalQueue("priority_class")),
		checksWait: histogram("kueue_admission_checks_wait_time_seconds",
			"Time from the quota reservation of a quota Workload to its admission.", 14, ofQueue("priority_class")),
		localChecksWait: histogram("kueue_local_queue_admission_checks_wait_time_seconds",
			"Time from the quota reservation of a quota Workload to its admission.", 14, ofLocalQueue("priority_class")),
		readyWait: histogram("kueue_ready_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, until its pods were ready for the first time.", 14, ofQueue("priority_class")),
		localReadyWait: histogram("kueue_local_queue_ready_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, until its pods were ready for the first time.", 14, ofLocalQueue("priority_class")),
		admittedUntilReady: histogram("kueue_admitted_until_ready_wait_time_seconds",
			"Time from the admission of a quota Workload until its pods were ready for the first time.", 14, ofQueue("priority_class")),
		localAdmittedUntilReady: histogram("kueue_local_queue_admitted_until_ready_wait_time_seconds",
			"Time from the admission of a quota Workload until its pods were ready for the first time.", 14, ofLocalQueue("priority_class")),
		finished:      counter("kueue_finished_workloads_total", "Number of quota Workloads finished.", ofQueue("priority_class")),
		localFinished: counter("kueue_local_queue_finished_workloads_total", "Number of quota Workloads finished.", ofLocalQueue("priority_class")),
		evicted: counter("kueue_evicted_workloads_total", "Number of evictions of quota Workloads that held quota, by reason.",
			ofQueue("reason", "underlying_cause", "priority_class")),
		localEvicted: counter("kueue_local_queue_evicted_workloads_total", "Number of evictions of quota Workloads that held quota, by reason.",
			ofLocalQueue("reason", "underlying_cause", "priority_class")),
		evictedOnce: counter("kueue_evicted_workloads_once_total", "Number of quota Workloads evicted for the first time for a reason and cause.",
			ofQueue("reason", "underlying_cause", "priority_class")),
		preempted: counter("kueue_preempted_workloads_total", "Number of preemptions, by ClusterQueue of the preemptor.",
			[]string{"preempting_cluster_queue", "reason", "replica_role"}),
		readyToEvicted: histogram("kueue_pods_ready_to_evicted_time_seconds", "Time from when the pods of a quota Workload were ready to its eviction.",
			14, ofQueue("reason", "underlying_cause")),
		evictionLatency: histogram("kueue_workload_eviction_latency_seconds", "Time from the eviction of a quota Workload until its quota was released.",
			14, ofQueue("reason")),
	}
}

// stageVectors are metrics of Tranche alone.
type stageVectors struct {
	idleQuota, mismatches *prometheus.CounterVec
	stageWait, stageHold  *prometheus.HistogramVec
}

func newStageVectors() stageVectors {
	return stageVectors{
		stageWait: histogram("tranche_stage_wait_seconds",
			"Time from when a stage was pending (its JobSet submitted, the stage opened, or requeued) to its admission. Position is first or later, or growth for additional pods of a running stage.",
			16, ofQueue("position")),
		stageHold: histogram("tranche_stage_hold_seconds",
			"Time for which a stage held quota, by outcome: finished, evicted or deleted.", 16, ofQueue("outcome")),
		idleQuota: counter("tranche_idle_quota_seconds_total",
			"Quota held idle, in resource units times seconds. Cause is NotReady until the pods of the stage were ready for the first time,"+
				" or the quota was released; WaitsForStage from then on, until the stages were ready that this stage opens.",
			ofQueue("flavor", "resource", "cause")),
		mismatches: counter("tranche_ledger_mismatch_total",
			"Number of times that the charges of the engine differed from the quota Workloads. Any value but 0 is a bug.",
			[]string{"cluster_queue", "flavor", "resource"}),
	}
}

// Vectors returns all counters and histograms that have labels.
func (m *Metrics) Vectors() []prometheus.Collector {
	all := []prometheus.Collector{m.attempts, m.attemptDuration, m.preempted, m.cohortAdmitted, m.admissions, m.writeFailures, m.groupWait, m.groupTimeouts, m.groupsWaiting}
	for _, v := range slices.Concat(m.clusterQueueVectors(), m.localQueueVectors()) {
		all = append(all, v)
	}
	return all
}

// clusterQueueVectors returns those with the label cluster_queue.
func (m *Metrics) clusterQueueVectors() []vector {
	return []vector{
		m.quotaReserved, m.quotaReservedWait, m.admitted, m.admissionWait, m.checksWait, m.readyWait, m.admittedUntilReady, m.finished,
		m.evicted, m.evictedOnce, m.readyToEvicted, m.evictionLatency, m.stageWait, m.stageHold, m.idleQuota, m.mismatches,
	}
}

// localQueueVectors returns those with the labels name and namespace.
func (m *Metrics) localQueueVectors() []vector {
	return []vector{
		m.localQuotaReserved, m.localQuotaReservedWait, m.localAdmitted, m.localAdmissionWait, m.localChecksWait,
		m.localReadyWait, m.localAdmittedUntilReady, m.localFinished, m.localEvicted,
	}
}
