package replay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/snapshot"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

var begin = time.Date(2026, 11, 2, 8, 0, 0, 0, time.UTC)

func minute(n int) time.Time { return begin.Add(time.Duration(n) * time.Minute) }

// TestOrderOfStages runs two JobSets that prepare on 1 GPU for 10 minutes and then train on 3 GPUs for 20 minutes, on 4 GPUs. As a whole they run one
// after the other. In stages the second one prepares while the first one trains.
func TestOrderOfStages(t *testing.T) {
	in := input(4, pipeline("a", 0), pipeline("b", 1))
	for policy, want := range map[replay.Policy]map[string][]string{
		replay.Whole:  {"a": {"0s", "30m0s", "100"}, "b": {"30m0s", "1h0m0s", "100"}},
		replay.Staged: {"a": {"0s", "30m0s", "70"}, "b": {"1m0s", "50m0s", "70"}},
	} {
		o, err := replay.Run(in, policy)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, r := range o.Results {
			got[r.JobSet.Name] = []string{clock(r.Started), clock(r.Finished), gpuMinutes(r)}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", policy, diff)
		}
	}
}

// TestLeftOut leaves out what the manager would refuse, and JobSets that are too large to be replayed. The others are not affected.
func TestLeftOut(t *testing.T) {
	cycle, unqueued, large := pipeline("cycle", 0), pipeline("unqueued", 0), pipeline("large", 0)
	cycle.JobSet.Spec.ReplicatedJobs[0].DependsOn = []jobset.DependsOn{{Name: "train", Status: jobset.DependencyComplete}}
	unqueued.JobSet.Labels = nil
	large.JobSet.Spec.ReplicatedJobs[0].Replicas = 2_000_000_000
	o, err := replay.Run(input(4, cycle, unqueued, large, pipeline("sound", 1)), replay.Whole)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cycle": "spec.replicatedJobs", "unqueued": "it names no LocalQueue", "large": "it has 2000000001 Jobs", "sound": ""}
	for _, r := range o.Results {
		if !strings.HasPrefix(r.LeftOut, want[r.JobSet.Name]) || (r.LeftOut == "") == r.Started.IsZero() {
			t.Errorf("%s is left out because of %q, and started %s", r.JobSet.Name, r.LeftOut, clock(r.Started))
		}
	}
}

func clock(at time.Time) string {
	if at.IsZero() {
		return "never"
	}
	return at.Sub(begin).String()
}

func gpuMinutes(r *replay.Result) string {
	sum := 0.0
	for _, h := range r.Holdings {
		sum += h.Held[gpu] * h.To.Sub(h.From).Minutes()
	}
	return resource.NewQuantity(int64(sum), resource.DecimalSI).String()
}

// pipeline is a JobSet that is submitted some minutes after the begin.
func pipeline(name string, at int) *replay.Arrival {
	a := &replay.Arrival{At: minute(at), JobSet: jobSet(name, minute(at), replicatedJob("prepare", 1), replicatedJob("train", 3)), Jobs: map[replay.Job]replay.Course{
		{ReplicatedJob: "prepare"}: {Run: 10 * time.Minute, GetsReady: true, Ends: true},
		{ReplicatedJob: "train"}:   {Run: 20 * time.Minute, GetsReady: true, Ends: true},
	}}
	a.JobSet.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "prepare", Status: jobset.DependencyComplete}}
	return a
}

func replicatedJob(name string, pods int32) jobsetapi.ReplicatedJob {
	return jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: name, Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods,
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{gpu: resource.MustParse("1")}},
		}}}},
	}}}}
}

func jobSet(name string, created time.Time, jobs ...jobsetapi.ReplicatedJob) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{apis.QueueLabel: "lq"},
		},
		Spec: jobsetapi.JobSetSpec{ReplicatedJobs: jobs},
	}
}

// input has one ClusterQueue.
func input(gpus int, arrivals ...*replay.Arrival) *replay.Input {
	s := &snapshot.Snapshot{
		ResourceFlavors: []*kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: "any"}}},
		ClusterQueues: []*kueue.ClusterQueue{{ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{
			NamespaceSelector: &metav1.LabelSelector{},
			ResourceGroups: []kueue.ResourceGroup{{CoveredResources: []corev1.ResourceName{gpu}, Flavors: []kueue.FlavorQuotas{{
				Name: "any", Resources: []kueue.ResourceQuota{{Name: gpu, NominalQuota: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}},
			}}}},
		}}},
		LocalQueues: []*kueue.LocalQueue{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "lq"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "cq"}}},
	}
	return &replay.Input{From: begin, To: begin.Add(2 * time.Hour), Queues: []replay.Version{{At: begin, Objects: s}}, Arrivals: arrivals}
}
