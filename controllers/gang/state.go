package gang

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	shapes "github.com/tranche-dev/tranche/admission/gang"
)

// A State is what a JobSet asks for and what there is of it. The nil State asks for nothing.
type State struct {
	// Shape is what the JobSet asks for.
	Shape    *shapes.Shape
	provider shapes.Provider
	// wanted has, for each stage, what must be there before its Jobs start, in the order in which to make it.
	wanted [][]*unstructured.Unstructured
	// named has the same by name, of whatever kind.
	named map[string][]*unstructured.Unstructured
	// fixed has the kinds of objects whose specs cannot be changed.
	fixed map[string]bool
	// there has what is there of it, and what earlier attempts have left.
	there map[id]*unstructured.Unstructured
	// own has what the user has made for the gangs of Shape.Own, by name.
	own map[string]*unstructured.Unstructured
}

// NewState returns the State of a JobSet of which nothing is there yet.
func NewState(shape *shapes.Shape, provider shapes.Provider, stages int) (*State, error) {
	s := &State{
		Shape: shape, provider: provider, named: map[string][]*unstructured.Unstructured{}, fixed: map[string]bool{},
		there: map[id]*unstructured.Unstructured{}, own: map[string]*unstructured.Unstructured{},
	}
	for _, kind := range provider.Kinds() {
		s.fixed[kind.Kind] = kind.Fixed
	}
	for stage := range stages {
		var objects []*unstructured.Unstructured
		for _, object := range provider.Objects(shape, stage) {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object)
			if err != nil {
				return nil, fmt.Errorf("render %s %q of JobSet %q: %w", object.Kind, object.Name, shape.JobSet, err)
			}
			rendered := &unstructured.Unstructured{Object: fields}
			objects = append(objects, rendered)
			s.named[object.Name] = append(s.named[object.Name], rendered)
		}
		s.wanted = append(s.wanted, objects)
	}
	return s, nil
}

// Observe notes that an object is there: one of the JobSet, or one that has a name which the JobSet needs.
func (s *State) Observe(object *unstructured.Unstructured) { s.there[idOf(object)] = object }

// ObserveOwn notes that an object of the user is there, which pod templates of the JobSet name.
func (s *State) ObserveOwn(object *unstructured.Unstructured) { s.own[object.GetName()] = object }

// podGroup is the kind that pods name.
const podGroup = "PodGroup"

type id struct{ kind, name string }

func idOf(object *unstructured.Unstructured) id { return id{object.GetKind(), object.GetName()} }

// isOurs tells whether the JobSet has made an object.
func (s *State) isOurs(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == s.Shape.UID
}

// Missing returns what is to be made before the Jobs of a stage start.
func (s *State) Missing(stage int) []*unstructured.Unstructured {
	if s == nil {
		return nil
	}
	var missing []*unstructured.Unstructured
	for _, object := range s.wanted[stage] {
		if s.there[idOf(object)] == nil {
			missing = append(missing, object)
		}
	}
	return missing
}

// Wrong returns what of a stage is not what the JobSet asks for any more and has to go before it can be made anew, because its spec cannot
// be changed. What is on its way out is wrong, too.
func (s *State) Wrong(stage int) []*unstructured.Unstructured {
	var wrong []*unstructured.Unstructured
	s.compare(stage, func(there, _ *unstructured.Unstructured, same bool) {
		if there.GetDeletionTimestamp() != nil || s.fixed[there.GetKind()] && !same {
			wrong = append(wrong, there)
		}
	})
	return wrong
}

// A Mend is an object that is not what the JobSet asks for any more, and what it is to have. Whoever writes it must send nothing else of
// it: schedulers write status without a subresource.
type Mend struct{ There, Wanted *unstructured.Unstructured }

// Patch is the merge patch that does it, if the object is still the same.
func (m Mend) Patch() ([]byte, error) {
	metadata := map[string]any{"uid": string(m.There.GetUID())}
	if annotations := m.Wanted.GetAnnotations(); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return json.Marshal(map[string]any{"metadata": metadata, "spec": m.Wanted.Object["spec"]})
}

// Amiss returns what of a stage is not what the JobSet asks for any more, and can be changed while pods go by it.
func (s *State) Amiss(stage int) []Mend {
	var amiss []Mend
	s.compare(stage, func(there, wanted *unstructured.Unstructured, same bool) {
		if there.GetDeletionTimestamp() == nil && !s.fixed[there.GetKind()] && !same {
			amiss = append(amiss, Mend{There: there, Wanted: wanted})
		}
	})
	return amiss
}

// compare calls f for all objects of a stage that the JobSet has made.
func (s *State) compare(stage int, f func(there, wanted *unstructured.Unstructured, same bool)) {
	if s == nil {
		return
	}
	s.compareThese(s.wanted[stage], f)
}

func (s *State) compareThese(objects []*unstructured.Unstructured, f func(there, wanted *unstructured.Unstructured, same bool)) {
	for _, wanted := range objects {
		if there := s.there[idOf(wanted)]; there != nil && s.isOurs(there) {
			f(there, wanted, holds(there.Object["spec"], wanted.Object["spec"]) && hasAnnotations(there, wanted))
		}
	}
}

func hasAnnotations(there, wanted *unstructured.Unstructured) bool {
	has := there.GetAnnotations()
	for key, value := range wanted.GetAnnotations() {
		if has[key] != value {
			return false
		}
	}
	return true
}

// Stale returns what earlier attempts have left.
func (s *State) Stale() []*unstructured.Unstructured {
	if s == nil {
		return nil
	}
	needed := map[id]bool{}
	for _, stage := range s.wanted {
		for _, object := range stage {
			needed[idOf(object)] = true
		}
	}
	var stale []*unstructured.Unstructured
	for _, key := range slices.SortedFunc(maps.Keys(s.there), func(a, b id) int { return strings.Compare(a.kind+"/"+a.name, b.kind+"/"+b.name) }) {
		if !needed[key] {
			stale = append(stale, s.there[key])
		}
	}
	return stale
}

// Taken names what others have made under a name that the JobSet needs, and what its pod templates name, or is empty.
func (s *State) Taken() string {
	var taken []string
	for _, own := range s.Shape.Own {
		taken = append(taken, fmt.Sprintf("ReplicatedJob %q is in the gang %q of its user", own.ReplicatedJob, own.Gang))
	}
	for _, stage := range s.wanted {
		for _, object := range stage {
			if there := s.there[idOf(object)]; there != nil && !s.isOurs(there) {
				taken = append(taken, fmt.Sprintf("%s %q was made by somebody else, and is left as it is", object.GetKind(), object.GetName()))
			}
		}
	}
	slices.Sort(taken)
	return strings.Join(slices.Compact(taken), "; ")
}

// Gangs is how many gangs the JobSet has.
func (s *State) Gangs() int32 {
	var gangs int32
	for i := range s.Shape.Groups {
		gangs += s.Shape.Groups[i].Gangs()
	}
	return gangs
}

// PodFields is what the pods of a Job must carry to be in their gang.
func (s *State) PodFields(replicatedJob string, job int32) shapes.PodFields {
	if s == nil {
		return shapes.PodFields{}
	}
	return s.provider.Pods(s.Shape, replicatedJob, job)
}

// Lacks names the field of a pod template that puts its pods into their gang and can be set only when the Job is created, if the Job does
// not have it.
func (s *State) Lacks(replicatedJob string, job int32, template *corev1.PodTemplateSpec) string {
	fields := s.PodFields(replicatedJob, job)
	switch {
	case fields.SchedulingGroup != nil && s.provider.Named(template) == "":
		return "spec.schedulingGroup"
	case fields.SchedulerName != "" && template.Spec.SchedulerName != fields.SchedulerName:
		return fmt.Sprintf("spec.schedulerName %q", fields.SchedulerName)
	default:
		return ""
	}
}

// holds tells whether what is there has everything that is wanted. The API server adds defaults, and nulls for fields that are not set.
func holds(there, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		there, ok := there.(map[string]any)
		for key, value := range wanted {
			if !ok || !holds(there[key], value) {
				return false
			}
		}
		return ok
	case []any:
		there, ok := there.([]any)
		return ok && slices.EqualFunc(there, wanted, holds)
	default:
		return there == wanted
	}
}
