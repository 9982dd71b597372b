package queuedjob_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
)

// TestJobOfAnEarlierVersion: a Job that an earlier version released, and that replaces pods which still terminate, does so no longer.
func TestJobOfAnEarlierVersion(t *testing.T) {
	job, w := running()
	job.Spec.PodReplacementPolicy = new(batchv1.TerminatingOrFailed)
	step := queuedjob.Next(snapshot(job, w))
	if adopted := afterOf(step, queuedjob.Adopt); adopted == nil || childjob.ReplacesEarly(adopted) {
		t.Fatalf("the Job stays as it is: %+v", step)
	}
	if after := queuedjob.Next(snapshot(step.Job.After, w)); after.Job != nil && after.Job.Kind == queuedjob.Adopt {
		t.Error("the Job is written again")
	}
}

// TestReleaseAgain: an admitted Job whose user has suspended and resumed it is released when no pod of its previous run is left, and not before.
func TestReleaseAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		pods   int
		want   bool
	}{
		"no pods":                             {func(j *batchv1.Job) {}, 0, true},
		"its status counts a pod":             {func(j *batchv1.Job) { j.Status.Terminating = new(int32(1)) }, 0, false},
		"its status counts an active pod":     {func(j *batchv1.Job) { j.Status.Active = 1 }, 0, false},
		"a pod that its status does not show": {func(j *batchv1.Job) {}, 1, false},
		"not reported as suspended yet":       {func(j *batchv1.Job) { j.Status.Conditions = nil }, 0, false},
		"its release may be unnoticed": {func(j *batchv1.Job) {
			metav1.SetMetaDataAnnotation(&j.ObjectMeta, apis.UnnoticedAnnotation, "true")
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			job, w := stopped()
			job.Status.StartTime = nil
			c.change(job)
			s := snapshot(job, w)
			if cached := queuedjob.Next(s); afterOf(cached, queuedjob.Release) != nil && !cached.NeedsLive() {
				t.Error("it is released without a look at its pods")
			}
			for range c.pods {
				s.Owned.Pods = append(s.Owned.Pods, &corev1.Pod{})
			}
			if step := queuedjob.Next(s); (afterOf(step, queuedjob.Release) != nil) != c.want {
				t.Errorf("released: %t, want %t", step.Job != nil, c.want)
			}
		})
	}
}
