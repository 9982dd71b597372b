package lab_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/test/bench/e2e/lab"
)

// Each JobSet has stages, and can be admitted as a whole: otherwise one of the two runs would never end.
func TestEveryJobSetCanRunBothWays(t *testing.T) {
	most := map[string]int64{}
	for _, pool := range lab.NodePools() {
		most[pool.Name] = pool.Allocatable.Name(lab.GPU, "").Value() * int64(pool.Count) / 2
	}
	if most["a100"]+most["h100"] != lab.Quota() {
		t.Errorf("there are %v accelerators for a quota of %d", most, lab.Quota())
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, s := range lab.Draw(rapid.Uint64().Draw(t, "seed"), 12) {
			plan, err := stageplan.New(&s.JobSet.Spec)
			if err != nil || len(plan.Stages) != len(s.JobSet.Spec.ReplicatedJobs) || len(plan.Stages) < 2 {
				t.Fatalf("JobSet %s has the plan %v, %v", s.JobSet.Name, plan, err)
			}
			var sum int64
			limit := most["a100"]
			for _, podSet := range lab.Whole(s.JobSet).Spec.PodSets {
				gpus := podSet.Template.Spec.Containers[0].Resources.Requests.Name(lab.GPU, "").Value()
				sum += gpus * int64(podSet.Count)
				if podSet.Template.Spec.NodeSelector["accelerator"] == "h100" {
					limit = most["h100"]
				}
			}
			if sum == 0 || sum > limit {
				t.Errorf("JobSet %s needs %d accelerators as a whole, there are %d", s.JobSet.Name, sum, limit)
			}
		}
	})
}

func TestReclaimable(t *testing.T) {
	js := lab.Draw(1, 2)[1].JobSet
	status := func(name string, succeeded int32) jobset.ReplicatedJobStatus {
		return jobset.ReplicatedJobStatus{Name: name, Succeeded: succeeded}
	}
	pods := *js.Spec.ReplicatedJobs[1].Template.Spec.Parallelism
	tests := map[string]struct {
		status []jobset.ReplicatedJobStatus
		want   []kueue.ReclaimablePod
	}{
		"nothing known": {},
		"running":       {status: []jobset.ReplicatedJobStatus{status("fetch", 0), status("train", 0)}},
		"one over":      {status: []jobset.ReplicatedJobStatus{status("fetch", 1), status("train", 0)}, want: []kueue.ReclaimablePod{{Name: "fetch", Count: 1}}},
		"two over, any order": {
			status: []jobset.ReplicatedJobStatus{status("train", 1), status("fetch", 1)},
			want:   []kueue.ReclaimablePod{{Name: "fetch", Count: 1}, {Name: "train", Count: pods}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			js := js.DeepCopy()
			js.Status.ReplicatedJobsStatus = test.status
			if diff := cmp.Diff(test.want, lab.Reclaimable(js)); diff != "" {
				t.Errorf("Reclaimable(): -want +got\n%s", diff)
			}
		})
	}
}

// The pods of each ReplicatedJob go where its own pod set was admitted.
func TestResume(t *testing.T) {
	js := lab.Draw(1, 2)[1].JobSet
	js.Spec.Suspend = new(true)
	flavors := func(names ...string) map[corev1.ResourceName]kueue.ResourceFlavorReference {
		assigned := map[corev1.ResourceName]kueue.ResourceFlavorReference{corev1.ResourceCPU: "cpu"}
		for _, name := range names {
			assigned[lab.GPU] = kueue.ResourceFlavorReference(name)
		}
		return assigned
	}
	lab.Resume(js, &kueue.Admission{PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "train", Flavors: flavors("h100")}, {Name: "fetch", Flavors: flavors()}, {Name: "evaluate", Flavors: flavors("a100")},
	}})
	if *js.Spec.Suspend {
		t.Error("is still suspended")
	}
	for name, want := range map[string]string{"fetch": "", "train": "h100", "evaluate": "a100"} {
		for i := range js.Spec.ReplicatedJobs {
			pod := &js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
			if js.Spec.ReplicatedJobs[i].Name != name {
				continue
			}
			if got := pod.NodeSelector["accelerator"]; got != want || len(pod.Tolerations) != min(len(want), 1) {
				t.Errorf("pods of %s go to %q and tolerate %v, want %q", name, got, pod.Tolerations, want)
			}
		}
	}
}
