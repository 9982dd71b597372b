package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	yamlnode "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// suffixLength is the length of what the API server appends to metadata.generateName.
const suffixLength = 5

// An Object is an API object as it is written in a file.
type Object struct {
	File string
	GVK  schema.GroupVersionKind
	// Namespace and Name are those of its metadata. A name that the API server would generate is generated.
	Namespace, Name string
	// JSON is the object. An item of a typed list may lack its kind.
	JSON []byte

	document *document
	// steps lead from the root of the document to the object.
	steps []string
}

// String returns the kind, the namespace and the name of the object.
func (o *Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return strings.TrimSpace(o.GVK.Kind + " " + name)
}

// generateName gives the object a name with a prefix, as the API server does when it creates the object. The suffix depends on where the object is written.
func (o *Object) generateName(prefix string) error {
	place := fnv.New32a()
	_, _ = fmt.Fprint(place, o.At(), o.steps)
	o.Name = prefix + fmt.Sprintf("%08x", place.Sum32())[:suffixLength]
	name, err := json.Marshal(o.Name)
	if err == nil {
		o.JSON, err = jsonpatch.MergePatch(o.JSON, fmt.Appendf(nil, `{"metadata":{"name":%s}}`, name))
	}
	if err != nil {
		return fmt.Errorf("name %s: %w", o, err)
	}
	return nil
}

// Content returns the object with its kind, as decoded JSON. Whole numbers are int64.
func (o *Object) Content() (map[string]any, error) {
	content := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.JSON, &content); err != nil {
		return nil, fmt.Errorf("decode %s: %w", o, err)
	}
	content["apiVersion"], content["kind"] = o.GVK.GroupVersion().String(), o.GVK.Kind
	return content, nil
}

// Decode decodes the object. It returns the paths of fields that the Go type does not have.
func (o *Object) Decode(into any) (unknown []string, err error) {
	problems, err := kjson.UnmarshalStrict(o.JSON, into)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", o, typeError(err))
	}
	for _, problem := range problems {
		if field, isField := errors.AsType[kjson.FieldError](problem); isField {
			unknown = append(unknown, field.FieldPath())
		}
	}
	return unknown, nil
}

// DecodeStrict decodes the object. A field that the Go type does not have, and one that is written twice, is an error.
func (o *Object) DecodeStrict(into any) error {
	unknown, err := o.Decode(into)
	switch twice := o.Duplicates(); {
	case err != nil:
		return err
	case len(twice) > 0:
		return fmt.Errorf("%s: the field %q is given twice: remove one of the two", o, twice[0].Field)
	case len(unknown) > 0:
		return fmt.Errorf("%s: there is no field %q: correct it, or remove it", o, unknown[0])
	}
	return nil
}

// typeError names the field of a value of the wrong type.
func typeError(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%s is a %s, must be a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	return err
}

// Node returns the root of the object in the YAML of its file, with the lines of the file. It is nil if the YAML parser cannot read the document.
func (o *Object) Node() *yamlnode.Node {
	node := o.document.node()
	for _, step := range o.steps {
		_, node = Child(node, step)
	}
	return node
}

// Line returns a line of the file, with its end. It is empty for a line beyond the document of the object.
func (o *Object) Line(number int) string {
	at := o.document.firstLine
	for line := range bytes.Lines(o.document.text) {
		if at++; at == number {
			return string(line)
		}
	}
	return ""
}

// Place returns the line and the column of a field, such as spec.flavors[0].name, or of the deepest field above it that the object has. Keys of maps
// are in brackets if they have dots.
func (o *Object) Place(field string) (line, column int) {
	at := o.Node()
	if at == nil {
		return o.document.beginning(), 1
	}
	node := at
	for _, step := range Steps(field) {
		key, value := Child(node, step)
		if value == nil {
			break
		}
		at, node = key, value
	}
	return at.Line, at.Column
}

// At returns the file and the line of the object.
func (o *Object) At() string {
	line, _ := o.Place("")
	return fmt.Sprintf("%s:%d", o.File, line)
}

// A Duplicate is a key that is written again in the same object.
type Duplicate struct {
	Field        string
	Line, Column int
}

// Duplicates returns the keys that are written more than once, in the order of the file.
func (o *Object) Duplicates() []Duplicate { return duplicates(o.Node(), "") }

func duplicates(node *yamlnode.Node, path string) []Duplicate {
	var all []Duplicate
	if node == nil {
		return nil
	}
	if node.Kind == yamlnode.SequenceNode {
		for i, child := range node.Content {
			all = append(all, duplicates(child, path+"["+strconv.Itoa(i)+"]")...)
		}
	}
	if node.Kind != yamlnode.MappingNode {
		return all
	}
	isWritten := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		field := join(path, key.Value)
		if isWritten[key.Value] {
			all = append(all, Duplicate{field, key.Line, key.Column})
		}
		isWritten[key.Value] = true
		all = append(all, duplicates(node.Content[i+1], field)...)
	}
	return all
}

func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, ".[]"):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// Steps returns the names and indexes of a path.
func Steps(field string) []string {
	var steps []string
	for field != "" {
		switch field[0] {
		case '.':
			field = field[1:]
		case '[':
			step, rest, _ := strings.Cut(field[1:], "]")
			steps, field = append(steps, strings.Trim(step, `"'`)), rest
		default:
			end := strings.IndexAny(field, ".[")
			if end < 0 {
				end = len(field)
			}
			steps, field = append(steps, field[:end]), field[end:]
		}
	}
	return steps
}

// Child returns the node that names a child of a node, and the child. Both are nil if it does not exist. Of a key that is written twice, the last
// one counts.
func Child(node *yamlnode.Node, step string) (key, value *yamlnode.Node) {
	node = resolve(node)
	if node == nil {
		return nil, nil
	}
	if node.Kind == yamlnode.SequenceNode {
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], resolve(node.Content[i])
		}
	}
	if node.Kind == yamlnode.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				key, value = node.Content[i], resolve(node.Content[i+1])
			}
		}
	}
	return key, value
}

// resolve returns the node that an alias stands for.
func resolve(node *yamlnode.Node) *yamlnode.Node {
	for node != nil && node.Kind == yamlnode.AliasNode {
		node = node.Alias
	}
	return node
}
