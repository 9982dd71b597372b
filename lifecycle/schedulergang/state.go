package schedulergang

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
)

// A State has the gang objects that a JobSet asks for and those that exist. The nil State asks for none.
type State struct {
	// GangSet is what the JobSet asks for.
	GangSet  *GangSet
	provider Provider
	// wanted has, for each stage, the objects that must exist before its Jobs start, in the order of creation.
	wanted [][]*unstructured.Unstructured
	// named has the same objects by name, of any kind.
	named map[string][]*unstructured.Unstructured
	// fixed has the kinds of objects whose specs are immutable.
	fixed map[string]bool
	// existing has the existing objects of the JobSet, including those of earlier attempts, and other objects with names that it needs.
	existing map[id]*unstructured.Unstructured
	// userGangs has the objects that the user has created for the GangSet.UserGangs, by name.
	userGangs map[string]*unstructured.Unstructured
}

// NewState returns the State of a JobSet without existing objects.
func NewState(gangSet *GangSet, provider Provider, stages int) (*State, error) {
	s := &State{
		GangSet: gangSet, provider: provider, named: map[string][]*unstructured.Unstructured{}, fixed: map[string]bool{},
		existing: map[id]*unstructured.Unstructured{}, userGangs: map[string]*unstructured.Unstructured{},
	}
	for _, kind := range provider.Kinds() {
		s.fixed[kind.Kind] = kind.Fixed
	}
	for stage := range stages {
		var objects []*unstructured.Unstructured
		for _, object := range provider.Objects(gangSet, stage) {
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object)
			if err != nil {
				return nil, fmt.Errorf("render %s %q of JobSet %q: %w", object.Kind, object.Name, gangSet.JobSet, err)
			}
			rendered := &unstructured.Unstructured{Object: fields}
			objects = append(objects, rendered)
			s.named[object.Name] = append(s.named[object.Name], rendered)
		}
		s.wanted = append(s.wanted, objects)
	}
	return s, nil
}

// Observe records an existing object: one of the JobSet, or one that has a name which the JobSet needs.
func (s *State) Observe(object *unstructured.Unstructured) { s.existing[idOf(object)] = object }

// ObserveUserGang records an existing object of the user, which pod templates of the JobSet name.
func (s *State) ObserveUserGang(object *unstructured.Unstructured) {
	s.userGangs[object.GetName()] = object
}

type id struct{ kind, name string }

func idOf(object *unstructured.Unstructured) id { return id{object.GetKind(), object.GetName()} }

// IsOurs reports whether an object belongs to the JobSet.
func (s *State) IsOurs(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == s.GangSet.UID
}

// Unobserved returns the objects that must exist and that were not observed, in the order of creation.
func (s *State) Unobserved() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for stage := range s.wanted {
		all = append(all, s.Missing(stage)...)
	}
	return all
}

// Missing returns the objects that must be created before the Jobs of a stage start.
func (s *State) Missing(stage int) []*unstructured.Unstructured {
	var missing []*unstructured.Unstructured
	for _, object := range s.wantedIn(stage) {
		if s.existing[idOf(object)] == nil {
			missing = append(missing, object)
		}
	}
	return missing
}

// ToRecreate returns the objects of a stage that have drifted and must be deleted before they can be recreated, because their specs are
// immutable. It includes terminating objects.
func (s *State) ToRecreate(stage int) []*unstructured.Unstructured {
	var toRecreate []*unstructured.Unstructured
	s.compare(s.wantedIn(stage), func(existing, _ *unstructured.Unstructured, same bool) {
		if existing.GetDeletionTimestamp() != nil || s.fixed[existing.GetKind()] && !same {
			toRecreate = append(toRecreate, existing)
		}
	})
	return toRecreate
}

// An Update is an object that has drifted, and its intended content. A patch must send nothing else of the object, because schedulers write
// status without a subresource.
type Update struct{ Existing, Wanted *unstructured.Unstructured }

// Patch returns the merge patch that fixes the object, if the object is still the same.
func (u Update) Patch() ([]byte, error) {
	metadata := map[string]any{"uid": string(u.Existing.GetUID())}
	if annotations := u.Wanted.GetAnnotations(); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	return json.Marshal(map[string]any{"metadata": metadata, "spec": u.Wanted.Object["spec"]})
}

// Drifted returns the objects of a stage that have drifted and can be changed while pods use them.
func (s *State) Drifted(stage int) []Update {
	var drifted []Update
	s.compare(s.wantedIn(stage), func(existing, wanted *unstructured.Unstructured, same bool) {
		if existing.GetDeletionTimestamp() == nil && !s.fixed[existing.GetKind()] && !same {
			drifted = append(drifted, Update{Existing: existing, Wanted: wanted})
		}
	})
	return drifted
}

// wantedIn returns the objects that must exist before the Jobs of a stage start.
func (s *State) wantedIn(stage int) []*unstructured.Unstructured {
	if s == nil {
		return nil
	}
	return s.wanted[stage]
}

// compare calls f for those of the objects that exist and belong to the JobSet.
func (s *State) compare(objects []*unstructured.Unstructured, f func(existing, wanted *unstructured.Unstructured, same bool)) {
	for _, wanted := range objects {
		if existing := s.existing[idOf(wanted)]; existing != nil && s.IsOurs(existing) {
			f(existing, wanted, contains(existing.Object["spec"], wanted.Object["spec"]) && hasAnnotations(existing, wanted))
		}
	}
}

func hasAnnotations(existing, wanted *unstructured.Unstructured) bool {
	has := existing.GetAnnotations()
	for key, value := range wanted.GetAnnotations() {
		if has[key] != value {
			return false
		}
	}
	return true
}

// Stale returns the objects that earlier attempts have left.
func (s *State) Stale() []*unstructured.Unstructured {
	if s == nil {
		return nil
	}
	needed := map[id]bool{}
	for _, object := range slices.Concat(s.wanted...) {
		needed[idOf(object)] = true
	}
	var stale []*unstructured.Unstructured
	for _, key := range slices.SortedFunc(maps.Keys(s.existing), func(a, b id) int { return strings.Compare(a.kind+"/"+a.name, b.kind+"/"+b.name) }) {
		if !needed[key] {
			stale = append(stale, s.existing[key])
		}
	}
	return stale
}

// NotOurs describes the objects of others under names that the JobSet needs, and the gangs of users that its pod templates name, or is empty.
func (s *State) NotOurs() string {
	var notOurs []string
	for _, userGang := range s.GangSet.UserGangs {
		notOurs = append(notOurs, fmt.Sprintf("ReplicatedJob %q is in the user-created gang %q", userGang.ReplicatedJob, userGang.Name))
	}
	for _, object := range slices.Concat(s.wanted...) {
		if existing := s.existing[idOf(object)]; existing != nil && !s.IsOurs(existing) {
			notOurs = append(notOurs, fmt.Sprintf("%s %q was not created by Tranche, and stays unchanged", object.GetKind(), object.GetName()))
		}
	}
	slices.Sort(notOurs)
	return strings.Join(slices.Compact(notOurs), "; ")
}

// Gangs returns how many gangs the JobSet has.
func (s *State) Gangs() int32 {
	var gangs int32
	for i := range s.GangSet.PodGroupTemplates {
		gangs += s.GangSet.PodGroupTemplates[i].Gangs()
	}
	return gangs
}

// PodFields returns the fields that put the pods of a Job into their gang.
func (s *State) PodFields(replicatedJob string, job int32) PodFields {
	return s.GangSet.PodFields(s.provider, replicatedJob, job)
}

// Lacks returns the name of a missing field of a pod template that puts its pods into their gang and can be set only when the Job is
// created, or "".
func (s *State) Lacks(replicatedJob string, job int32, template *corev1.PodTemplateSpec) string {
	fields := s.PodFields(replicatedJob, job)
	switch {
	case fields.SchedulingGroup != nil && s.provider.UserGangName(template) == "":
		return "spec.schedulingGroup"
	case fields.SchedulerName != "" && template.Spec.SchedulerName != fields.SchedulerName:
		return fmt.Sprintf("spec.schedulerName %q", fields.SchedulerName)
	default:
		return ""
	}
}

// contains reports whether an existing object contains everything that is wanted. The API server adds defaults, and nulls for fields that are
// not set.
func contains(existing, wanted any) bool {
	switch wanted := wanted.(type) {
	case map[string]any:
		existing, ok := existing.(map[string]any)
		for key, value := range wanted {
			if !ok || !contains(existing[key], value) {
				return false
			}
		}
		return ok
	case []any:
		existing, ok := existing.([]any)
		return ok && slices.EqualFunc(existing, wanted, contains)
	default:
		return existing == wanted
	}
}
