package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// A vector is a counter or histogram with labels.
type vector interface {
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

// A catalogue makes collectors, and lists them.
type catalogue []prometheus.Collector

func (c *catalogue) counter(name, help string, labels []string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	*c = append(*c, v)
	return v
}

func (c *catalogue) histogram(name, help string, buckets []float64, labels []string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	*c = append(*c, v)
	return v
}

func (c *catalogue) total(name, help string) prometheus.Counter {
	v := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	*c = append(*c, v)
	return v
}

// perQueue are two metrics for the same transitions: one of ClusterQueues, and one of LocalQueues with kueue_local_queue_ for kueue_ in its
// name.
type perQueue[V any] struct{ clusterQueues, localQueues V }

func localName(name string) string { return strings.Replace(name, "kueue_", "kueue_local_queue_", 1) }

func (c *catalogue) counters(name, help string, more ...string) perQueue[*prometheus.CounterVec] {
	return perQueue[*prometheus.CounterVec]{c.counter(name, help, ofQueue(more...)), c.counter(localName(name), help, ofLocalQueue(more...))}
}

// histograms have the same buckets for ClusterQueues and LocalQueues, unless there are more for ClusterQueues.
func (c *catalogue) histograms(name, help string, more int) perQueue[*prometheus.HistogramVec] {
	return perQueue[*prometheus.HistogramVec]{
		c.histogram(name, help, seconds(14+more), ofQueue("priority_class")), c.histogram(localName(name), help, seconds(14), ofLocalQueue("priority_class")),
	}
}

// kueueVectors are the metrics that Kueue has too.
type kueueVectors struct {
	quotaReserved, admitted, finished, evicted                                  perQueue[*prometheus.CounterVec]
	quotaReservedWait, admissionWait, checksWait, readyWait, admittedUntilReady perQueue[*prometheus.HistogramVec]
	attempts, cohortAdmitted, evictedOnce, preempted                            *prometheus.CounterVec
	attemptDuration, readyToEvicted, evictionLatency, creationLatency, ungating *prometheus.HistogramVec
}

func newKueueVectors(all *catalogue) kueueVectors {
	return kueueVectors{
		attempts: all.counter("kueue_admission_attempts_total",
			"Number of scheduling cycles, by result: success if a quota Workload was admitted, inadmissible if quota Workloads were refused and none was admitted.",
			[]string{"result", "replica_role"}),
		attemptDuration: all.histogram("kueue_admission_attempt_duration_seconds", "Duration of a scheduling cycle, by result.", nil,
			[]string{"result", "replica_role"}),
		quotaReserved: all.counters("kueue_quota_reserved_workloads_total", "Number of quota Workloads for which quota was reserved.", "priority_class"),
		quotaReservedWait: all.histograms("kueue_quota_reserved_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, to its quota reservation.", 0),
		admitted: all.counters("kueue_admitted_workloads_total", "Number of quota Workloads admitted.", "priority_class"),
		cohortAdmitted: all.counter("kueue_cohort_subtree_admitted_workloads_total",
			"Number of quota Workloads admitted by the ClusterQueues below the Cohort.", ofCohort("priority_class")),
		admissionWait: all.histograms("kueue_admission_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, to its admission.", 2),
		checksWait: all.histograms("kueue_admission_checks_wait_time_seconds",
			"Time from the quota reservation of a quota Workload to its admission.", 0),
		readyWait: all.histograms("kueue_ready_wait_time_seconds",
			"Time from the creation of a quota Workload, or its last requeue, until its pods were ready for the first time.", 0),
		admittedUntilReady: all.histograms("kueue_admitted_until_ready_wait_time_seconds",
			"Time from the admission of a quota Workload until its pods were ready for the first time.", 0),
		finished: all.counters("kueue_finished_workloads_total", "Number of quota Workloads finished.", "priority_class"),
		evicted: all.counters("kueue_evicted_workloads_total", "Number of evictions of quota Workloads that held quota, by reason.",
			"reason", "underlying_cause", "priority_class"),
		evictedOnce: all.counter("kueue_evicted_workloads_once_total", "Number of quota Workloads evicted for the first time for a reason and cause.",
			ofQueue("reason", "underlying_cause", "priority_class")),
		preempted: all.counter("kueue_preempted_workloads_total", "Number of preemptions, by ClusterQueue of the preemptor.",
			[]string{"preempting_cluster_queue", "reason", "replica_role"}),
		readyToEvicted: all.histogram("kueue_pods_ready_to_evicted_time_seconds",
			"Time from when the pods of a quota Workload were ready to its eviction.", seconds(14), ofQueue("reason", "underlying_cause")),
		evictionLatency: all.histogram("kueue_workload_eviction_latency_seconds",
			"Time from the eviction of a quota Workload until its quota was released.", seconds(14), ofQueue("reason")),
		creationLatency: all.histogram("kueue_workload_creation_latency_seconds",
			"Time from the creation of a JobSet, a queued Job or the last pod of a gang until all its quota Workloads were created. Not recorded if its spec has changed before.",
			prometheus.ExponentialBuckets(0.01, 2, 11), []string{"job_kind", "replica_role"}),
		ungating: all.histogram("kueue_pod_scheduling_gate_removal_seconds",
			"Time from the admission of a gang until a scheduling gate of one of its pods was removed.", nil,
			[]string{"name", "cluster_queue", "is_group", "replica_role"}),
	}
}

// stageVectors are metrics of Tranche alone.
type stageVectors struct {
	stageWait, stageHold                                                         *prometheus.HistogramVec
	idleQuota, mismatches, admissions, writeFailures, deadlockEvictions, notices *prometheus.CounterVec
	releases, audits                                                             prometheus.Counter
	uncharged                                                                    *unchargedGauge
}

// unchargedGauge has the accelerators that are not charged.
type unchargedGauge struct {
	mu       sync.Mutex
	gauge    *prometheus.GaugeVec
	reported map[Uncharged]float64
}

func newUnchargedGauge(all *catalogue) *unchargedGauge {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tranche_uncharged_accelerators",
		Help: "Accelerators that live pods of a namespace ask for beyond what quota is charged for them. The leader compares them every few seconds. Any value is a bug.",
	}, []string{"namespace", "resource"})
	*all = append(*all, gauge)
	return &unchargedGauge{gauge: gauge}
}

func newStageVectors(all *catalogue) stageVectors {
	return stageVectors{
		uncharged: newUnchargedGauge(all),
		stageWait: all.histogram("tranche_stage_wait_seconds",
			"Time from when a stage was pending (its JobSet submitted, the stage opened, or requeued) to its admission. Position is first or later, or growth for additional pods of a running stage.",
			seconds(16), ofQueue("position")),
		stageHold: all.histogram("tranche_stage_hold_seconds", "Time for which a stage held quota, by outcome: finished, evicted or deleted.", seconds(16), ofQueue("outcome")),
		idleQuota: all.counter("tranche_idle_quota_seconds_total",
			"Quota held idle, in resource units times seconds. Cause is NotReady until the pods of the stage were ready for the first time,"+
				" or the quota was released; WaitsForStage from then on, until the stages were ready that this stage opens.",
			ofQueue("flavor", "resource", "cause")),
		mismatches: all.counter("tranche_ledger_mismatch_total",
			"Number of times that the charges of the engine differed from the quota Workloads. Any value but 0 is a bug.",
			[]string{"cluster_queue", "flavor", "resource"}),
		admissions: all.counter("tranche_admissions_total", "Number of stages admitted, by ClusterQueue.", []string{"cluster_queue"}),
		writeFailures: all.counter("tranche_decision_write_failures_total",
			"Number of decisions whose write failed, by kind of decision. The engine decides again, or the write is retried.", []string{"decision"}),
		deadlockEvictions: all.counter("tranche_deadlock_evictions_total",
			"Number of stages evicted to resolve a deadlock, by ClusterQueue. Admissions cause no deadlock, but changes of queues and quotas can.",
			[]string{"cluster_queue"}),
		notices: all.counter("tranche_preemption_notices_total",
			"Number of stages that were given notice of their preemption, by ClusterQueue of the stage. Action is Given or Withdrawn.",
			[]string{"cluster_queue", "action"}),
		releases: all.total("tranche_released_jobs_total", "Number of child Jobs released, so that their pods can start."),
		audits: all.total("tranche_ledger_audits_total",
			"Number of times that the charges of the engine were compared with the quota Workloads. The leader does this every minute."),
	}
}
