package snapshot

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"sync"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// An interner decodes equal parts of objects once, and lets the objects share them: most JobSets of a large snapshot, their Jobs and their quota
// Workloads differ in little else than names and numbers of pods. Nothing changes the objects of a snapshot in place.
type interner struct {
	podSets     interned[[]kueue.PodSet]
	annotations interned[map[string]string]
	jobSets     interned[jobsetapi.JobSetSpec]
	podSpecs    interned[corev1.PodSpec]
}

// interned has the decoded values of texts.
type interned[T any] struct {
	mutex  sync.Mutex
	values map[string]T
}

// of returns the value of a text in JSON. Without a text it is zero.
func (in *interned[T]) of(text []byte) (value T, err error) {
	if len(text) == 0 {
		return value, nil
	}
	in.mutex.Lock()
	value, isKnown := in.values[string(text)]
	in.mutex.Unlock()
	if isKnown {
		return value, nil
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, err
	}
	in.mutex.Lock()
	defer in.mutex.Unlock()
	if in.values == nil {
		in.values = map[string]T{}
	}
	if first, isKnown := in.values[string(text)]; isKnown {
		return first, nil
	}
	in.values[string(text)] = value
	return value, nil
}

// errNotShared is the error of an object that has to be decoded as a whole.
var errNotShared = errors.New("the object shares nothing")

// decode decodes an object that shares parts with others. ok is false if its kind shares nothing, or if the text has an error, which the caller
// finds when it decodes the text as a whole.
func (in *interner) decode(kind *Kind, raw []byte) (object Object, ok bool) {
	var err error
	switch kind.new().(type) {
	case *kueue.Workload:
		object, err = in.workload(raw)
	case *jobsetapi.JobSet:
		object, err = in.jobSet(raw)
	case *batchv1.Job:
		object, err = in.job(raw)
	default:
		return nil, false
	}
	return object, err == nil
}

func (in *interner) workload(raw []byte) (*kueue.Workload, error) {
	var text struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			metav1.ObjectMeta
			Annotations json.RawMessage `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			kueue.WorkloadSpec
			PodSets json.RawMessage `json:"podSets"`
		} `json:"spec"`
		Status kueue.WorkloadStatus `json:"status"`
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	w := &kueue.Workload{TypeMeta: text.TypeMeta, ObjectMeta: text.Metadata.ObjectMeta, Spec: text.Spec.WorkloadSpec, Status: text.Status}
	var err error
	if w.Annotations, err = in.annotations.of(text.Metadata.Annotations); err != nil {
		return nil, err
	}
	w.Spec.PodSets, err = in.podSets.of(text.Spec.PodSets)
	return w, err
}

func (in *interner) jobSet(raw []byte) (*jobsetapi.JobSet, error) {
	var text struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              json.RawMessage     `json:"spec"`
		Status            jobset.JobSetStatus `json:"status"`
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	js := &jobsetapi.JobSet{TypeMeta: text.TypeMeta, ObjectMeta: text.ObjectMeta, Status: text.Status}
	var err error
	js.Spec, err = in.jobSets.of(text.Spec)
	if slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.Replicas == 0 }) {
		return nil, errNotShared // it may get a default
	}
	return js, err
}

func (in *interner) job(raw []byte) (*batchv1.Job, error) {
	var text struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			batchv1.JobSpec
			Template struct {
				metav1.ObjectMeta `json:"metadata"`
				Spec              json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
		Status batchv1.JobStatus `json:"status"`
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, err
	}
	job := &batchv1.Job{TypeMeta: text.TypeMeta, ObjectMeta: text.ObjectMeta, Spec: text.Spec.JobSpec, Status: text.Status}
	job.Spec.Template.ObjectMeta = text.Spec.Template.ObjectMeta
	var err error
	job.Spec.Template.Spec, err = in.podSpecs.of(text.Spec.Template.Spec)
	return job, err
}

// IsSameSpec reports whether the specs of two JobSets share all that they refer to, as those with the same text in a snapshot do. Then they are equal.
// It does not compare what they refer to.
func IsSameSpec(a, b *jobsetapi.JobSetSpec) bool {
	return refersToSame(reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem())
}

func refersToSame(a, b reflect.Value) bool {
	kind := a.Kind()
	if kind == reflect.Struct {
		for i := range a.NumField() {
			if !refersToSame(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	if kind == reflect.Slice && a.Len() != b.Len() {
		return false
	}
	if kind == reflect.Slice || kind == reflect.Pointer || kind == reflect.Map {
		return a.Pointer() == b.Pointer()
	}
	return a.Equal(b)
}
