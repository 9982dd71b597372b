package bench_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// BenchmarkForecast predicts the starts of pending JobSets of one stage in 100 ClusterQueues, 10 in each cohort. Either each JobSet has a time limit,
// or none has: then those that fit at once never end, and the prediction explains why the others wait.
func BenchmarkForecast(b *testing.B) {
	for _, hasLimits := range []bool{true, false} {
		for _, pending := range []int{100, 1000, 10_000} {
			b.Run(fmt.Sprintf("limits=%t/pending=%d", hasLimits, pending), func(b *testing.B) {
				s := backlog(b, pending)
				if !hasLimits {
					removeLimits(s)
				}
				b.ResetTimer()
				for range b.N {
					predict(b, s)
				}
				record(b)
			})
		}
	}
}

// BenchmarkForecastOf predicts the last start of these alone.
func BenchmarkForecastOf(b *testing.B) {
	for _, pending := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			s := backlog(b, pending)
			last := s.Workloads[pending-1]
			b.ResetTimer()
			for range b.N {
				p, err := simulator.ForecastOf(s, &simulator.Durations{}, s.TakenAt.Add(10_000*time.Hour), admission.StageKey{Namespace: last.Namespace, Name: last.Name})
				if err != nil {
					b.Fatal(err)
				}
				if len(p.Starts) != 1 || p.Starts[0].Certainty() != simulator.By {
					b.Fatal(p.Starts)
				}
			}
			record(b)
		})
	}
}

// predict makes a prediction, and checks that it has a start or a blocker for each quota Workload.
func predict(b *testing.B, s *snapshot.Snapshot) {
	b.Helper()
	p, err := simulator.Forecast(s, &simulator.Durations{}, s.TakenAt.Add(10_000*time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	for i := range p.Starts {
		start := &p.Starts[i]
		if start.Certainty() != simulator.By && len(start.Blockers) == 0 {
			b.Fatalf("%s: %s", start.Workload, start.Waits)
		}
	}
	if len(p.Starts) != len(s.Workloads) {
		b.Fatalf("%d starts, and %d are left out", len(p.Starts), len(p.LeftOut))
	}
}

// backlog returns a snapshot with pending JobSets in 100 ClusterQueues.
func backlog(b *testing.B, pending int) *snapshot.Snapshot {
	b.Helper()
	return backlogIn(b, 100, pending)
}

// backlogIn returns a snapshot with pending JobSets in some ClusterQueues, 10 in each cohort.
func backlogIn(b *testing.B, queues, pending int) *snapshot.Snapshot {
	b.Helper()
	const cohortSize, nominal = 10, 8
	taken := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	s := &snapshot.Snapshot{TakenAt: taken, Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}}}
	s.ResourceFlavors = []*kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "a100"}}}
	for i := range queues {
		name := fmt.Sprintf("q%d", i)
		s.ClusterQueues = append(s.ClusterQueues, &kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec: kueue.ClusterQueueSpec{
				NamespaceSelector: &metav1.LabelSelector{}, CohortName: kueue.CohortReference(fmt.Sprintf("c%d", i/cohortSize)),
				ResourceGroups: []kueue.ResourceGroup{{
					CoveredResources: []corev1.ResourceName{"gpu"},
					Flavors: []kueue.FlavorQuotas{{Name: "a100", Resources: []kueue.ResourceQuota{{
						Name: "gpu", NominalQuota: *resource.NewQuantity(nominal, resource.DecimalSI),
					}}}},
				}},
			},
		})
		s.LocalQueues = append(s.LocalQueues, &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(name)},
		})
	}
	for i := range pending {
		js, w := waitingJobSet(b, i, fmt.Sprintf("q%d", i%queues), metav1.NewTime(taken.Add(time.Duration(i-pending)*time.Second)))
		s.JobSets, s.Workloads = append(s.JobSets, js), append(s.Workloads, w)
	}
	return s
}

// removeLimits lets all JobSets of a snapshot run as long as they like.
func removeLimits(s *snapshot.Snapshot) {
	for i := range s.JobSets {
		delete(s.JobSets[i].Labels, apis.MaxExecTimeLabel)
		s.Workloads[i].Spec.MaximumExecutionTimeSeconds = nil
	}
}

// waitingJobSet returns a JobSet of one stage, and its quota Workload as the manager creates it.
func waitingJobSet(b *testing.B, number int, queue string, created metav1.Time) (*jobsetapi.JobSet, *kueue.Workload) {
	b.Helper()
	name, seconds, pods := fmt.Sprintf("js-%05d", number), int32(600+number*37%6600), int32(1+number%4)
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: created, Generation: 1,
		Labels: map[string]string{apis.QueueLabel: queue, apis.MaxExecTimeLabel: fmt.Sprint(seconds)},
	}}
	job := jobsetapi.ReplicatedJob{}
	job.Name, job.Replicas = "train", 1
	job.Template.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
	job.Template.Spec = batchv1.JobSpec{Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion), Template: pod(1)}
	js.Spec.ReplicatedJobs, js.Spec.Suspend = []jobsetapi.ReplicatedJob{job}, new(true)
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		b.Fatal(err)
	}
	workload := jobsetstate.WorkloadName(js, plan, 0, 0)
	return js, &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: workload, UID: types.UID(workload), CreationTimestamp: created, Generation: 1, ResourceVersion: fmt.Sprint(number + 1),
			Labels: map[string]string{
				apis.JobUIDLabel: string(js.UID), apis.JobSetLabel: name, apis.StageLabel: "train", apis.StageIndexLabel: "0",
			},
			Annotations: map[string]string{apis.AttemptAnnotation: "0"}, Finalizers: []string{kueue.ResourceInUseFinalizerName},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobset.GroupVersion.WithKind("JobSet"))},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue), Priority: new(int32(0)), Active: new(true), MaximumExecutionTimeSeconds: &seconds,
			PodSets: []kueue.PodSet{{Name: "train", Count: pods, Template: pod(1)}},
		},
	}
}
