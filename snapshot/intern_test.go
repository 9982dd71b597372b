package snapshot_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
)

// TestEqualPartsAreShared reads objects of which some have equal parts.
func TestEqualPartsAreShared(t *testing.T) {
	s := &snapshot.Snapshot{}
	for i, gpus := range []string{"1", "2", "1"} {
		meta := metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("a", i), Labels: map[string]string{"kueue.x-k8s.io/queue-name": fmt.Sprint("q", i)}}
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"gpu": *quantity(gpus)}},
		}}}}
		template.Labels = map[string]string{"jobset.sigs.k8s.io/jobset-name": meta.Name}
		js := &jobsetapi.JobSet{ObjectMeta: meta}
		js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
		r := &js.Spec.ReplicatedJobs[0]
		r.Name, r.Replicas, r.Template.Spec.Template.Spec = "train", 1, template.Spec
		s.JobSets = append(s.JobSets, js)
		job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: new(int32(i)), Template: template}, Status: batchv1.JobStatus{Active: int32(i)}}
		s.Jobs = append(s.Jobs, job)
		w := &kueue.Workload{ObjectMeta: meta, Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(fmt.Sprint("q", i)), Priority: new(int32(i)), Active: new(true)}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "train", Count: 1, Template: corev1.PodTemplateSpec{Spec: template.Spec}}}
		w.Annotations = map[string]string{"tranche.dev/attempt": gpus}
		s.Workloads = append(s.Workloads, w)
	}
	got := read(t, write(t, s, nil))
	for _, kind := range snapshot.Kinds() {
		for object := range s.Objects(kind) {
			object.GetObjectKind().SetGroupVersionKind(kind.GVK)
		}
	}
	got.TakenAt, got.Version, s.Configuration = s.TakenAt, s.Version, got.Configuration
	if diff := cmp.Diff(text(t, s), text(t, got)); diff != "" {
		t.Errorf("-written +read\n%s", diff)
	}
	for i, want := range []bool{true, false, true} {
		first, other := got.Workloads[0], got.Workloads[i]
		if shared := &first.Spec.PodSets[0] == &other.Spec.PodSets[0]; shared != want {
			t.Errorf("quota Workloads 0 and %d share pod sets: %t", i, shared)
		}
		if shared := &got.JobSets[0].Spec.ReplicatedJobs[0] == &got.JobSets[i].Spec.ReplicatedJobs[0]; shared != want {
			t.Errorf("JobSets 0 and %d share ReplicatedJobs: %t", i, shared)
		}
		if shared := reflect.ValueOf(first.Annotations).Pointer() == reflect.ValueOf(other.Annotations).Pointer(); shared != want {
			t.Errorf("quota Workloads 0 and %d share annotations: %t", i, shared)
		}
		if isSame := snapshot.IsSameSpec(&got.JobSets[0].Spec, &got.JobSets[i].Spec); isSame != want {
			t.Errorf("JobSets 0 and %d have the same spec: %t", i, isSame)
		}
		if shared := &got.Jobs[0].Spec.Template.Spec.Containers[0] == &got.Jobs[i].Spec.Template.Spec.Containers[0]; shared != want {
			t.Errorf("Jobs 0 and %d share containers: %t", i, shared)
		}
	}
}

// TestIsSameSpec changes one field of a copy after the other.
func TestIsSameSpec(t *testing.T) {
	spec := jobsetapi.JobSetSpec{ReplicatedJobs: make([]jobsetapi.ReplicatedJob, 2)}
	spec.Suspend = new(true)
	for name, change := range map[string]func(*jobsetapi.JobSetSpec){
		"a pointer":              func(s *jobsetapi.JobSetSpec) { s.Suspend = new(true) },
		"a pointer that was nil": func(s *jobsetapi.JobSetSpec) { s.StartupPolicy = &jobsetapi.StartupPolicy{} },
		"a slice":                func(s *jobsetapi.JobSetSpec) { s.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 2) },
		"a shorter slice":        func(s *jobsetapi.JobSetSpec) { s.ReplicatedJobs = s.ReplicatedJobs[:1] },
		"an upstream field":      func(s *jobsetapi.JobSetSpec) { s.TTLSecondsAfterFinished = new(int32(1)) },
	} {
		other := spec
		if !snapshot.IsSameSpec(&spec, &other) {
			t.Fatal("a copy is not the same")
		}
		if change(&other); snapshot.IsSameSpec(&spec, &other) {
			t.Errorf("%s differs, and is not seen", name)
		}
	}
}
