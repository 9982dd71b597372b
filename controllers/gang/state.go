package gang

import (
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
	// there has what is there of it, and what earlier attempts have left.
	there map[id]*unstructured.Unstructured
}

// NewState returns the State of a JobSet of which nothing is there yet.
func NewState(shape *shapes.Shape, provider shapes.Provider, stages int) (*State, error) {
	s := &State{Shape: shape, provider: provider, there: map[id]*unstructured.Unstructured{}}
	for stage := range stages {
		var objects []*unstructured.Unstructured
		for _, object := range provider.Objects(shape, stage) {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object)
			if err != nil {
				return nil, fmt.Errorf("render %s %q of JobSet %q: %w", object.Kind, object.Name, shape.JobSet, err)
			}
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		}
		s.wanted = append(s.wanted, objects)
	}
	return s, nil
}

// Observe notes that an object is there: one of the JobSet, or one that has a name which the JobSet needs.
func (s *State) Observe(object *unstructured.Unstructured) { s.there[idOf(object)] = object }

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

// Wrong returns what of a stage is not what the JobSet asks for any more. It has to go before it can be made anew: specs cannot be
// changed. What is on its way out is wrong, too.
func (s *State) Wrong(stage int) []*unstructured.Unstructured {
	if s == nil {
		return nil
	}
	var wrong []*unstructured.Unstructured
	for _, object := range s.wanted[stage] {
		there := s.there[idOf(object)]
		if there != nil && s.isOurs(there) && (there.GetDeletionTimestamp() != nil || !holds(there.Object["spec"], object.Object["spec"])) {
			wrong = append(wrong, there)
		}
	}
	return wrong
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

// IsNamed tells whether the pods of a Job name a gang, if they should be in one.
func (s *State) IsNamed(replicatedJob string, job int32, template *corev1.PodTemplateSpec) bool {
	return s.provider.Pods(s.Shape, replicatedJob, job).SchedulingGroup == nil || s.provider.Named(template) != ""
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
