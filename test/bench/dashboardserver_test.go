package bench_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// BenchmarkDashboardServer measures the answers of a dashboard's server as its page reads them: with 1000 ClusterQueues in 20 Cohorts, and equally many of
// the pending quota Workloads, each with a JobSet, in each of them. An answer of more than 64 KiB fails.
func BenchmarkDashboardServer(b *testing.B) {
	const queues = 1000
	for _, pending := range []int{1000, 100_000} {
		objects := pendingSnapshot(pending).Workloads
		store := server.NewStore()
		store.Use(func(m *dashboard.Model) { observePending(m, queues, objects) })
		first := &dashboard.JobSetObjects{JobSet: jobSetOf(objects[0]), Workloads: objects[:1]}
		handler := server.New(&server.Config{
			Store: store, Page: fstest.MapFS{}, About: func() server.About { return server.About{} },
			JobSet: func(context.Context, types.NamespacedName) (*dashboard.JobSetObjects, error) { return first, nil },
		})
		for _, view := range []struct {
			name  string
			paths []string
		}{
			{"overview", []string{"overview"}},
			{"tree", []string{"queues"}},
			{"localqueue", []string{"localqueues", "localqueues/team-0/queue-0", "localqueues/team-0/queue-0/workloads"}},
			{"queue", []string{"queues/cq-0", "queues/cq-0/workloads"}},
			{"jobset", []string{"jobsets/team-0/fine-tune-000000"}},
			{"namespaces", []string{"namespaces?text=team"}},
			{"search", []string{"search?text=tune-0"}},
		} {
			b.Run(fmt.Sprintf("%s/pending=%d", view.name, pending), func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					store.Use(func(m *dashboard.Model) { m.Observe(objects[i%pending]) }) // what follows from all objects is computed again
					for _, path := range view.paths {
						answer := httptest.NewRecorder()
						handler.ServeHTTP(answer, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/"+path, http.NoBody))
						if size := answer.Body.Len(); answer.Code != http.StatusOK || size > 64<<10 {
							b.Fatalf("%s: status %d, %d bytes", path, answer.Code, size)
						}
					}
				}
				record(b)
			})
		}
	}
}

// BenchmarkDashboardLock measures for how long at a time a list of JobSets that is filtered or sorted, and a search, keep others from the Model.
func BenchmarkDashboardLock(b *testing.B) {
	const queues = 1000
	for _, pending := range []int{10_000, 100_000} {
		m := dashboard.New()
		observePending(m, queues, pendingSnapshot(pending).Workloads)
		list := func(f dashboard.JobSetFilter) func(use func(func(m *dashboard.Model))) {
			return func(use func(func(m *dashboard.Model))) {
				dashboard.ScanJobSets(use, dashboard.Viewer{}, f, dashboard.Window{})
			}
		}
		for _, answer := range []struct {
			name    string
			compute func(use func(func(m *dashboard.Model)))
		}{
			{"filter", list(dashboard.JobSetFilter{ClusterQueue: "cq-0"})},
			{"sort", list(dashboard.JobSetFilter{Sort: "asks"})},
			{"search", func(use func(func(m *dashboard.Model))) { dashboard.Search(use, dashboard.Viewer{}, "tune-0") }},
		} {
			b.Run(fmt.Sprintf("%s/pending=%d", answer.name, pending), func(b *testing.B) {
				// The mean of an answer counts: the longest time is that in which something else ran.
				shortest := time.Duration(0)
				for b.Loop() {
					locked, times := time.Duration(0), time.Duration(0)
					answer.compute(func(f func(m *dashboard.Model)) {
						started := time.Now()
						f(m)
						locked, times = locked+time.Since(started), times+1
					})
					if mean := locked / times; shortest == 0 || mean < shortest {
						shortest = mean
					}
				}
				b.ReportMetric(float64(shortest.Nanoseconds()), "ns/lock")
				note(b, shortest)
			})
		}
	}
}

// observePending lets a Model observe pending quota Workloads with their JobSets and queues.
func observePending(m *dashboard.Model, queues int, workloads []*kueue.Workload) {
	observeQueues(m, queues)
	for i := range queues {
		m.Observe(&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%d", i%100), Name: fmt.Sprintf("queue-%d", i)},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(fmt.Sprintf("cq-%d", i))},
		})
	}
	for i, w := range workloads {
		w.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
		m.Observe(jobSetOf(w))
		m.Observe(w)
	}
}

// jobSetOf returns the JobSet of a quota Workload of pendingSnapshot.
func jobSetOf(w *kueue.Workload) *jobsetapi.JobSet {
	owner := metav1.GetControllerOf(w)
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Namespace, Name: owner.Name, UID: owner.UID, CreationTimestamp: w.CreationTimestamp, Labels: map[string]string{apis.QueueLabel: string(w.Spec.QueueName)},
	}}
	js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{ReplicatedJob: jobset.ReplicatedJob{Name: "train", Replicas: 1}}}
	return js
}
