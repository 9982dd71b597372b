package jobset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// TestRetention: the quota Workloads of a finished JobSet are deleted an hour after they have finished. Those of a JobSet that goes on say
// which stages have succeeded, and stay.
func TestRetention(t *testing.T) {
	finished := time.Unix(1e9, 0)
	for name, tc := range map[string]struct {
		world     world
		retention *metav1.Duration
		after     time.Duration
		want      []string
		wantAgain time.Duration
	}{
		"kept by default":    {world: world{over: jobset.JobSetCompleted}, after: 24 * time.Hour},
		"kept":               {world: world{over: jobset.JobSetCompleted}, retention: new(metav1.Duration{Duration: time.Hour}), after: 20 * time.Minute, wantAgain: 40 * time.Minute},
		"expired":            {world: world{over: jobset.JobSetCompleted}, retention: new(metav1.Duration{Duration: time.Hour}), after: time.Hour, want: []string{"drop init", "drop train"}},
		"expired at once":    {world: world{over: jobset.JobSetFailed}, retention: &metav1.Duration{}, want: []string{"drop init", "drop train"}},
		"the JobSet goes on": {world: world{}, retention: new(metav1.Duration{Duration: time.Hour}), after: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := tc.world
			w.started, w.workloads = true, map[string]string{"init": "finished", "train": "finished"}
			w.jobs = map[string]string{"init": "complete", "train": "complete"}
			s := w.build(t)
			for _, workload := range s.mine.workloads {
				for i := range workload.Status.Conditions {
					workload.Status.Conditions[i].LastTransitionTime = metav1.NewTime(finished)
				}
			}
			s.retention, s.now = tc.retention, finished.Add(tc.after)
			got := desired(s)
			if diff := cmp.Diff(tc.want, render(got)); diff != "" || got.again != tc.wantAgain {
				t.Errorf("looks again after %s, want %s; writes differ (-want +got):\n%s", got.again, tc.wantAgain, diff)
			}
		})
	}
	// The next pass finds none of them, and says the same of the JobSet.
	s := world{started: true, over: jobset.JobSetCompleted, jobs: map[string]string{"init": "complete", "train": "complete"}}.build(t)
	stages, _ := stagesOf(s)
	if !summary(s, stages).Over || len(render(desired(s))) > 0 {
		t.Error("a finished JobSet without quota Workloads is no longer finished")
	}
}
