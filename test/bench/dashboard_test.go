package bench_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/dashboard"
)

// BenchmarkDashboard measures the answers of a dashboard with 1000 ClusterQueues in 20 Cohorts. bytes/workload is the memory of the Model.
func BenchmarkDashboard(b *testing.B) {
	const queues = 1000
	for _, pending := range []int{1000, 100_000} {
		objects := pendingSnapshot(pending).Workloads
		before := heapBytes()
		m := dashboard.New()
		observeQueues(m, queues)
		for i, w := range objects {
			// All wait in one line: the longest that there can be.
			w.Spec.QueueName = "queue-0"
			w.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
			m.Observe(w)
		}
		perWorkload := float64(heapBytes()-before) / float64(pending)
		run := func(name string, f func(i int)) {
			b.Run(fmt.Sprintf("%s/pending=%d", name, pending), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					f(i)
				}
				b.ReportMetric(perWorkload, "bytes/workload")
				record(b)
			})
		}
		all, last := dashboard.Viewer{}, dashboard.Window{Offset: pending - dashboard.DefaultLimit}
		run("observe", func(i int) { m.Observe(objects[i%pending]) })
		run("line", func(int) { m.Workloads(all, "cq-0", dashboard.WorkloadFilter{}, last) })
		run("filter", func(int) { m.Workloads(all, "cq-0", dashboard.WorkloadFilter{Text: "fine-tune-0000"}, last) })
		run("queue", func(int) { m.Queue(all, "cq-0", time.Unix(0, 0)) })
		// The tree is computed again after each change.
		run("tree", func(i int) {
			m.Observe(objects[i%pending])
			m.Queues(all, dashboard.QueueFilter{}, dashboard.Window{})
		})
	}
}

// observeQueues makes ClusterQueues with two flavors, each with a LocalQueue in all namespaces of pendingSnapshot.
func observeQueues(m *dashboard.Model, count int) {
	for i := range count {
		name := fmt.Sprintf("cq-%d", i)
		var flavors []kueue.FlavorQuotas
		for _, flavor := range []kueue.ResourceFlavorReference{"a100", "h100"} {
			flavors = append(flavors, kueue.FlavorQuotas{Name: flavor, Resources: []kueue.ResourceQuota{
				{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("128")}, {Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("64")},
			}})
		}
		m.Observe(&kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(fmt.Sprintf("cohort-%d", i%20)), ResourceGroups: []kueue.ResourceGroup{{Flavors: flavors}},
		}})
		if i == 0 {
			for team := range 100 {
				m.Observe(&kueue.LocalQueue{
					ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", team), Name: "queue-0"},
					Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
				})
			}
		}
	}
}
