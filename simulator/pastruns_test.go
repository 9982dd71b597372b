package simulator_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator"
)

// ended returns a JobSet whose stage has run for some time.
func ended(t *testing.T, name, stage string, admitted time.Time, took time.Duration) *jobsetapi.JobSet {
	t.Helper()
	finished := metav1.NewTime(admitted.Add(took))
	text, err := json.Marshal(apis.Timeline{Stages: []apis.StageTimes{{Name: stage, Admitted: metav1.NewTime(admitted), Finished: &finished}}})
	if err != nil {
		t.Fatal(err)
	}
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{apis.TimelineAnnotation: string(text)},
	}}
	js.Status.TerminalState = "Completed"
	return js
}

// TestHistory predicts a start from the runs of earlier JobSets with names of the same kind, and from those of another name that it does not.
func TestHistory(t *testing.T) {
	const text = "# story\nqueue ml gpu=4\nsubmit train-9 queue=ml stages=train(gpu=4)\nsubmit x queue=ml pods=gpu:4 at=1m\n"
	p, err := simulator.Pause(text, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	s := p.Taken
	begin := s.TakenAt.Add(-5 * time.Minute)
	for i := range 45 {
		// The first 5 are too old to count.
		took := time.Hour + time.Duration(i%3-1)*time.Minute
		if i < 5 {
			took = 100 * time.Hour
		}
		s.JobSets = append(s.JobSets, ended(t, fmt.Sprintf("train-%c7", 'a'+i%26)+fmt.Sprint(i), "train", begin.Add(time.Duration(i-500)*time.Hour), took))
	}
	s.JobSets = append(s.JobSets, ended(t, "other-1", "train", begin.Add(-time.Hour), time.Minute), ended(t, "train-x1", "eval", begin.Add(-time.Hour), time.Minute))
	forecast, err := simulator.ForecastOf(s, &simulator.Durations{PastRuns: simulator.PastRunsOf(s)}, begin.Add(100*time.Hour), p.Pending()...)
	if err != nil {
		t.Fatal(err)
	}
	if len(forecast.Starts) != 1 {
		t.Fatalf("starts: %v", forecast.Starts)
	}
	start := &forecast.Starts[0]
	if start.Certainty() != simulator.About || start.About.Sub(begin) != time.Hour || start.Basis.String() != "from the last 40 runs of stage train of JobSet default/train-*" {
		t.Errorf("start %s after %s %s, want about 1h from the last 40 runs", start.Certainty(), start.About.Sub(begin), start.Basis)
	}
}
