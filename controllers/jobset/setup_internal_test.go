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
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// A pod that no Job ends must not keep an evicted stage from releasing its quota.
func TestIsCharged(t *testing.T) {
	owner := func(version, kind string, controller bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "name", UID: "owner", Controller: &controller}}
	}
	ours := map[string]string{jobset.JobSetUIDKey: "uid"}
	cases := map[string]struct {
		labels map[string]string
		owners []metav1.OwnerReference
		phase  corev1.PodPhase
		want   bool
	}{
		"a pod of a Job":                     {ours, owner("batch/v1", "Job", true), corev1.PodPending, true},
		"it has ended":                       {ours, owner("batch/v1", "Job", true), corev1.PodFailed, false},
		"a pod of nobody's JobSet":           {nil, owner("batch/v1", "Job", true), corev1.PodPending, false},
		"a pod that was made by hand":        {ours, nil, corev1.PodPending, false},
		"a pod that its Job has let go":      {ours, owner("batch/v1", "Job", false), corev1.PodRunning, false},
		"a pod of a ReplicaSet":              {ours, owner("apps/v1", "ReplicaSet", true), corev1.PodRunning, false},
		"a pod of another kind of like name": {ours, owner("example.com/v1", "Job", true), corev1.PodRunning, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, OwnerReferences: c.owners}, Status: corev1.PodStatus{Phase: c.phase}}
			if got := isCharged(pod); got != c.want {
				t.Errorf("isCharged = %t, want %t", got, c.want)
			}
		})
	}
}

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
		"its Job was made anew":              {jobs{"train-0": job("anew", ours)}, "gone", 1},
		"its Job was made since":             {jobs{"train-0": job("anew", ours)}, "anew", 1},
		"another Job has taken it over":      {jobs{"train-0": job("other")}, "other", 0},
		"a stranger has the name of its Job": {jobs{"train-0": job("other")}, "gone", 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			listed := job("listed", ours)
			o := ownedObjects{jobs: []*batchv1.Job{&listed}}
			owner := *metav1.NewControllerRef(&metav1.ObjectMeta{Name: "train-0", UID: c.uid}, batchv1.SchemeGroupVersion.WithKind("Job"))
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{jobset.JobSetUIDKey: "js"}, OwnerReferences: []metav1.OwnerReference{owner}}}
			if err := o.addPods(t.Context(), c.there, []corev1.Pod{pod}); err != nil || len(o.pods) != c.want {
				t.Errorf("%d pods count, want %d; error %v", len(o.pods), c.want, err)
			}
		})
	}
}
