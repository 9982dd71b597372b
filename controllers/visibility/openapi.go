package visibility

import (
	"maps"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"
)

// definitions returns the schemas of the served types. Those of metav1 come from a module that contains them; Kueue's own package of
// schemas would import Kueue's scheduler.
func definitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	all := maps.Clone(apiextensions.GetOpenAPIDefinitions(ref))
	meta, pending := metav1.ObjectMeta{}.OpenAPIModelName(), visibility.PendingWorkload{}.OpenAPIModelName()
	refTo := func(name string) spec.Schema { return spec.Schema{SchemaProps: spec.SchemaProps{Ref: ref(name)}} }
	item := refTo(pending)
	object := func(refs []string, properties map[string]spec.Schema, required ...string) common.OpenAPIDefinition {
		return common.OpenAPIDefinition{
			Schema:       spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}, Properties: properties, Required: required}},
			Dependencies: refs,
		}
	}
	all[pending] = object([]string{meta}, map[string]spec.Schema{
		"metadata":               refTo(meta),
		"priority":               *spec.Int32Property(),
		"localQueueName":         *spec.StringProperty(),
		"positionInClusterQueue": *spec.Int32Property(),
		"positionInLocalQueue":   *spec.Int32Property(),
	}, "priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue")
	all[visibility.PendingWorkloadsSummary{}.OpenAPIModelName()] = object([]string{meta, pending}, map[string]spec.Schema{
		"apiVersion": *spec.StringProperty(),
		"kind":       *spec.StringProperty(),
		"metadata":   refTo(meta),
		"items":      *spec.ArrayProperty(&item),
	}, "items")
	return all
}
