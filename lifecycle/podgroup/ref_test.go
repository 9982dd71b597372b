package podgroup_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestRefOfJob: a Job belongs to the gang that its pod template names, as its pods do. The Jobs of a JobSet belong to none.
func TestRefOfJob(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*batchv1.Job)
		want   string
	}{
		"no gang": {func(*batchv1.Job) {}, ""},
		"a label": {func(job *batchv1.Job) { job.Spec.Template.Labels = map[string]string{apis.PodGroupNameLabel: "g"} }, "kueue.g"},
		"an annotation": {func(job *batchv1.Job) {
			job.Spec.Template.Annotations = map[string]string{apis.KoordinatorPrefix + "name": "g"}
		}, "lightweight.g"},
		"a field": {func(job *batchv1.Job) {
			job.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
		}, "core.g"},
		"a Job of a JobSet": {func(job *batchv1.Job) {
			job.Labels = map[string]string{jobset.JobSetNameKey: "j"}
			job.Spec.Template.Labels = map[string]string{apis.CoschedulingLabel: "g"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "train"}}
			c.change(job)
			ref, ok := podgroup.RefOfJob(job)
			if got := ref.String(); ok != (c.want != "") || ok && (got != c.want || ref.Namespace != "ml") {
				t.Errorf("gang %q of namespace %q, named %t; want %q", got, ref.Namespace, ok, c.want)
			}
		})
	}
}
