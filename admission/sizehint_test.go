package admission_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func onFlavor(name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{"flavor": name} }
}

// TestLargestSize: a refusal of a stage that can never fit names the number of pods that would, with the flavor that has the largest capacity for
// it.
func TestLargestSize(t *testing.T) {
	for name, tc := range map[string]struct {
		quotas string
		change []func(*kueue.ClusterQueue)
		jobs   []job
		want   string
	}{
		"one pod set": {
			quotas: "a100: gpu=8", jobs: []job{{name: "main", requests: "gpu=3", replicas: 5}},
			want: "can never fit (would fit with at most 2 of 5 pods of main): pod set main in ClusterQueue q: needs 15",
		},
		"the best flavor": {
			quotas: "a100: gpu=8; h100: gpu=12; tiny: gpu=2", jobs: []job{{name: "main", requests: "gpu=1", replicas: 16}},
			want: "(would fit with at most 12 of 16 pods of main)",
		},
		"only a flavor that takes it": {
			quotas: "a100: gpu=8; h100: gpu=12", jobs: []job{{name: "main", requests: "gpu=1", replicas: 16, change: onFlavor("a100")}},
			want: "(would fit with at most 8 of 16 pods of main)",
		},
		"several resources": {
			quotas: "a100: gpu=8 cpu=20", jobs: []job{{name: "main", requests: "gpu=1 cpu=3", replicas: 9}},
			want: "(would fit with at most 6 of 9 pods of main)",
		},
		"borrowed, up to the limit": {
			quotas: "a100: gpu=4", change: []func(*kueue.ClusterQueue){inCohort("c"), withLimits(2, -1)},
			jobs: []job{{name: "main", requests: "gpu=1", replicas: 9}},
			want: "(would fit with at most 6 of 9 pods of main)",
		},
		"borrowed, all that the Cohort has": {
			quotas: "a100: gpu=4", change: []func(*kueue.ClusterQueue){inCohort("c")},
			jobs: []job{{name: "main", requests: "gpu=1", replicas: 20}},
			want: "(would fit with at most 14 of 20 pods of main)",
		},
		"beside the others as they are": {
			quotas: "a100: gpu=8", jobs: []job{{name: "driver", requests: "gpu=2"}, {name: "worker", requests: "gpu=1", replicas: 8}},
			want: "can never fit (would fit with at most 6 of 8 pods of worker): all pod sets together need",
		},
		"either is enough": {
			quotas: "a100: gpu=8", jobs: []job{{name: "left", requests: "gpu=1", replicas: 5}, {name: "right", requests: "gpu=1", replicas: 6}},
			want: "(would fit with at most 2 of 5 pods of left, or at most 3 of 6 pods of right)",
		},
		"both have to": {
			quotas: "a100: gpu=8", jobs: []job{
				{name: "left", requests: "gpu=1", replicas: 10}, {name: "right", requests: "gpu=1", replicas: 10}, {name: "free", requests: "gpu=0", replicas: 7},
			},
			want: "can never fit: pod set left in ClusterQueue q",
		},
		"not even one": {
			quotas: "a100: gpu=8", jobs: []job{{name: "main", requests: "gpu=9", replicas: 2}},
			want: "can never fit (one pod of main alone is too large)",
		},
		"not even one of each": {
			quotas: "a100: gpu=8", jobs: []job{{name: "left", requests: "gpu=5", replicas: 2}, {name: "right", requests: "gpu=5", replicas: 2}},
			want: "can never fit: pod set left in ClusterQueue q",
		},
		"stages that hold quota at once": {
			quotas: "a100: gpu=8", jobs: []job{
				{name: "ps", requests: "gpu=1", replicas: 4}, {name: "train", requests: "gpu=1", replicas: 6, after: []string{"ps Ready"}},
			},
			want: "in ClusterQueue q (would fit with at most 2 of 4 pods of ps, or at most 4 of 6 pods of train): stages that hold",
		},
		"a later stage": {
			quotas: "a100: gpu=8", jobs: []job{
				{name: "data", requests: "gpu=1", replicas: 4}, {name: "train", requests: "gpu=1", replicas: 9, after: []string{"data Complete"}},
			},
			want: "stage train could never be admitted (would fit with at most 8 of 9 pods of train): can never fit: pod set train",
		},
		"the first stage beside one to come": {
			quotas: "a100: gpu=8", jobs: []job{
				{name: "ps", requests: "gpu=1", replicas: 9}, {name: "train", requests: "gpu=1", replicas: 6, after: []string{"ps Ready"}},
			},
			want: "can never fit (would fit with at most 2 of 9 pods of ps): pod set ps",
		},
		"too many pod sets": {
			quotas: "a100: gpu=85", jobs: []job{
				{name: "a", requests: "gpu=1", replicas: 10},
				{name: "b", requests: "gpu=1", replicas: 10},
				{name: "c", requests: "gpu=1", replicas: 10},
				{name: "d", requests: "gpu=1", replicas: 10},
				{name: "e", requests: "gpu=1", replicas: 10},
				{name: "f", requests: "gpu=1", replicas: 10},
				{name: "g", requests: "gpu=1", replicas: 10},
				{name: "h", requests: "gpu=1", replicas: 10},
				{name: "i", requests: "gpu=1", replicas: 10},
			},
			want: "can never fit: all pod sets together need",
		},
		"what no number of pods would fix": {
			quotas: "a100: gpu=8", jobs: []job{
				{name: "big", requests: "gpu=1", replicas: 9}, {name: "odd", requests: "tpu=1", after: []string{"big Complete"}},
			},
			want: "can never fit: pod set big",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("lends", "a100: gpu=10", inCohort("c"))
			w.queue("q", tc.quotas, tc.change...)
			w.submit("q", "js", tc.jobs...)
			w.wantAdmitted()
			refusal := w.refusals[keyOf(w.jobSets["js"].workload(0))]
			if refusal.Reason != kueue.WorkloadQuotaReservedReasonExceedsMaxQuota || !strings.Contains(refusal.Message, tc.want) {
				t.Errorf("refused with %s: %q, want %q", refusal.Reason, refusal.Message, tc.want)
			}
		})
	}
}

// TestLargestSizeFollowsTheQuota: the hint changes with the quota, and so does the refusal, without a new submission.
func TestLargestSizeFollowsTheQuota(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.submit("q", "js", job{name: "data", requests: "gpu=1"}, job{name: "train", requests: "gpu=1", replicas: 6, after: []string{"data Ready"}})
	for _, gpus := range []int{4, 6, 2} {
		w.queue("q", fmt.Sprintf("a100: gpu=%d", gpus))
		w.wantAdmitted()
		refusal, want := w.refusals[keyOf("js-data")], fmt.Sprintf("at most %d of 6 pods of train", gpus-1)
		if !strings.Contains(refusal.Message, want) {
			t.Errorf("with %d GPUs: %q, want %s", gpus, refusal.Message, want)
		}
	}
	if got, want := w.used("q"), "a100/nvidia.com/gpu=0"; got != want {
		t.Errorf("used %s, want %s", got, want)
	}
	w.lone("q", "small", "gpu=1")
	w.wantAdmitted("small")
	w.queue("q", "a100: gpu=7")
	w.remove("small")
	w.wantAdmitted("js-data")
}

// TestAdviceIsRight follows the hint of the refusal: then the JobSet is admitted, and with one more pod of the named pod set it is not. Without a
// hint it is not admitted with one pod of any one pod set.
func TestAdviceIsRight(t *testing.T) {
	advised := regexp.MustCompile(`at most (\d+) of \d+ pods of (\w+)`)
	rapid.Check(t, func(t *rapid.T) {
		jobs, quotas := drawReplicatedJobs(t), drawQuotas(t)
		told, refused := refusalOf(t, quotas, jobs)
		if !refused {
			return
		}
		with := func(i int, replicas int32) bool {
			changed := slices.Clone(jobs)
			changed[i].replicas = replicas
			_, refused := refusalOf(t, quotas, changed)
			return !refused
		}
		named := advised.FindAllStringSubmatch(told, -1)
		for _, match := range named {
			i, replicas := indexOf(jobs, match[2]), number(match[1])
			if !with(i, replicas) || with(i, replicas+1) {
				t.Fatalf("was told %q, but %d pods of %s fit: %t, and one more: %t", told, replicas, match[2], with(i, replicas), with(i, replicas+1))
			}
		}
		for i := range jobs {
			if len(named) == 0 && with(i, 1) {
				t.Fatalf("fits with one pod of %s, but was told %q", jobs[i].name, told)
			}
		}
	})
}

func indexOf(jobs []job, name string) int {
	return slices.IndexFunc(jobs, func(j job) bool { return j.name == name })
}

func number(s string) int32 {
	n, _ := strconv.Atoi(s)
	return int32(n)
}

func drawQuotas(t *rapid.T) string {
	var flavors []string
	for _, name := range []string{"a", "b"}[:rapid.IntRange(1, 2).Draw(t, "flavors")] {
		flavors = append(flavors, fmt.Sprintf("%s: gpu=%d cpu=%d", name, rapid.IntRange(0, 12).Draw(t, "gpu"), rapid.IntRange(0, 12).Draw(t, "cpu")))
	}
	return strings.Join(flavors, "; ")
}

// drawReplicatedJobs draws stages of one or several ReplicatedJobs, one after the other.
func drawReplicatedJobs(t *rapid.T) []job {
	var jobs []job
	for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
		j := job{
			name: "j" + strconv.Itoa(i), replicas: rapid.Int32Range(1, 9).Draw(t, "replicas"),
			requests: fmt.Sprintf("gpu=%d cpu=%d", rapid.IntRange(0, 3).Draw(t, "gpu"), rapid.IntRange(0, 3).Draw(t, "cpu")),
		}
		if after := rapid.SampledFrom([]string{"", "Ready", "Complete"}).Draw(t, "after"); after != "" && i > 0 {
			j.after = []string{fmt.Sprintf("j%d %s", rapid.IntRange(0, i-1).Draw(t, "on"), after)}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// refusalOf submits jobs to an empty queue. refused is false if the JobSet may run to its end.
func refusalOf(t *rapid.T, quotas string, jobs []job) (message string, refused bool) {
	w := newWorld(t, admission.Config{})
	w.queue("q", quotas)
	w.submit("q", "js", jobs...)
	w.decide()
	for i := range w.jobSets["js"].plan.Stages {
		r := w.refusals[keyOf(w.jobSets["js"].workload(i))]
		if r.Reason == kueue.WorkloadQuotaReservedReasonExceedsMaxQuota {
			return r.Message, true
		}
	}
	return "", false
}
