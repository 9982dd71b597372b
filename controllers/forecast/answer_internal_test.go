package forecast

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// TestTake: an answer has what was predicted, as far as the owner of the JobSet may know it.
func TestTake(t *testing.T) {
	at := func(minutes int) time.Time { return morning.Add(time.Duration(minutes) * time.Minute) }
	basis := func(namespace string) simulator.Basis {
		return simulator.Basis{Runs: 40, Of: "stage train of JobSet " + namespace + "/nightly-*", Namespace: namespace}
	}
	blocker := func(namespace, name string) simulator.Blocker {
		return simulator.Blocker{Kind: "JobSet", Namespace: namespace, Name: name}
	}
	const noLimit = "no maximum execution time: "
	for name, c := range map[string]struct {
		start       simulator.Start
		interrupted error
		want        jobsetstatus.ExpectedStart
	}{
		"by":          {start: simulator.Start{By: at(5), Position: 3, ClusterQueue: "gpu"}, want: jobsetstatus.ExpectedStart{Certainty: "By", By: at(5), Position: 3, ClusterQueue: "gpu"}},
		"half second": {start: simulator.Start{By: at(5).Add(time.Second / 2)}, want: jobsetstatus.ExpectedStart{Certainty: "By", By: at(5)}},
		"earlier runs were shorter": {
			start: simulator.Start{By: at(9), About: at(5), Basis: basis("ml")},
			want:  jobsetstatus.ExpectedStart{Certainty: "By", By: at(9), About: at(5), Basis: "from the last 40 runs of stage train of JobSet ml/nightly-*"},
		},
		"earlier runs were as long": {start: simulator.Start{By: at(9), About: at(9), Basis: basis("ml")}, want: jobsetstatus.ExpectedStart{Certainty: "By", By: at(9)}},
		"about": {
			start: simulator.Start{About: at(5), Basis: basis("ml")},
			want:  jobsetstatus.ExpectedStart{Certainty: "About", About: at(5), Basis: "from the last 40 runs of stage train of JobSet ml/nightly-*"},
		},
		"about, from another namespace": {
			start: simulator.Start{About: at(5), Basis: basis("secret")},
			want:  jobsetstatus.ExpectedStart{Certainty: "About", About: at(5), Basis: "from the last 40 runs of a stage of another namespace"},
		},
		"unknown": {
			start: simulator.Start{Blockers: []simulator.Blocker{blocker("ml", "a"), blocker("ml", "b")}},
			want:  jobsetstatus.ExpectedStart{Certainty: "Unknown", Basis: noLimit + "JobSet ml/a, JobSet ml/b"},
		},
		"unknown, with others": {
			start: simulator.Start{Blockers: []simulator.Blocker{blocker("ml", "a"), blocker("secret", "b"), blocker("secret", "c")}},
			want:  jobsetstatus.ExpectedStart{Certainty: "Unknown", Basis: noLimit + "JobSet ml/a, 2 more"},
		},
		"unknown, only with others": {
			start: simulator.Start{Blockers: []simulator.Blocker{blocker("secret", "b")}},
			want:  jobsetstatus.ExpectedStart{Certainty: "Unknown", Basis: noLimit + "1 of other namespaces"},
		},
		"unknown, with many": {
			start: simulator.Start{Blockers: []simulator.Blocker{blocker("ml", "a"), blocker("ml", "b"), blocker("ml", "c"), blocker("ml", "d")}},
			want:  jobsetstatus.ExpectedStart{Certainty: "Unknown", Basis: noLimit + "JobSet ml/a, JobSet ml/b, JobSet ml/c, 1 more"},
		},
		"unknown, stopped":   {start: simulator.Start{Waits: "ClusterQueue gpu is stopped"}, want: jobsetstatus.ExpectedStart{Certainty: "Unknown", Basis: "ClusterQueue gpu is stopped"}},
		"beyond the horizon": {want: jobsetstatus.ExpectedStart{Certainty: "Unknown", Basis: "not within 2d"}},
		"too far behind": {
			start: simulator.Start{IsBeyond: true, Position: 10, ClusterQueue: "gpu"},
			want:  jobsetstatus.ExpectedStart{Certainty: "NotPredicted", Position: 10, ClusterQueue: "gpu", Basis: "only the first 10 of each ClusterQueue are predicted"},
		},
		"interrupted": {
			start: simulator.Start{Position: 4, ClusterQueue: "gpu"}, interrupted: context.DeadlineExceeded,
			want: jobsetstatus.ExpectedStart{Certainty: "NotPredicted", Position: 4, ClusterQueue: "gpu", Basis: "its Cohorts take longer than 10s to simulate"},
		},
		"interrupted after its start": {start: simulator.Start{By: at(5)}, interrupted: context.DeadlineExceeded, want: jobsetstatus.ExpectedStart{Certainty: "By", By: at(5)}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Answer{JobSet: types.NamespacedName{Namespace: "ml", Name: "js"}, Expected: &jobsetstatus.ExpectedStart{Certainty: "NotPredicted"}}
			p := &simulator.Prediction{TakenAt: morning, Until: morning.Add(48 * time.Hour), Interrupted: c.interrupted}
			a.take(&c.start, p, Limits{First: 10, Work: 10 * time.Second})
			if diff := cmp.Diff(&c.want, a.Expected); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// stageOf returns a pending quota Workload of a stage.
func stageOf(jobSet, stage, index string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: jobSet + "-" + stage, Labels: map[string]string{
		apis.JobSetLabel: jobSet, apis.JobUIDLabel: "uid-" + jobSet, apis.StageLabel: stage, apis.StageIndexLabel: index,
	}}}
}

// TestFirstWaiting: the answer is about the first of the stages of a JobSet that are open and wait.
func TestFirstWaiting(t *testing.T) {
	gated, grows, finished := stageOf("a", "load", "0"), stageOf("b", "train", "0"), stageOf("c", "load", "0")
	gated.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	grows.Name, grows.Labels[apis.GrowthLabel] = "b-more", "1"
	finished.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
	other := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "other"}}
	part := &snapshot.Snapshot{TakenAt: morning, Workloads: []*kueue.Workload{
		gated, stageOf("a", "train", "10"), stageOf("a", "eval", "9"), grows, finished, stageOf("c", "train", "1"), other,
	}}
	all, err := Answers(t.Context(), part, &simulator.Durations{}, Limits{Workloads: 6})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all {
		got = append(got, a.JobSet.String()+"/"+a.Expected.Stage+" "+string(a.Expected.Certainty)+": "+a.Expected.Basis)
	}
	const why = " NotPredicted: more than 6 quota Workloads are pending or hold quota in its Cohorts"
	if diff := cmp.Diff([]string{"ml/a/eval" + why, "ml/c/train" + why}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestGated: a stage that waits for another controller has an answer, because its JobSet keeps the condition. It comes without a simulation.
func TestGated(t *testing.T) {
	gatedBy := func(jobSet, gates string, conditions ...string) *kueue.Workload {
		w := stageOf(jobSet, "load", "0")
		w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: gates}
		for _, c := range conditions {
			w.Status.Admission = &kueue.Admission{}
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: c, Status: metav1.ConditionTrue})
		}
		return w
	}
	part := &snapshot.Snapshot{TakenAt: morning, Workloads: []*kueue.Workload{
		gatedBy("a", "example.com/budget"), stageOf("a", "train", "1"), gatedBy("b", "example.com/budget,example.com/data"), gatedBy("c", "example.com/budget,"+apis.StageGate),
		gatedBy("d", "example.com/budget "+apis.SuspendedGate), gatedBy("e", apis.ResizeGate, kueue.WorkloadQuotaReserved, kueue.WorkloadEvicted),
		gatedBy("f", "example.com/budget", kueue.WorkloadQuotaReserved), gatedBy("g", "example.com/budget", kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted),
	}}
	all, err := Answers(t.Context(), part, &simulator.Durations{}, Limits{Workloads: 1})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, a := range all {
		got[a.JobSet.Name+"/"+a.Expected.Stage+" "+string(a.Expected.Certainty)] = a.Expected.Basis
	}
	const cure = "; the controller that set a gate has to remove it from kueue.x-k8s.io/admission-gated-by"
	want := map[string]string{
		"a/load NotPredicted": "gated by example.com/budget" + cure,
		"b/load NotPredicted": "gated by example.com/budget, example.com/data" + cure,
		"e/load NotPredicted": "the stage is about to ask for its current number of pods",
		"f/load NotPredicted": "more than 1 quota Workloads are pending or hold quota in its Cohorts", // its AdmissionChecks are not ready
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWithoutFinished: what has finished is not simulated, unless another stage of its JobSet runs or waits.
func TestWithoutFinished(t *testing.T) {
	finished := func(w *kueue.Workload) *kueue.Workload {
		w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
		return w
	}
	s := &snapshot.Snapshot{}
	for _, name := range []string{"runs", "ends", "ended"} {
		js := jobSetNamed(name)
		if name != "runs" {
			js.Status.TerminalState = "Completed"
		}
		s.JobSets = append(s.JobSets, js)
		s.Workloads = append(s.Workloads, finished(stageOf(name, "load", "0")))
	}
	s.Workloads = append(s.Workloads, stageOf("ends", "train", "1"), finished(stageOf("ended", "train", "1")), finished(&kueue.Workload{}), &kueue.Workload{})
	got := WithoutFinished(s)
	if len(got.JobSets) != 2 || got.JobSets[1].Name != "ends" || len(got.Workloads) != 4 {
		t.Errorf("%d JobSets, want runs and ends; %d quota Workloads, want 4", len(got.JobSets), len(got.Workloads))
	}
}

// TestRecovered: nothing in the simulator ends the manager.
func TestRecovered(t *testing.T) {
	broken := errors.New("broken")
	if err := recovered(func() error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error: %v", err)
	}
	err := recovered(func() error { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("panic: %v", err)
	}
}
