package v1alpha1

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/util/validation/field"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	k8sjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load reads the configuration in the file at path, sets the defaults and validates the result. An empty path, and a file without
// content, give the defaults.
func Load(path string) (*Configuration, error) {
	var content []byte
	if path != "" {
		var err error
		if content, err = os.ReadFile(path); err != nil { // #nosec G304 -- the administrator names the file
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
	}
	c, err := Decode(content)
	if err != nil {
		return nil, fmt.Errorf("read the configuration %s: %w", path, err)
	}
	return c, nil
}

// Decode does what Load does, for the content of a file. It is strict: an unknown field and a repeated one are errors that name
// the field.
func Decode(content []byte) (*Configuration, error) {
	document, err := onlyDocument(content)
	if err != nil {
		return nil, err
	}
	c := &Configuration{}
	if document != nil {
		if err := decodeInto(document, c); err != nil {
			return nil, err
		}
	}
	c.SetDefaults()
	if err := c.Validate().ToAggregate(); err != nil {
		return nil, err
	}
	return c, nil
}

// decodeInto checks the kind first, so that a file for another program gets one error instead of one for each field.
func decodeInto(document []byte, c *Configuration) error {
	var header struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(document, &header); err != nil {
		return fmt.Errorf("decode apiVersion and kind: %w", err)
	}
	errs := append(oneOf(field.NewPath("apiVersion"), header.APIVersion, APIVersion),
		oneOf(field.NewPath("kind"), header.Kind, Kind)...)
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	strict, err := k8sjson.UnmarshalStrict(document, c)
	return errors.Join(append([]error{err}, strict...)...)
}

// onlyDocument returns the one YAML document in content as JSON, or nil if there are only comments. A second document is an error, because
// it would have no effect.
func onlyDocument(content []byte) ([]byte, error) {
	var found []byte
	reader := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("split YAML documents: %w", err)
		}
		converted, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("decode YAML: %w", err)
		}
		if string(converted) == "null" {
			continue
		}
		if found != nil {
			return nil, errors.New("the file has more than one YAML document; keep one")
		}
		found = converted
	}
}
