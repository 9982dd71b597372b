package stages

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// TestRetention: the quota Workloads of a finished JobSet are deleted an hour after they have finished. Those of an unfinished JobSet
// record which stages have succeeded, and stay.
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
			for _, workload := range s.Owned.Workloads {
				for i := range workload.Status.Conditions {
					workload.Status.Conditions[i].LastTransitionTime = metav1.NewTime(finished)
				}
			}
			s.Retention.AfterFinished, s.Now = tc.retention, finished.Add(tc.after)
			got := Next(s)
			if diff := cmp.Diff(tc.want, render(got)); diff != "" || got.RequeueAfter != tc.wantAgain {
				t.Errorf("looks again after %s, want %s; writes differ (-want +got):\n%s", got.RequeueAfter, tc.wantAgain, diff)
			}
		})
	}
	// The next reconcile finds none of them, and reports the same about the JobSet.
	s := world{started: true, over: jobset.JobSetCompleted, jobs: map[string]string{"init": "complete", "train": "complete"}}.build(t)
	stages, _ := stagesOf(s)
	if !summary(s, stages).Over || len(render(Next(s))) > 0 {
		t.Error("a finished JobSet without quota Workloads is no longer finished")
	}
}

// TestRetentionAfterDeactivation: a JobSet is deleted an hour after the manager has deactivated one of its stages, but not if a user has.
func TestRetentionAfterDeactivation(t *testing.T) {
	deactivated := time.Unix(1e9, 0)
	hour := &metav1.Duration{Duration: time.Hour}
	for name, tc := range map[string]struct {
		reason      string
		isActive    bool
		requeued    bool
		over        jobset.JobSetConditionType
		retention   *metav1.Duration
		after       time.Duration
		wantExpired bool
		wantAgain   time.Duration
	}{
		"kept by default":            {reason: "DeactivatedDueToAdmissionCheck", after: 24 * time.Hour},
		"kept":                       {reason: "DeactivatedDueToAdmissionCheck", retention: hour, after: 20 * time.Minute, wantAgain: 40 * time.Minute},
		"expired":                    {reason: "DeactivatedDueToRequeuingLimitExceeded", retention: hour, after: time.Hour, wantExpired: true},
		"expired at once":            {reason: "DeactivatedDueToMaximumExecutionTimeExceeded", retention: &metav1.Duration{}, wantExpired: true},
		"deactivated by a user":      {reason: kueue.WorkloadDeactivated, retention: hour, after: 24 * time.Hour},
		"activated again by a user":  {reason: "DeactivatedDueToAdmissionCheck", isActive: true, retention: hour, after: 24 * time.Hour},
		"parked by a user since":     {reason: "DeactivatedDueToAdmissionCheck", requeued: true, retention: hour, after: 24 * time.Hour},
		"has finished all the same":  {reason: "DeactivatedDueToAdmissionCheck", over: jobset.JobSetCompleted, retention: hour, after: 24 * time.Hour},
		"evicted, and not otherwise": {reason: kueue.WorkloadEvictedByPreemption, isActive: true, retention: hour, after: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := world{started: true, over: tc.over, workloads: map[string]string{"init": "waiting", "train": "closed"}, jobs: map[string]string{"init": "held"}}.build(t)
			workload := s.Owned.Workloads[slices.IndexFunc(s.Owned.Workloads, func(w *kueue.Workload) bool { return w.Labels[apis.StageLabel] == "init" })]
			workload.Spec.Active = &tc.isActive
			workload.Status.Conditions = []metav1.Condition{{
				Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: tc.reason, LastTransitionTime: metav1.NewTime(deactivated),
			}}
			if tc.requeued {
				requeued := metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue, Reason: kueue.WorkloadReactivated}
				workload.Status.Conditions = append(workload.Status.Conditions, requeued)
			}
			s.Retention.AfterDeactivatedByKueue, s.Now = tc.retention, deactivated.Add(tc.after)
			w := Next(s)
			if (w.DeleteExpired == workload) != tc.wantExpired || w.RequeueAfter != tc.wantAgain {
				t.Errorf("expired is %t, looks again after %s; want %t, %s", w.DeleteExpired != nil, w.RequeueAfter, tc.wantExpired, tc.wantAgain)
			}
		})
	}
}
