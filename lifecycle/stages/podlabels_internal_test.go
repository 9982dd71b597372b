package stages

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// TestReleasedJobsNameTheirQuota checks Kueue's labels on the pod template of a released Job, and that an eviction removes them.
func TestReleasedJobsNameTheirQuota(t *testing.T) {
	w := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}}
	released := Next(w.build(t)).ReleaseJobs[0].Jobs[0]
	want := map[string]string{
		"kueue.x-k8s.io/podset": "init", "kueue.x-k8s.io/cluster-queue-name": "cq", "kueue.x-k8s.io/local-queue-name": "queue",
	}
	if diff := gocmp.Diff(want, released.Spec.Template.Labels); diff != "" {
		t.Errorf("labels of the pod template (-want +got):\n%s", diff)
	}
	if labels := childjob.Restored(released).Spec.Template.Labels; len(labels) > 0 {
		t.Errorf("labels after an eviction: %v", labels)
	}
}

// TestJobThatNamesOtherQuotaStaysHeld: as in Kueue, a pod template cannot name another queue than that of its JobSet.
func TestJobThatNamesOtherQuotaStaysHeld(t *testing.T) {
	w := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held"}}
	s := w.build(t)
	s.Owned.Jobs[0].Spec.Template.Labels = map[string]string{"kueue.x-k8s.io/cluster-queue-name": "other"}
	const want = `complain the Job "init-0" stays held: its admission would set labels["kueue.x-k8s.io/cluster-queue-name"] to "cq", which is "other" already; make them equal`
	if diff := gocmp.Diff([]string{want}, render(Next(s))); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
}
