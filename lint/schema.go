package lint

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apiservervalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/config/crd"
	"github.com/tranche-dev/tranche/manifest"
)

// A customSchema validates objects of a CRD as the API server does.
type customSchema struct {
	structural *structuralschema.Structural
	validator  apiservervalidation.SchemaValidator
	rules      *cel.Validator
}

func newCustomSchema(k *kind) (*customSchema, error) {
	text, err := crd.Files.ReadFile(k.crd)
	if err != nil {
		return nil, err
	}
	var written apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &written); err != nil {
		return nil, fmt.Errorf("decode CRD %s: %w", k.crd, err)
	}
	i := slices.IndexFunc(written.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == k.gvk.Version })
	if i < 0 {
		return nil, fmt.Errorf("CRD %s has no version %s", k.crd, k.gvk.Version)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(written.Spec.Versions[i].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		return nil, fmt.Errorf("convert CRD %s: %w", k.crd, err)
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		return nil, fmt.Errorf("read the schema of CRD %s: %w", k.crd, err)
	}
	validator, _, err := apiservervalidation.NewSchemaValidator(&props)
	if err != nil {
		return nil, fmt.Errorf("read the schema of CRD %s: %w", k.crd, err)
	}
	return &customSchema{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

// validate checks an object, and gives it its defaults.
func (s *customSchema) validate(f *findings, o *source) {
	object := runtime.DeepCopyJSON(o.content)
	err, unknown := objectmeta.CoerceWithOptions(nil, object, s.structural, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		f.add(o, problemOf(err))
		return
	}
	unknown = append(unknown, pruning.PruneWithOptions(object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
	for _, path := range unknown {
		f.add(o, unknownField(path, siblingsOf(s.structural, path)))
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.structural)
	defaulting.Default(object, s.structural)
	for _, err := range s.errorsOf(object, o) {
		f.add(o, problemOf(err))
	}
	o.content = object
}

// errorsOf returns the errors of an object. CEL rules run only on objects that have the right types, as on the API server.
func (s *customSchema) errorsOf(object map[string]any, o *source) field.ErrorList {
	errs := metadataErrors(o)
	errs = append(errs, objectmeta.Validate(nil, object, s.structural, false)...)
	errs = append(errs, apiservervalidation.ValidateCustomResource(nil, object, s.validator)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s.structural, object)...)
	if len(errs) == 0 && s.rules != nil {
		errs, _ = s.rules.Validate(context.Background(), nil, s.structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	return errs
}

// metadataErrors returns the errors of the metadata of an object.
func metadataErrors(o *source) field.ErrorList {
	object := (&unstructured.Unstructured{Object: o.content}).DeepCopy()
	object.SetNamespace(o.namespace())
	object.SetFinalizers(nil) // their names are checked when they are removed
	return apivalidation.ValidateObjectMetaAccessor(object, o.kind.isNamespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
}

func unknownField(path string, siblings []string) problem {
	steps := manifest.Steps(path)
	name := steps[len(steps)-1]
	p := problem{rule: ruleUnknownField(), field: path, message: fmt.Sprintf("there is no field %q here", name), cure: "remove the field"}
	if other := nearest(name, siblings); other != "" {
		p.cure = fmt.Sprintf("write %s, or remove the field", other)
	}
	return p
}

// siblingsOf returns the fields that the schema has where a path ends.
func siblingsOf(s *structuralschema.Structural, path string) []string {
	steps := manifest.Steps(path)
	for _, step := range steps[:len(steps)-1] {
		property, isProperty := s.Properties[step]
		switch {
		case isProperty:
			s = &property
		case s.Items != nil:
			s = s.Items
		case s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil:
			s = s.AdditionalProperties.Structural
		default:
			return nil
		}
	}
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// nearest returns the name that differs least from another one, or "" if all differ much.
func nearest(name string, names []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, other := range names {
		d := distance(strings.ToLower(name), strings.ToLower(other))
		if strings.HasPrefix(strings.ToLower(other), strings.ToLower(name)) && len(name) >= 4 {
			d = 1
		}
		if d < least {
			best, least = other, d
		}
	}
	return best
}

// distance returns the edit distance of Levenshtein.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// problemOf converts an error of the API server.
func problemOf(err *field.Error) problem {
	p := problem{rule: ruleSchema(), field: strings.TrimPrefix(err.Field, "."), message: err.ErrorBody(), cure: "correct the value"}
	if p.field == "<nil>" {
		p.field = ""
	}
	if cure, isKnown := cures()[err.Type]; isKnown {
		p.cure = cure
	}
	return p
}

// cures returns what to do about errors of a type.
func cures() map[field.ErrorType]string {
	return map[field.ErrorType]string{
		field.ErrorTypeRequired: "add the field", field.ErrorTypeDuplicate: "remove one of the two", field.ErrorTypeNotSupported: "write one of the supported values",
		field.ErrorTypeForbidden: "remove the field", field.ErrorTypeTooLong: "shorten it", field.ErrorTypeTooMany: "shorten it",
	}
}

// validateBuiltIn checks an object of a kind of Kubernetes: its fields and their types, and its metadata.
func validateBuiltIn(f *findings, o *source) {
	unknown, err := o.Decode(o.kind.new())
	if err != nil {
		f.add(o, problem{rule: ruleSchema(), message: err.Error(), cure: "correct the value"})
		return
	}
	for _, path := range unknown {
		f.add(o, unknownField(path, nil))
	}
	for _, err := range metadataErrors(o) {
		f.add(o, problemOf(err))
	}
}
