package metrics_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// elected returns the closed channel of a process that leads.
func elected() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// A stand answers from an engine of its own, or does not answer.
type stand struct {
	engine *admission.Engine
	hangs  bool
}

func (s *stand) View(ctx context.Context, f func(*admission.Engine)) error {
	if s.hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	f(s.engine)
	return nil
}

func newStand(t *testing.T) *stand {
	t.Helper()
	e, err := admission.New(admission.Config{FairSharing: true, LookAhead: admission.LookAhead{IsEnabled: true, MaxAhead: 5}})
	if err != nil {
		t.Fatal(err)
	}
	e.Apply(admission.NamespaceObserved{Name: "ns"})
	e.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a100", UID: "a100"}}})
	return &stand{engine: e}
}

func (s *stand) queue(name, nominal string, change func(*kueue.ClusterQueue)) {
	q := &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec: kueue.ClusterQueueSpec{
			CohortName: "all", NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{"cpu"},
				Flavors: []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{
					{Name: "cpu", NominalQuota: resource.MustParse(nominal), BorrowingLimit: new(resource.MustParse("2500m"))},
				}}},
			}},
		},
	}
	change(q)
	s.engine.Apply(admission.ClusterQueueObserved{ClusterQueue: q})
	s.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("lq-" + name)},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
	}})
}

func unchanged(*kueue.ClusterQueue) {}

// workload observes a quota Workload of one pod.
func (s *stand) workload(queue, name, cpus string, conditions ...metav1.Condition) {
	w := newWorkload(queue, name, cpus)
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(start())
	}
	w.Status.Conditions = conditions
	s.engine.Apply(admission.WorkloadObserved{Workload: w})
}

func newWorkload(queue, name, cpus string) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(start())},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue), PriorityClassRef: &kueue.PriorityClassRef{Name: "high"},
			PodSets: []kueue.PodSet{{Name: "main", Count: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpus)}},
			}}}}}},
		},
	}
}

// decide writes nothing: admissions are assumed.
func (s *stand) decide() { s.engine.Decide(start()) }

func (s *stand) want(t *testing.T, want string, names ...string) {
	t.Helper()
	c := metrics.NewCollector(metrics.Config{Engine: s, Metrics: metrics.New(metrics.Replica{Elected: elected()})})
	help := helpOf(c)
	var b strings.Builder
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if fields := strings.Fields(line); len(fields) > 2 && fields[1] == "TYPE" {
			fmt.Fprintf(&b, "# HELP %s %s\n", fields[2], help[fields[2]])
		}
		b.WriteString(line + "\n")
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(b.String()), names...); err != nil {
		t.Error(err)
	}
}

// helpOf returns the help of each metric, so that tests need not repeat it.
func helpOf(c prometheus.Collector) map[string]string {
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	help := map[string]string{}
	for d := range descs {
		if parts := regexp.MustCompile(`fqName: "(.*)", help: "(.*)", constLabels`).FindStringSubmatch(d.String()); parts != nil {
			help[parts[1]] = parts[2]
		}
	}
	return help
}

func TestGaugesReportTheStateOfTheEngine(t *testing.T) {
	s := newStand(t)
	s.queue("q", "4", unchanged)
	s.queue("lender", "1", unchanged)
	s.workload("q", "runs", "4500m")
	s.workload("q", "waits", "2")
	s.workload("q", "huge", "100")
	s.workload("q", "over", "1", metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: "Succeeded"})
	s.decide()
	s.workload("q", "new", "500m")
	s.want(t, `
		# TYPE kueue_pending_workloads gauge
		kueue_pending_workloads{cluster_queue="lender",replica_role="standalone",status="active"} 0
		kueue_pending_workloads{cluster_queue="lender",replica_role="standalone",status="inadmissible"} 0
		kueue_pending_workloads{cluster_queue="q",replica_role="standalone",status="active"} 1
		kueue_pending_workloads{cluster_queue="q",replica_role="standalone",status="inadmissible"} 2
		# TYPE kueue_local_queue_pending_workloads gauge
		kueue_local_queue_pending_workloads{name="lender",namespace="ns",replica_role="standalone",status="active"} 0
		kueue_local_queue_pending_workloads{name="lender",namespace="ns",replica_role="standalone",status="inadmissible"} 0
		kueue_local_queue_pending_workloads{name="q",namespace="ns",replica_role="standalone",status="active"} 1
		kueue_local_queue_pending_workloads{name="q",namespace="ns",replica_role="standalone",status="inadmissible"} 2
		# TYPE kueue_cluster_queue_resource_pending gauge
		kueue_cluster_queue_resource_pending{cluster_queue="q",replica_role="standalone",resource="cpu"} 102.5
		# TYPE kueue_unadmitted_workloads gauge
		kueue_unadmitted_workloads{cluster_queue="q",reason="NoReservation",replica_role="standalone",underlying_cause="ExceedsMaxQuota"} 1
		kueue_unadmitted_workloads{cluster_queue="q",reason="NoReservation",replica_role="standalone",underlying_cause="PendingEvaluation"} 1
		kueue_unadmitted_workloads{cluster_queue="q",reason="NoReservation",replica_role="standalone",underlying_cause="WaitingForQuota"} 1
	`, "kueue_pending_workloads", "kueue_local_queue_pending_workloads", "kueue_cluster_queue_resource_pending", "kueue_unadmitted_workloads")
	s.want(t, `
		# TYPE kueue_admitted_active_workloads gauge
		kueue_admitted_active_workloads{cluster_queue="lender",replica_role="standalone"} 0
		kueue_admitted_active_workloads{cluster_queue="q",replica_role="standalone"} 1
		# TYPE kueue_finished_workloads gauge
		kueue_finished_workloads{cluster_queue="lender",replica_role="standalone"} 0
		kueue_finished_workloads{cluster_queue="q",replica_role="standalone"} 1
		# TYPE kueue_cohort_subtree_admitted_active_workloads gauge
		kueue_cohort_subtree_admitted_active_workloads{cohort="all",replica_role="standalone"} 1
		# TYPE kueue_cohort_subtree_quota gauge
		kueue_cohort_subtree_quota{cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} 5
		# TYPE kueue_cohort_subtree_resource_reservations gauge
		kueue_cohort_subtree_resource_reservations{cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} 4.5
		# TYPE kueue_cluster_queue_resource_reservation gauge
		kueue_cluster_queue_resource_reservation{cluster_queue="lender",cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} 0
		kueue_cluster_queue_resource_reservation{cluster_queue="q",cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} 4.5
		# TYPE kueue_cluster_queue_weighted_share gauge
		kueue_cluster_queue_weighted_share{cluster_queue="lender",cohort="all",replica_role="standalone"} 0
		kueue_cluster_queue_weighted_share{cluster_queue="q",cohort="all",replica_role="standalone"} 100
		# TYPE tranche_engine_responsive gauge
		tranche_engine_responsive 1
	`, "kueue_admitted_active_workloads", "kueue_finished_workloads", "kueue_cohort_subtree_admitted_active_workloads", "kueue_cohort_subtree_quota",
		"kueue_cohort_subtree_resource_reservations", "kueue_cluster_queue_resource_reservation", "kueue_cluster_queue_weighted_share", "tranche_engine_responsive")
}

// TestPreparedAhead: a JobSet counts while its stage without accelerators runs or has finished, and none with accelerators has been admitted.
func TestPreparedAhead(t *testing.T) {
	s := newStand(t)
	s.queue("q", "4", func(q *kueue.ClusterQueue) {
		group := &q.Spec.ResourceGroups[0]
		group.CoveredResources = append(group.CoveredResources, "nvidia.com/gpu")
		group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("1")})
	})
	want := func(ahead string) {
		t.Helper()
		s.want(t, `
			# TYPE tranche_prepared_ahead gauge
			tranche_prepared_ahead{cluster_queue="q",replica_role="standalone"} `+ahead+`
		`, "tranche_prepared_ahead")
	}
	a := s.prepares(t, "q", "a")
	s.prepares(t, "q", "b")
	want("0")
	s.decide()
	want("2")
	a.Annotations = nil // its gate
	s.engine.Apply(admission.WorkloadObserved{Workload: a})
	s.decide()
	want("1")
	s.engine.Apply(admission.WorkloadGone{Key: admission.StageKey{Namespace: "ns", Name: "b-load"}})
	want("0")
}

// prepares observes a JobSet whose stage train needs a GPU once its stage load, which needs none, has succeeded. It returns the quota Workload of train.
func (s *stand) prepares(t *testing.T, queue, name string) (train *kueue.Workload) {
	t.Helper()
	pod := func(requested corev1.ResourceName) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{requested: resource.MustParse("1")}},
		}}}}
	}
	spec := &jobsetapi.JobSetSpec{ReplicatedJobs: make([]jobsetapi.ReplicatedJob, 2)}
	for i, job := range []struct {
		name      string
		requested corev1.ResourceName
	}{{"load", "cpu"}, {"train", "nvidia.com/gpu"}} {
		r := &spec.ReplicatedJobs[i]
		r.Name, r.Replicas, r.Template.Spec.Template = job.name, 1, pod(job.requested)
	}
	spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "load", Status: jobset.DependencyComplete}}
	plan, err := stageplan.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	owner := metav1.OwnerReference{Kind: "JobSet", Name: name, UID: types.UID("js-" + name), Controller: new(true)}
	s.engine.Apply(admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: name}}, UID: owner.UID, Submitted: start(), Plan: plan,
	})
	for i := range plan.Stages {
		w := newWorkload(queue, name+"-"+plan.Stages[i].Name, "0")
		w.OwnerReferences, w.Labels = []metav1.OwnerReference{owner}, map[string]string{apis.StageIndexLabel: strconv.Itoa(i)}
		w.Spec.PodSets[0].Name, w.Spec.PodSets[0].Template = kueue.PodSetReference(plan.Stages[i].PodSets[0].Name), *plan.Stages[i].PodSets[0].Template
		if train = w; i == 1 {
			w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
		}
		s.engine.Apply(admission.WorkloadObserved{Workload: w.DeepCopy()})
	}
	return train
}

func TestLimitsThatAreNotSetAreInfinite(t *testing.T) {
	s := newStand(t)
	s.queue("q", "4", unchanged)
	s.want(t, `
		# TYPE kueue_cluster_queue_nominal_quota gauge
		kueue_cluster_queue_nominal_quota{cluster_queue="q",cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} 4
		# TYPE kueue_cluster_queue_borrowing_limit gauge
		kueue_cluster_queue_borrowing_limit{cluster_queue="q",cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} 2.5
		# TYPE kueue_cluster_queue_lending_limit gauge
		kueue_cluster_queue_lending_limit{cluster_queue="q",cohort="all",flavor="a100",replica_role="standalone",resource="cpu"} +Inf
	`, "kueue_cluster_queue_nominal_quota", "kueue_cluster_queue_borrowing_limit", "kueue_cluster_queue_lending_limit")
}

func TestStatusHasOneOfItsValues(t *testing.T) {
	for name, tc := range map[string]struct {
		change                              func(*kueue.ClusterQueue)
		wantActive, wantPending, wantGoing  string
		wantLocalActive, wantLocalNotActive string
	}{
		"active":  {unchanged, "1", "0", "0", "1", "0"},
		"stopped": {func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.Hold) }, "0", "1", "0", "0", "1"},
		"deleted": {func(q *kueue.ClusterQueue) { q.DeletionTimestamp = new(metav1.NewTime(start())) }, "0", "0", "1", "0", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			s.queue("q", "4", tc.change)
			s.want(t, `
				# TYPE kueue_cluster_queue_status gauge
				kueue_cluster_queue_status{cluster_queue="q",replica_role="standalone",status="active"} `+tc.wantActive+`
				kueue_cluster_queue_status{cluster_queue="q",replica_role="standalone",status="pending"} `+tc.wantPending+`
				kueue_cluster_queue_status{cluster_queue="q",replica_role="standalone",status="terminating"} `+tc.wantGoing+`
				# TYPE kueue_local_queue_status gauge
				kueue_local_queue_status{active="True",name="q",namespace="ns",replica_role="standalone"} `+tc.wantLocalActive+`
				kueue_local_queue_status{active="False",name="q",namespace="ns",replica_role="standalone"} `+tc.wantLocalNotActive+`
				kueue_local_queue_status{active="Unknown",name="q",namespace="ns",replica_role="standalone"} 0
			`, "kueue_cluster_queue_status", "kueue_local_queue_status")
		})
	}
}

func TestSeriesOfADeletedQueueDisappear(t *testing.T) {
	s := newStand(t)
	s.queue("q", "4", unchanged)
	s.workload("q", "waits", "8")
	s.decide()
	s.engine.Apply(admission.ClusterQueueGone{Name: "q"})
	s.engine.Apply(admission.LocalQueueGone{Key: types.NamespacedName{Namespace: "ns", Name: "q"}})
	s.decide()
	s.want(t, `
		# TYPE tranche_engine_responsive gauge
		tranche_engine_responsive 1
	`)
}

func TestScrapeOfAnEngineThatDoesNotRespond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		s.queue("q", "4", unchanged)
		s.hangs = true
		s.want(t, `
			# TYPE tranche_engine_responsive gauge
			tranche_engine_responsive 0
		`)
	})
}

func TestFollowerReportsNoGauges(t *testing.T) {
	s := newStand(t)
	s.queue("q", "4", unchanged)
	c := metrics.NewCollector(metrics.Config{Engine: s, Metrics: metrics.New(metrics.Replica{Elected: make(chan struct{}), LeaderElection: true})})
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("a follower reports %d series, want none", n)
	}
}

func TestTakeover(t *testing.T) {
	e, err := admission.New(admission.Config{Leader: admission.LedByKueue})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{engine: e}
	asking := func(q *kueue.ClusterQueue) {
		q.Annotations, q.Spec.StopPolicy = map[string]string{apis.EngineAnnotation: apis.EngineTranche}, new(kueue.Hold)
	}
	s.queue("asks", "4", asking)
	s.queue("kueues", "4", func(q *kueue.ClusterQueue) { q.Spec.CohortName = "other" })
	const series = "# TYPE tranche_takeover gauge\n" + `tranche_takeover{cluster_queue="asks",replica_role="standalone"} `
	s.want(t, series+"0\n", "tranche_takeover")
	e.Apply(admission.QueuesTaken{ClusterQueues: []string{"asks"}})
	s.want(t, series+"1\n", "tranche_takeover")
}

func TestUsageForAdmissionFairSharing(t *testing.T) {
	e, err := admission.New(admission.Config{AdmissionFairSharing: &admission.UsagePolicy{UsageHalfLifeTime: time.Hour, UsageSamplingInterval: 5 * time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	s := newStand(t)
	s.engine = e
	e.Apply(admission.NamespaceObserved{Name: "ns"})
	e.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: "a100", UID: "a100"}}})
	s.queue("q", "4", func(q *kueue.ClusterQueue) {
		q.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	})
	w := newWorkload("q", "runs", "4")
	admittedAt := metav1.NewTime(start().Add(-time.Hour))
	w.Status.Admission = &kueue.Admission{ClusterQueue: "q", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: new(int32(1)), Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "a100"},
		ResourceUsage: corev1.ResourceList{"cpu": resource.MustParse("4")},
	}}}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, LastTransitionTime: admittedAt})
	}
	e.Apply(admission.WorkloadObserved{Workload: w})
	s.decide()
	// After one half-life the usage is half of what is held.
	s.want(t, `
		# TYPE kueue_local_queue_admission_fair_sharing_usage gauge
		kueue_local_queue_admission_fair_sharing_usage{cluster_queue="q",name="q",namespace="ns",replica_role="standalone"} 2
	`, "kueue_local_queue_admission_fair_sharing_usage")
}
