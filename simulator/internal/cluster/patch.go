package cluster

import (
	"encoding/json"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
)

// Patched returns the current version of an object with the changes from one version to another, as the API server applies a merge patch.
func Patched[T any](before, after, now *T) (*T, error) {
	var all [3][]byte
	for i, version := range []*T{before, after, now} {
		var err error
		if all[i], err = json.Marshal(version); err != nil {
			return nil, fmt.Errorf("render a %T to patch: %w", now, err)
		}
	}
	patch, err := jsonpatch.CreateMergePatch(all[0], all[1])
	if err != nil {
		return nil, fmt.Errorf("compute the patch of a %T: %w", now, err)
	}
	merged, err := jsonpatch.MergePatch(all[2], patch)
	if err != nil {
		return nil, fmt.Errorf("patch a %T: %w", now, err)
	}
	patched := new(T)
	if err := json.Unmarshal(merged, patched); err != nil {
		return nil, fmt.Errorf("read a patched %T: %w", now, err)
	}
	return patched, nil
}
