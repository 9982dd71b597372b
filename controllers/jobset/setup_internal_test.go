package jobset

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// jobs are the Jobs that exist besides the listed Jobs of a JobSet.
type jobs map[string]batchv1.Job

func (all jobs) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	found, ok := all[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	*object.(*batchv1.Job) = found
	return nil
}

func (jobs) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestAddPods(t *testing.T) {
	job := func(uid types.UID, owners ...metav1.OwnerReference) batchv1.Job {
		return batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: uid, OwnerReferences: owners}}
	}
	ours := *metav1.NewControllerRef(&metav1.ObjectMeta{UID: "js"}, jobset.GroupVersion.WithKind("JobSet"))
	cases := map[string]struct {
		there jobs
		uid   types.UID
		want  int
	}{
		"its Job is listed":                  {nil, "listed", 1},
		"its Job is gone":                    {nil, "gone", 1},
		"its Job was recreated":              {jobs{"train-0": job("again", ours)}, "gone", 1},
		"its Job was made since":             {jobs{"train-0": job("again", ours)}, "again", 1},
		"another Job has taken it over":      {jobs{"train-0": job("other")}, "other", 0},
		"a stranger has the name of its Job": {jobs{"train-0": job("other")}, "gone", 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			listed := job("listed", ours)
			b := jobsetstate.Objects{Jobs: []*batchv1.Job{&listed}}
			owner := *metav1.NewControllerRef(&metav1.ObjectMeta{Name: "train-0", UID: c.uid}, batchv1.SchemeGroupVersion.WithKind("Job"))
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobset.JobSetUIDKey: "js"}, OwnerReferences: []metav1.OwnerReference{owner}}}
			if err := addPods(t.Context(), c.there, &b, []corev1.Pod{pod}); err != nil || len(b.Pods) != c.want {
				t.Errorf("%d pods count, want %d; error %v", len(b.Pods), c.want, err)
			}
		})
	}
}

// A pod that a scheduler refuses wakes its JobSet once: the message of its condition changes at each try.
func TestPodChangesOfRefusedPods(t *testing.T) {
	pod := func(why string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobset.JobSetUIDKey: "js"}, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(&metav1.ObjectMeta{UID: "job"}, batchv1.SchemeGroupVersion.WithKind("Job")),
		}}}
		if why != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why}}
		}
		return p
	}
	for _, c := range []struct {
		before, after string
		want          bool
	}{{"", "0/3 nodes", true}, {"0/3 nodes", "0/4 nodes", false}, {"", "", false}, {"0/3 nodes", "", false}} {
		if got := podChanges().Update(event.UpdateEvent{ObjectOld: pod(c.before), ObjectNew: pod(c.after)}); got != c.want {
			t.Errorf("from %q to %q: passes %t, want %t", c.before, c.after, got, c.want)
		}
	}
}
