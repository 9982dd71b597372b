package jobset

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uidPatch is a merge patch that names the UID of the object it was made for. The API server refuses it if another object has
// taken the name, such as the Job of a later restart attempt, and, where resourceVersion is not empty, if it has changed since.
type uidPatch struct {
	client.Patch
	before          client.Object
	resourceVersion string
}

// Data renders the patch.
func (p uidPatch) Data(after client.Object) ([]byte, error) {
	data, err := p.Patch.Data(after)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("read merge patch of %s: %w", client.ObjectKeyFromObject(p.before), err)
	}
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		fields["metadata"] = metadata
	}
	metadata["uid"] = string(p.before.GetUID())
	if p.resourceVersion != "" {
		metadata["resourceVersion"] = p.resourceVersion
	}
	return json.Marshal(fields)
}
