package main

import (
	_ "embed"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed jobset.yaml
var jobSetOverlay []byte

// overlayJobSet lays the schema in jobset.yaml over that of the JobSet CRD.
func overlayJobSet(crd *apiextensionsv1.CustomResourceDefinition) error {
	overlay := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict(jobSetOverlay, overlay); err != nil {
		return fmt.Errorf("reading the overlay: %w", err)
	}
	return merge(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, overlay, "")
}

// merge adds the overlay's new properties and rules to the schema. It looks only at properties, items and rules of what the schema
// already has; a new property is taken whole. The path is for errors.
func merge(schema, overlay *apiextensionsv1.JSONSchemaProps, path string) error {
	schema.XValidations = append(schema.XValidations, overlay.XValidations...)
	if overlay.Items != nil {
		if schema.Items == nil || schema.Items.Schema == nil {
			return fmt.Errorf("the overlay expects a list at %q", path)
		}
		if err := merge(schema.Items.Schema, overlay.Items.Schema, path+"[*]"); err != nil {
			return err
		}
	}
	for name, addition := range overlay.Properties {
		existing, ok := schema.Properties[name]
		switch isNew := addition.Type != ""; {
		case isNew && ok:
			return fmt.Errorf("the upstream schema has a field %s.%s of its own now: take it out of the overlay", path, name)
		case !isNew && !ok:
			return fmt.Errorf("the upstream schema no longer has a field %s.%s", path, name)
		case !isNew:
			if err := merge(&existing, &addition, path+"."+name); err != nil {
				return err
			}
			schema.Properties[name] = existing
		default:
			schema.Properties[name] = addition
		}
	}
	return nil
}

// stripDescriptions takes the prose out of a schema, in place: it is most of the size of a CRD.
func stripDescriptions(schema *apiextensionsv1.JSONSchemaProps) {
	if schema == nil {
		return
	}
	schema.Description = ""
	if schema.Items != nil {
		stripDescriptions(schema.Items.Schema)
	}
	if schema.AdditionalProperties != nil {
		stripDescriptions(schema.AdditionalProperties.Schema)
	}
	for name, property := range schema.Properties {
		stripDescriptions(&property)
		schema.Properties[name] = property
	}
}
