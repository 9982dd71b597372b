package metrics

import (
	"context"
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
)

func gauge(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

func ofFlavor() []string {
	return []string{"cohort", "cluster_queue", "flavor", "resource", "replica_role"}
}

func ofCohort(more ...string) []string {
	return slices.Concat([]string{"cohort"}, more, []string{"replica_role"})
}

// Gauges of the current state.
var (
	engineUp = gauge("tranche_engine_responsive", "1 if the engine responded to this scrape, 0 if the other gauges are missing because it did not.", nil)

	takeover = gauge("tranche_takeover", "1 if Tranche admits in the ClusterQueue instead of Kueue, 0 if the ClusterQueue asks for that, or belongs to a cohort tree that does, and Tranche does not admit. Only in mode Beside.", ofQueue())

	pending     = gauge("kueue_pending_workloads", "Number of pending quota Workloads. Status is active, or inadmissible for those parked until a change.", ofQueue("status"))
	reserving   = gauge("kueue_reserving_active_workloads", "Number of quota Workloads with reserved quota.", ofQueue())
	running     = gauge("kueue_admitted_active_workloads", "Number of admitted quota Workloads that have not finished.", ofQueue())
	done        = gauge("kueue_finished_workloads", "Number of existing quota Workloads that have finished.", ofQueue())
	unadmitted  = gauge("kueue_unadmitted_workloads", "Number of quota Workloads that are not admitted, by the reasons of Admitted=False and QuotaReserved=False.", ofQueue("reason", "underlying_cause"))
	queueStatus = gauge("kueue_cluster_queue_status", "1 for the current status of the ClusterQueue (pending, active or terminating), 0 for the others.", ofQueue("status"))
	queueInfo   = gauge("kueue_cluster_queue_info", "Always 1. The labels name the parent Cohort and the root Cohort of the ClusterQueue.", ofQueue("parent_cohort", "root_cohort"))
	queueShare  = gauge("kueue_cluster_queue_weighted_share", "Share of the quota that the ClusterQueue borrows, divided by its weight, in thousandths; NaN if it borrows with weight 0. Only with fair sharing.", []string{"cluster_queue", "cohort", "replica_role"})

	reservation    = gauge("kueue_cluster_queue_resource_reservation", "Reserved quota.", ofFlavor())
	usage          = gauge("kueue_cluster_queue_resource_usage", "Quota held by admitted quota Workloads.", ofFlavor())
	requested      = gauge("kueue_cluster_queue_resource_pending", "Total requests of the pending quota Workloads.", ofQueue("resource"))
	nominal        = gauge("kueue_cluster_queue_nominal_quota", "Nominal quota.", ofFlavor())
	borrowingLimit = gauge("kueue_cluster_queue_borrowing_limit", "Borrowing limit; +Inf if there is none.", ofFlavor())
	lendingLimit   = gauge("kueue_cluster_queue_lending_limit", "Lending limit; +Inf if there is none.", ofFlavor())

	localPending     = gauge("kueue_local_queue_pending_workloads", "Number of pending quota Workloads. Status is active, or inadmissible for those parked until a change.", ofLocalQueue("status"))
	localReserving   = gauge("kueue_local_queue_reserving_active_workloads", "Number of quota Workloads with reserved quota.", ofLocalQueue())
	localRunning     = gauge("kueue_local_queue_admitted_active_workloads", "Number of admitted quota Workloads that have not finished.", ofLocalQueue())
	localDone        = gauge("kueue_local_queue_finished_workloads", "Number of existing quota Workloads that have finished.", ofLocalQueue())
	localUnadmitted  = gauge("kueue_local_queue_unadmitted_workloads", "Number of quota Workloads that are not admitted, by the reasons of Admitted=False and QuotaReserved=False.", ofLocalQueue("cluster_queue", "reason", "underlying_cause"))
	localStatus      = gauge("kueue_local_queue_status", "1 for the current status of the condition Active of the LocalQueue, 0 for the others.", ofLocalQueue("active"))
	localReservation = gauge("kueue_local_queue_resource_reservation", "Reserved quota.", ofLocalQueue("flavor", "resource"))
	localShare       = gauge("kueue_local_queue_admission_fair_sharing_usage", "Past and current usage of the LocalQueue, and that of imminent admissions, weighted by resource and divided by the weight of the LocalQueue. Only with admission fair sharing.", ofLocalQueue("cluster_queue"))
	localUsage       = gauge("kueue_local_queue_resource_usage", "Quota held by admitted quota Workloads.", ofLocalQueue("flavor", "resource"))

	preparedAhead = gauge("tranche_prepared_ahead", "Number of JobSets of which a stage without accelerators runs or has finished, and none with accelerators has been admitted. Only with lookAhead.stages: 1.", ofQueue())

	cohortInfo     = gauge("kueue_cohort_info", "Always 1. The labels name the parent Cohort and the root Cohort of the Cohort.", ofCohort("parent_cohort", "root_cohort"))
	cohortShare    = gauge("kueue_cohort_weighted_share", "Share of the quota that the Cohort borrows, divided by its weight, in thousandths; NaN if it borrows with weight 0. Only with fair sharing.", ofCohort())
	cohortQuota    = gauge("kueue_cohort_subtree_quota", "Nominal quota of the Cohort, and the quota that the Cohorts and ClusterQueues below it lend.", ofCohort("flavor", "resource"))
	cohortReserved = gauge("kueue_cohort_subtree_resource_reservations", "Quota reserved in the ClusterQueues below the Cohort.", ofCohort("flavor", "resource"))
	cohortRunning  = gauge("kueue_cohort_subtree_admitted_active_workloads", "Number of admitted quota Workloads in the ClusterQueues below the Cohort that have not finished.", ofCohort())
)

// isOne is the value of a series that represents a state.
var isOne = map[bool]float64{true: 1}

// gauges returns all gauges.
func gauges() []*prometheus.Desc {
	return []*prometheus.Desc{
		engineUp, takeover, pending, reserving, running, done, unadmitted, queueStatus, queueInfo, queueShare, reservation, usage, requested, preparedAhead,
		nominal, borrowingLimit, lendingLimit,
		localPending, localReserving, localRunning, localDone, localUnadmitted, localStatus, localReservation, localUsage, localShare,
		cohortInfo, cohortShare, cohortQuota, cohortReserved, cohortRunning,
	}
}

// A collector reads all gauges from the engine in one call. The engine only returns its statistics; the goroutine of the scrape does the
// rest.
type collector struct {
	engine  Engine
	replica Replica
}

// NewCollector returns the collector of all gauges.
func NewCollector(config Config) prometheus.Collector {
	return &collector{engine: config.Engine, replica: config.Metrics.replica}
}

// Describe lists the gauges.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range gauges() {
		descs <- d
	}
}

// Collect reports only that the engine does not answer, if it does not, so that all other metrics can still be read. A replica that does
// not lead decides nothing, so it reports nothing.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	if !c.replica.leads() {
		return
	}
	s := sink{metrics: metrics, role: c.replica.role()}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var stats admission.Stats
	var takeovers []admission.Takeover
	err := c.engine.View(ctx, func(e *admission.Engine) {
		// Abandoned scrapes cause no work for an engine that answers again.
		if ctx.Err() == nil {
			stats, takeovers = e.Stats(), e.Takeovers()
		}
	})
	if err != nil {
		s.send(engineUp, 0)
		return
	}
	s.send(engineUp, 1)
	for i := range takeovers {
		for _, name := range takeovers[i].ClusterQueues {
			s.send(takeover, isOne[takeovers[i].IsLed()], name, s.role)
		}
	}
	for i := range stats.ClusterQueues {
		s.clusterQueue(&stats.ClusterQueues[i])
	}
	for i := range stats.LocalQueues {
		s.localQueue(&stats.LocalQueues[i])
	}
	for i := range stats.Cohorts {
		s.cohort(&stats.Cohorts[i])
	}
}

// A sink receives the collected metrics.
type sink struct {
	metrics chan<- prometheus.Metric
	role    string
}

func (s sink) send(desc *prometheus.Desc, value float64, labels ...string) {
	metric, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(desc, err)
	}
	s.metrics <- metric
}

func (s sink) clusterQueue(q *admission.ClusterQueueStats) {
	s.send(pending, float64(q.Backlog.Active), q.Name, "active", s.role)
	s.send(pending, float64(q.Inadmissible), q.Name, "inadmissible", s.role)
	s.send(reserving, float64(q.Reserving), q.Name, s.role)
	s.send(running, float64(q.Admitted), q.Name, s.role)
	s.send(preparedAhead, float64(q.PreparedAhead), q.Name, s.role)
	s.send(done, float64(q.Finished), q.Name, s.role)
	s.send(queueInfo, 1, q.Name, q.Cohort, q.Root, s.role)
	for cause, n := range q.Unadmitted {
		s.send(unadmitted, float64(n), q.Name, cause.Admitted, cause.QuotaReserved, s.role)
	}
	for _, status := range []string{"pending", "active", "terminating"} {
		s.send(queueStatus, isOne[status == statusOf(q.ClusterQueueView.Active)], q.Name, status, s.role)
	}
	if q.FairSharing != nil {
		s.send(queueShare, q.Share, q.Name, q.Cohort, s.role)
	}
	for i := range q.Limits {
		l := &q.Limits[i]
		labels := []string{q.Cohort, q.Name, string(l.Flavor), string(l.Resource), s.role}
		s.send(nominal, value(l.Nominal, l.Resource), labels...)
		s.send(borrowingLimit, value(l.BorrowingLimit, l.Resource), labels...)
		s.send(lendingLimit, value(l.LendingLimit, l.Resource), labels...)
	}
	for name, amount := range q.Requested {
		s.send(requested, value(amount, name), q.Name, string(name), s.role)
	}
	s.flavors(reservation, q.FlavorsReservation, q.Cohort, q.Name)
	s.flavors(usage, q.FlavorsUsage, q.Cohort, q.Name)
}

func (s sink) flavors(desc *prometheus.Desc, flavors []kueue.FlavorUsage, cohort, queue string) {
	for i := range flavors {
		for _, r := range flavors[i].Resources {
			s.send(desc, r.Total.AsApproximateFloat64(), cohort, queue, string(flavors[i].Name), string(r.Name), s.role)
		}
	}
}

func (s sink) localQueue(q *admission.LocalQueueStats) {
	name, namespace := q.Key.Name, q.Key.Namespace
	s.send(localPending, float64(q.Backlog.Active), name, namespace, "active", s.role)
	s.send(localPending, float64(q.Inadmissible), name, namespace, "inadmissible", s.role)
	s.send(localReserving, float64(q.Reserving), name, namespace, s.role)
	s.send(localRunning, float64(q.Admitted), name, namespace, s.role)
	s.send(localDone, float64(q.Finished), name, namespace, s.role)
	for cause, n := range q.Unadmitted {
		s.send(localUnadmitted, float64(n), name, namespace, q.ClusterQueue, cause.Admitted, cause.QuotaReserved, s.role)
	}
	for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
		s.send(localStatus, isOne[status == q.LocalQueueView.Active.Status], name, namespace, string(status), s.role)
	}
	if q.Level != nil {
		s.send(localShare, *q.Level, name, namespace, q.ClusterQueue, s.role)
	}
	s.localFlavors(localReservation, q.FlavorsReservation, name, namespace)
	s.localFlavors(localUsage, q.FlavorsUsage, name, namespace)
}

func (s sink) localFlavors(desc *prometheus.Desc, flavors []kueue.LocalQueueFlavorUsage, name, namespace string) {
	for i := range flavors {
		for _, r := range flavors[i].Resources {
			s.send(desc, r.Total.AsApproximateFloat64(), name, namespace, string(flavors[i].Name), string(r.Name), s.role)
		}
	}
}

func (s sink) cohort(c *admission.CohortStats) {
	s.send(cohortInfo, 1, c.Name, c.Parent, c.Root, s.role)
	s.send(cohortRunning, float64(c.Admitted), c.Name, s.role)
	if c.FairSharing != nil {
		s.send(cohortShare, c.Share, c.Name, s.role)
	}
	for _, a := range c.Amounts {
		s.send(cohortQuota, value(a.Nominal, a.Resource), c.Name, string(a.Flavor), string(a.Resource), s.role)
		s.send(cohortReserved, value(a.Reserved, a.Resource), c.Name, string(a.Flavor), string(a.Resource), s.role)
	}
}

// statusOf returns Kueue's word for the condition Active.
func statusOf(a admission.Activity) string {
	switch {
	case a.Reason == kueue.ClusterQueueActiveReasonTerminating:
		return "terminating"
	case a.Status == metav1.ConditionTrue:
		return "active"
	}
	return "pending"
}

// value returns an amount in the unit of its resource: cores, bytes, pieces.
func value(a quota.Amount, name corev1.ResourceName) float64 {
	if a == quota.MaxAmount {
		return math.Inf(1)
	}
	q := a.Quantity(name)
	return q.AsApproximateFloat64()
}
