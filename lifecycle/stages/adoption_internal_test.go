package stages

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// TestAdopt takes JobSets that ran when Tranche was installed, with one quota Workload for all of their Jobs, through their states. No Job is
// released or held, whatever the quota Workload says.
func TestAdopt(t *testing.T) {
	for name, tc := range map[string]struct {
		world    world
		workload string // words of build, and "marked"; or empty
		refusal  string
		want     []string
	}{
		"no quota Workload":                        {want: []string{"mark init-0", "create init.train gates=tranche.dev/adoption"}},
		"one of Kueue":                             {workload: "gated", want: []string{"mark init-0", "gate init.train=tranche.dev/adoption"}},
		"not admitted":                             {workload: "marked", want: []string{"mark init-0", "admit init.train in q"}},
		"admitted, still gated":                    {workload: "marked admitted", want: []string{"mark init-0", "gate init.train="}},
		"admitted by Kueue":                        {workload: "admitted", want: []string{"mark init-0", "gate init.train="}},
		"evicted without a message":                {workload: "marked admitted evicted", want: []string{"mark init-0", "stop and requeue"}},
		"deactivated":                              {workload: "marked admitted evicted inactive", want: []string{"mark init-0", "stop"}},
		"admitted":                                 {workload: "marked admitted ungated", want: []string{"mark init-0", "note that it has started"}},
		"admitted, and noted":                      {workload: "marked admitted ungated noted", want: []string{"mark init-0"}},
		"deleted by a user":                        {workload: "marked admitted deleted pinned", want: []string{"mark init-0", "unpin init.train"}},
		"finished too early":                       {workload: "marked admitted finished", want: []string{"mark init-0", "remove init.train"}},
		"suspended, with pods":                     {world: world{suspended: true}, workload: "marked admitted", want: []string{"mark init-0"}},
		"suspended, Jobs that run without a label": {world: world{suspended: true}, want: []string{"mark init-0"}},
		"suspended, without pods": {
			world: world{suspended: true, jobs: map[string]string{"init": "held"}}, workload: "marked admitted", want: []string{"mark init-0", "drop init.train"},
		},
		"suspended, with a Job that is not labelled": {world: world{suspended: true, jobs: map[string]string{"init": "held"}}, want: []string{"mark init-0"}},
		"suspended, with a Job of its time as one that ran": {
			world: world{suspended: true, jobs: map[string]string{"init": "held marked"}}, want: []string{"mark init-0"},
		},
		"suspended, with a held Job":               {world: world{suspended: true, jobs: map[string]string{"init": "held labelled"}}, want: []string{"mark templates"}},
		"suspended, without a Job":                 {world: world{suspended: true, jobs: map[string]string{}}, want: []string{"mark templates"}},
		"suspended, with a held Job that has pods": {world: world{suspended: true, jobs: map[string]string{"init": "running labelled"}}, want: nil},
		"suspended, cannot be queued": {
			world: world{suspended: true, jobs: map[string]string{"init": "held labelled"}}, refusal: "is wrong", want: []string{"complain is wrong"},
		},
		"suspended, finished": {
			world: world{suspended: true, over: jobset.JobSetCompleted, jobs: map[string]string{"init": "complete"}}, workload: "marked admitted",
			want: []string{"finish init.train=Succeeded"},
		},
		"misused while it runs, between two attempts": {
			world: world{jobs: map[string]string{"init": "held"}}, workload: "marked admitted", refusal: "is wrong", want: []string{"complain is wrong"},
		},
		"a Job that its controller resumes later": {
			world: world{jobs: map[string]string{"init": "held"}}, workload: "marked", want: []string{"admit init.train in q"},
		},
		"finished":             {world: world{over: jobset.JobSetCompleted, jobs: map[string]string{"init": "complete"}}, workload: "marked admitted", want: []string{"finish init.train=Succeeded"}},
		"a Job that is marked": {world: world{jobs: map[string]string{"init": "running marked"}}, workload: "marked", want: []string{"admit init.train in q"}},
		"a Job that replaces pods that still terminate": {
			world: world{jobs: map[string]string{"init": "running marked early"}}, workload: "marked", want: []string{"mark init-0", "admit init.train in q"},
		},
		"a Job that is deleted":    {world: world{jobs: map[string]string{"init": "running deleted"}}, workload: "marked", want: []string{"admit init.train in q"}},
		"a Job that has completed": {world: world{jobs: map[string]string{"init": "complete"}}, workload: "marked", want: []string{"admit init.train in q"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			w.started = true
			if w.jobs == nil {
				w.jobs = map[string]string{"init": "running"}
			}
			if diff := cmp.Diff(tc.want, renderAdoption(Next(adoptable(t, w, tc.workload, tc.refusal)))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRanBefore: a stage whose Job was started while Tranche was not installed is charged as it is. The stages that have not started stay held, and a Job
// that runs without quota for another reason is not charged.
func TestRanBefore(t *testing.T) {
	both := map[string]string{"init": "admitted", "train": "closed"}
	for name, tc := range map[string]struct {
		world   world
		started []string
		mark    bool
		want    []string
	}{
		"its quota Workload is marked first": {
			world: world{workloads: both, jobs: map[string]string{"init": "running", "train": "running"}}, started: []string{"train-0"},
			want: []string{"mark train gates=tranche.dev/stage,tranche.dev/adoption"},
		},
		"and then admitted": {
			world: world{workloads: both, jobs: map[string]string{"init": "running", "train": "running"}}, started: []string{"train-0"}, mark: true,
			want: []string{"admit train in q"},
		},
		"a stage that is held stays held": {
			world: world{workloads: both, jobs: map[string]string{"init": "running", "train": "held"}}, mark: true,
			want: []string{"unmark train gates=tranche.dev/stage"},
		},
		"a stage that holds its quota": {world: world{workloads: both, jobs: map[string]string{"init": "running", "train": "held"}}, started: []string{"init-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.world.started = true
			s := tc.world.build(t)
			s.StartedBefore = map[string]bool{}
			for _, job := range tc.started {
				s.StartedBefore[job] = true
				s.StartedTarget = &adoption.Target{Queue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}}
			}
			if tc.mark {
				s.Owned.Workloads[1] = adoption.Marked(s.Owned.Workloads[1])
			}
			w := Next(s)
			var got []string
			for _, change := range w.Of(quotastep.Change) {
				verb := "unmark "
				if change.After.Annotations[apis.AdoptedAnnotation] != "" {
					verb = "mark "
				}
				got = append(got, verb+change.After.Name+" gates="+strings.Join(quotaworkload.Gates(change.After), ","))
			}
			for _, x := range w.Of(quotastep.Admit) {
				got = append(got, "admit "+x.Workload.Name+" in "+string(x.Admission.ClusterQueue))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// adoptable returns what the manager reads of a JobSet that ran when Tranche was installed.
func adoptable(t *testing.T, w world, words, refusal string) *jobsetstate.Snapshot {
	t.Helper()
	s := w.build(t)
	if !strings.Contains(words, "noted") {
		delete(s.JobSet.Annotations, apis.StartedAnnotation)
	}
	for _, job := range s.Owned.Jobs {
		delete(job.Labels, apis.HoldLabel)
		if !strings.Contains(w.jobs["init"], "early") {
			job.Spec.PodReplacementPolicy = new(batchv1.Failed)
		}
		for word, label := range map[string]string{"marked": apis.HoldAdopted, "labelled": apis.HoldValue} {
			if strings.Contains(w.jobs["init"], word) {
				metav1.SetMetaDataLabel(&job.ObjectMeta, apis.HoldLabel, label)
			}
		}
	}
	whole, err := stageplan.Whole(s.Plan)
	if err != nil {
		t.Fatal(err)
	}
	s.Plan = whole
	s.Target = &adoption.Target{Queue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}}}
	if words != "" {
		workload := w.workload(s, 0, strings.Fields(words))
		if strings.Contains(words, "marked") {
			status := workload.Status
			workload.Status = kueue.WorkloadStatus{}
			workload = adoption.Marked(workload)
			workload.Status = status
		}
		if strings.Contains(words, "ungated") {
			quotaworkload.SetGates(workload, nil)
		}
		s.Owned.Workloads = append(s.Owned.Workloads, workload)
	}
	if refusal != "" {
		s.Refusal, s.Plan = refusal, nil
	}
	return s
}

func renderAdoption(w *Step) []string {
	var lines []string
	for _, job := range w.MarkJobs {
		lines = append(lines, "mark "+job.Name)
	}
	for _, x := range w.Of(quotastep.Admit) {
		lines = append(lines, "admit "+x.Workload.Name+" in "+string(x.Admission.ClusterQueue))
	}
	switch {
	case w.Stop != nil && w.Stop.Requeues:
		lines = append(lines, "stop and requeue")
	case w.Stop != nil:
		lines = append(lines, "stop")
	}
	if w.NoteStarted {
		lines = append(lines, "note that it has started")
	}
	if w.MarkTemplates {
		lines = append(lines, "mark templates")
	}
	return append(lines, render(w)...)
}
