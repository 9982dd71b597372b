package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// IfSameSpec returns a JSON patch that the API server rejects as invalid if another object has taken the name, or if the spec of the object has changed
// since it was read. Writes to its status do not matter. A map such as the annotations, which is not part of the spec, must still exist or still be
// missing. It is for changes of objects, not of elements of lists: a list is replaced.
func IfSameSpec(before client.Object) client.Patch { return sameSpec{before} }

type sameSpec struct{ before client.Object }

func (sameSpec) Type() types.PatchType { return types.JSONPatchType }

// An operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func (p sameSpec) Data(after client.Object) ([]byte, error) {
	data, err := client.MergeFrom(p.before).Data(after)
	if err != nil {
		return nil, err
	}
	current, err := json.Marshal(p.before)
	if err != nil {
		return nil, fmt.Errorf("render the object to patch: %w", err)
	}
	var change, old map[string]any
	if err := json.Unmarshal(data, &change); err != nil {
		return nil, fmt.Errorf("read the change of an object: %w", err)
	}
	if err := json.Unmarshal(current, &old); err != nil {
		return nil, fmt.Errorf("read the object to patch: %w", err)
	}
	operations := []operation{
		{"test", "/metadata/uid", p.before.GetUID()}, {"test", "/metadata/generation", p.before.GetGeneration()},
	}
	return json.Marshal(slices.Concat(operations, operationsOf("", old, change)))
}

// pathEscape escapes a key in a JSON pointer (RFC 6901).
var pathEscape = strings.NewReplacer("~", "~0", "/", "~1")

// operationsOf returns the operations of a merge patch of an object that has this value.
func operationsOf(path string, old, change map[string]any) []operation {
	var operations []operation
	for _, key := range slices.Sorted(maps.Keys(change)) {
		at := path + "/" + pathEscape.Replace(key)
		inner, isObject := change[key].(map[string]any)
		below, exists := old[key].(map[string]any)
		switch {
		case isObject && exists:
			operations = append(operations, operationsOf(at, below, inner)...)
		case isObject:
			operations = append(operations, operation{"test", at, nil}, operation{"add", at, inner})
		case change[key] == nil:
			operations = append(operations, operation{"remove", at, nil})
		default:
			operations = append(operations, operation{"add", at, change[key]})
		}
	}
	return operations
}
