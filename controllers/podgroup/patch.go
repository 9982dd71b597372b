package podgroup

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uidPatch is a merge patch that names the UID of the object it was made for, so that none is written to that has taken its name. Where
// resourceVersion is not empty it is refused, too, if the object has changed since.
type uidPatch struct {
	client.Patch
	before          client.Object
	resourceVersion string
}

func patchOf(before client.Object) client.Patch {
	return uidPatch{Patch: client.MergeFrom(before), before: before}
}

func lockedPatchOf(before client.Object) client.Patch {
	return uidPatch{client.MergeFrom(before), before, before.GetResourceVersion()}
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
