package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Patched returns the current version of an object with the changes from one version to another, as the API server applies a merge patch.
func Patched[T any](before, after, now *T) (*T, error) {
	var all [3]map[string]any
	for i, version := range []*T{before, after, now} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(version)
		if err != nil {
			return nil, fmt.Errorf("render a %T to patch: %w", now, err)
		}
		all[i] = fields
	}
	patchFields(all[0], all[1], all[2])
	patched := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(all[2], patched); err != nil {
		return nil, fmt.Errorf("read a patched %T: %w", now, err)
	}
	return patched, nil
}

// patchFields changes the fields of now in which before and after differ. Lists are replaced as a whole.
func patchFields(before, after, now map[string]any) {
	for name := range before {
		if _, isKept := after[name]; !isKept {
			delete(now, name)
		}
	}
	for name, value := range after {
		if equality.Semantic.DeepEqual(before[name], value) {
			continue
		}
		inBefore, wasMap := before[name].(map[string]any)
		inAfter, isMap := value.(map[string]any)
		inNow, hasMap := now[name].(map[string]any)
		if isMap && hasMap && wasMap {
			patchFields(inBefore, inAfter, inNow)
		} else {
			now[name] = value
		}
	}
}
