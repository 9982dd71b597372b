package jobsetstate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// madePod is a pod as the Job controller creates it for a JobSet.
func madePod() *corev1.Pod {
	keys := map[string]string{
		jobset.JobSetNameKey: "js", jobset.JobSetUIDKey: "js-uid", jobset.ReplicatedJobNameKey: "workers", jobset.JobIndexKey: "1",
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: "js-workers-1"}, Annotations: map[string]string{}}}
	for key, value := range keys {
		pod.Labels[key], pod.Annotations[key] = value, value
	}
	pod.Annotations[jobset.InPlaceRestartAttemptKey] = "3"
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "js-workers-1", UID: "job-uid"}}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	return pod
}

// TestOriginalLabels: the JobSet and Job of a pod follow from its annotations and its owner, even if its labels were changed.
func TestOriginalLabels(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"as it was made":          func(*corev1.Pod) {},
		"without any label":       func(pod *corev1.Pod) { pod.Labels = nil },
		"with the UID of another": func(pod *corev1.Pod) { pod.Labels[jobset.JobSetUIDKey] = "other" },
		"without its Job": func(pod *corev1.Pod) {
			pod.OwnerReferences = nil
			delete(pod.Labels, batchv1.JobNameLabel)
		},
		"with the name of another Job": func(pod *corev1.Pod) { pod.Labels[batchv1.JobNameLabel] = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			pod := madePod()
			change(pod)
			before := pod.DeepCopy()
			if diff := cmp.Diff(madePod().Labels, OriginalLabels(pod)); diff != "" {
				t.Errorf("labels differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod has been changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUsesQuota: a pod uses quota of its JobSet while a Job controls it, or if a Job has created it. Labels alone prove nothing.
func TestUsesQuota(t *testing.T) {
	tests := map[string]struct {
		change         func(*corev1.Pod)
		charged, loose bool
	}{
		"of a Job":                {func(*corev1.Pod) {}, true, false},
		"cut loose":               {func(pod *corev1.Pod) { pod.OwnerReferences = nil }, true, true},
		"adopted by a ReplicaSet": {func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "ReplicaSet" }, true, true},
		"labelled so":             {func(pod *corev1.Pod) { pod.OwnerReferences, pod.Annotations = nil, nil }, false, false},
		"of a Job, labelled so":   {func(pod *corev1.Pod) { pod.Annotations = nil }, true, false},
		"that has ended":          {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := madePod()
			test.change(pod)
			if IsCharged(pod) != test.charged || IsLoose(pod) != test.loose {
				t.Errorf("isCharged is %t and isLoose %t, want %t and %t", IsCharged(pod), IsLoose(pod), test.charged, test.loose)
			}
		})
	}
}

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
		"a pod of no JobSet":                 {nil, owner("batch/v1", "Job", true), corev1.PodPending, false},
		"a pod that was made by hand":        {ours, nil, corev1.PodPending, false},
		"a pod that its Job has released":    {ours, owner("batch/v1", "Job", false), corev1.PodRunning, false},
		"a pod of a ReplicaSet":              {ours, owner("apps/v1", "ReplicaSet", true), corev1.PodRunning, false},
		"a pod of another kind of like name": {ours, owner("example.com/v1", "Job", true), corev1.PodRunning, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, OwnerReferences: c.owners}, Status: corev1.PodStatus{Phase: c.phase}}
			if got := IsCharged(pod); got != c.want {
				t.Errorf("IsCharged = %t, want %t", got, c.want)
			}
		})
	}
}
