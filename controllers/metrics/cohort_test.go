package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/metrics"
)

// A tree has one ClusterQueue below some Cohorts.
type tree []string

func (*tree) ClusterQueueExists(string) bool                   { return true }
func (*tree) LocalQueueExists(types.NamespacedName) bool       { return true }
func (t *tree) CohortsOf(string) []string                      { return *t }
func (t *tree) CohortIsNamed(name string) bool                 { return len(*t) > 0 && (*t)[0] == name }
func (*tree) NotReadySince(workload *kueue.Workload) time.Time { return time.Time{} }

// An admission counts in every Cohort above, and a Cohort that nothing names has no series.
func TestCohortsCountAdmissions(t *testing.T) {
	above := &tree{"below-metrics", "root-metrics"}
	m := metrics.New(metrics.Replica{Elected: elected()})
	r := metrics.NewRecorder(above, m, time.Now)
	before := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{UID: "w", ResourceVersion: "1"}}
	after := before.DeepCopy()
	after.ResourceVersion = "2"
	after.Status.Admission = &kueue.Admission{ClusterQueue: "cohort-metrics"}
	after.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	r.Changed(before, after)
	wantCohorts(t, m, "below-metrics", "root-metrics")
	*above = tree{"below-metrics"}
	r.CohortsMoved()
	wantCohorts(t, m, "below-metrics")
	r.CohortGone("below-metrics")
	wantCohorts(t, m)
}

func wantCohorts(t *testing.T, m *metrics.Metrics, want ...string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, v := range m.Collectors() {
		registry.MustRegister(v)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		if family.GetName() == "kueue_cohort_subtree_admitted_workloads_total" {
			for _, one := range family.Metric {
				got = append(got, one.Label[0].GetValue())
				if one.Counter.GetValue() != 1 {
					t.Errorf("%s counts %v, want 1", one.Label[0].GetValue(), one.Counter.GetValue())
				}
			}
		}
	}
	if len(got) != len(want) {
		t.Fatalf("Cohorts with series: %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("Cohorts with series: %v, want %v", got, want)
		}
	}
}
