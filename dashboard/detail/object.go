package detail

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// An ObjectAnswer is an object as YAML, without managedFields.
type ObjectAnswer struct {
	YAML string `json:"yaml"`
}

// Object reads an object with all its fields, also those that the types of this program do not have. It decodes the object into one of them unless that is nil.
func Object(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, key types.NamespacedName, into any) (*ObjectAnswer, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := c.Get(ctx, key, object); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
	}
	object.SetManagedFields(nil)
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", kind.Kind, key, err)
	}
	if into != nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
			return nil, fmt.Errorf("decode %s %s: %w", kind.Kind, key, err)
		}
	}
	return &ObjectAnswer{YAML: string(text)}, nil
}
