// Package lifecycle_test reads what the manager of each release writes.
package lifecycle_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// written has the objects of one file of the corpus.
type written struct {
	jobSets   []*jobsetapi.JobSet
	jobs      []*batchv1.Job
	pods      []*corev1.Pod
	workloads []*kueue.Workload
	charged   map[types.UID]bool
}

// TestWrittenByEachRelease reads objects at rest, as the release before and this one write them. This release finds nothing to do: an upgrade and a rollback
// change no object. The suite test/e2e/upgrade records them.
func TestWrittenByEachRelease(t *testing.T) {
	for _, release := range []string{"previous", "current"} {
		files, err := filepath.Glob(filepath.Join("testdata", release, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("the corpus of the %s release has no files: %v", release, err)
		}
		for _, file := range files {
			t.Run(release+"/"+strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
				w := read(t, file)
				for _, js := range w.jobSets {
					w.expectJobSetAtRest(t, js)
				}
				for _, job := range w.jobs {
					if queuedjob.IsQueued(job) {
						w.expectJobAtRest(t, job)
					}
					if left := childjob.Restored(job).Spec.Template.Spec.NodeSelector; len(left) > 0 {
						t.Errorf("Job %s: an eviction would leave node labels of its flavor: %v", job.Name, left)
					}
				}
				w.expectGangAtRest(t)
			})
		}
	}
}

// read reads a file, and fails if it has a field that this release does not know.
func read(t *testing.T, file string) *written {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := &written{charged: map[types.UID]bool{}}
	for document := range strings.SplitSeq(string(data), "---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "JobSet":
			w.jobSets = append(w.jobSets, decode[jobsetapi.JobSet](t, document))
		case "Job":
			w.jobs = append(w.jobs, decode[batchv1.Job](t, document))
		case "Pod":
			w.pods = append(w.pods, decode[corev1.Pod](t, document))
		case "Workload":
			workload := decode[kueue.Workload](t, document)
			w.workloads = append(w.workloads, workload)
			w.charged[workload.UID] = quotaworkload.IsTrue(workload, kueue.WorkloadAdmitted)
		case "ClusterQueue":
			decode[kueue.ClusterQueue](t, document)
		case "LocalQueue":
			decode[kueue.LocalQueue](t, document)
		}
	}
	return w
}

func decode[T any](t *testing.T, document string) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
		t.Fatal(err)
	}
	return into
}

func flavors() map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor {
	return map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{
		"cpu":  {},
		"a100": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"accelerator": "a100"}}},
	}
}

// now is when the objects are read. All of them were written at the time that the corpus has instead of every time.
func now() time.Time { return time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC) }

func (w *written) expectJobSetAtRest(t *testing.T, js *jobsetapi.JobSet) {
	t.Helper()
	restored, lost := stageplan.Restored(js)
	plan, err := stageplan.New(&restored.Spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &jobsetstate.Snapshot{
		Key: types.NamespacedName{Namespace: js.Namespace, Name: js.Name}, JobSet: restored, Lost: lost, Plan: plan, Now: now(), Flavors: flavors(),
		Charged: w.charged, Owned: jobsetstate.Objects{Workloads: w.workloads, Jobs: w.jobs, Pods: slices.DeleteFunc(slices.Clone(w.pods), hasEnded)},
	}
	step := stages.Next(s)
	w.expectNoWrites(t, &step.Step)
	if step.Start {
		t.Errorf("JobSet %s: start", js.Name)
	}
	for name, n := range map[string]int{
		"release Jobs": len(step.ReleaseJobs), "resize Jobs": len(step.ResizeJobs), "hold Jobs": len(step.HoldJobs), "end pods": len(step.EndPods),
		"skip Jobs": len(step.SkipJobs), "conclude Jobs": len(step.ConcludeJobs), "recreate Jobs": len(step.RecreateJobs), "restore Jobs": len(step.RestoreJobs),
		"unpaid": len(step.Unpaid), "complaints": len(step.Complaints), "mark Jobs": len(step.MarkJobs),
	} {
		if n > 0 {
			t.Errorf("JobSet %s: %s: %d", js.Name, name, n)
		}
	}
}

func (w *written) expectJobAtRest(t *testing.T, job *batchv1.Job) {
	t.Helper()
	step := queuedjob.Next(&queuedjob.Snapshot{
		Key: types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, Job: job, Template: &childjob.Restored(job).Spec.Template, Now: now(), Flavors: flavors(),
		Charged: w.charged, Owned: queuedjob.Objects{Workloads: w.workloads, Pods: slices.DeleteFunc(slices.Clone(w.pods), hasEnded)},
	})
	w.expectNoWrites(t, &step.Step)
	if step.Job != nil || len(step.EndPods) > 0 || step.Refusal+step.Complaint != "" {
		t.Errorf("Job %s: %+v", job.Name, step)
	}
}

func (w *written) expectGangAtRest(t *testing.T) {
	t.Helper()
	var members []*corev1.Pod
	var ref podgroup.Ref
	for _, pod := range w.pods {
		if podgroup.IsMember(pod) {
			ref, _ = podgroup.RefOf(pod)
			members = append(members, pod)
		}
	}
	if len(members) == 0 {
		return
	}
	gang, problems := podgroup.New(ref, nil, members, podgroup.Settings{Wait: time.Hour})
	step := podgang.Next(&podgang.Snapshot{
		Gang: gang, Problems: problems, Workloads: w.workloads, Jobs: w.jobs, Flavors: flavors(), Charged: w.charged,
		Backoff: func(int32) time.Duration { return time.Minute },
	}, now())
	w.expectNoWrites(t, &step.Step)
	if len(problems) > 0 || len(step.Delete)+len(step.Ungate)+len(step.TimeOut) > 0 {
		t.Errorf("gang %s: %v %+v", ref.Full(), problems, step)
	}
}

func (w *written) expectNoWrites(t *testing.T, step *quotastep.Step) {
	t.Helper()
	for i := range step.Writes {
		write := &step.Writes[i]
		t.Errorf("%s quota Workload %s", write.Kind, write.Workload.Name)
	}
	if step.AwaitsEngine {
		t.Error("the engine does not know an admission")
	}
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
