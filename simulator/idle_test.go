package simulator_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// TestIdleJobSets: predictions are the same if JobSets that wait are reconciled only when something concerns them.
func TestIdleJobSets(t *testing.T) {
	t.Parallel()
	leftAlone := 0
	rapid.Check(t, func(t *rapid.T) {
		text := crowdedLines(t)
		if rapid.Bool().Draw(t, "other world") {
			text = randomWorld(t)
		}
		p, err := simulator.Pause(text, time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot"))*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "without Jobs") {
			p.Taken.Jobs = withoutHeld(p.Taken.Jobs)
		}
		spoil(t, p.Taken)
		d := &simulator.Durations{}
		want, err := simulator.PredictEach(p.Taken, d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := simulator.Forecast(p.Taken, d, p.Taken.TakenAt.Add(1000*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		count, err := simulator.LeftAlone(p.Taken)
		if err != nil {
			t.Fatal(err)
		}
		leftAlone += count
		if diff := gocmp.Diff(want.Starts, got.Starts); diff != "" {
			t.Fatalf("-each reconciled +some left alone\n%s\n%s", diff, text)
		}
	})
	if leftAlone < 60 {
		t.Errorf("%d JobSets were left alone: these worlds are too small", leftAlone)
	}
}

// withoutHeld returns the Jobs that are not suspended.
func withoutHeld(all []*batchv1.Job) []*batchv1.Job {
	var rest []*batchv1.Job
	for _, job := range all {
		if job.Spec.Suspend == nil || !*job.Spec.Suspend {
			rest = append(rest, job)
		}
	}
	return rest
}

// spoil changes quota Workloads so that the manager has something to do about them: each one, or some.
func spoil(t *rapid.T, s *snapshot.Snapshot) {
	how, everyOne := rapid.SampledFrom([]string{"", "", "gate", "priority", "missing", "pods", "queue"}).Draw(t, "spoilt"), rapid.Bool().Draw(t, "every one")
	for i := len(s.Workloads) - 1; i >= 0; i-- {
		if s.Workloads[i].Labels[apis.JobSetLabel] == "" || s.Workloads[i].Status.Admission != nil || !everyOne && !rapid.Bool().Draw(t, "is spoilt") {
			continue
		}
		w := s.Workloads[i].DeepCopy()
		s.Workloads[i] = w
		switch how {
		case "gate":
			delete(w.Annotations, apis.AdmissionGatedByAnnotation)
		case "priority":
			w.Spec.Priority = new(*w.Spec.Priority + 1)
		case "missing":
			s.Workloads = append(s.Workloads[:i], s.Workloads[i+1:]...)
		case "pods":
			w.Spec.PodSets[0].Count++
		case "queue":
			w.Spec.QueueName = "z"
		}
	}
}
