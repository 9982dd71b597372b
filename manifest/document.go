package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
)

// A document is a part of a file that has one object or one list.
type document struct {
	file string
	text []byte
	// firstLine is the number of lines before the document.
	firstLine int

	isParsed bool
	root     *yamlnode.Node
}

// node returns the root of the document with the lines of the file. It is nil if the YAML parser cannot read the document.
func (d *document) node() *yamlnode.Node {
	if d.isParsed {
		return d.root
	}
	d.isParsed = true
	var parsed yamlnode.Node
	if err := yamlnode.Unmarshal(d.text, &parsed); err == nil && len(parsed.Content) == 1 {
		d.root = parsed.Content[0]
		d.shift(d.root)
	}
	return d.root
}

// shift turns the lines of a node and of its children into lines of the file.
func (d *document) shift(node *yamlnode.Node) {
	node.Line += d.firstLine
	for _, child := range node.Content {
		d.shift(child)
	}
}

// beginning returns the first line that has more than a comment.
func (d *document) beginning() int {
	line := d.firstLine + 1
	for text := range bytes.Lines(d.text) {
		if !isBlank(text) {
			return line
		}
		line++
	}
	return d.firstLine + 1
}

// lineOf returns the line of a part of the document.
func (d *document) lineOf(steps []string) int {
	node := d.node()
	for _, step := range steps {
		_, node = Child(node, step)
	}
	if node == nil {
		return d.beginning()
	}
	return node.Line
}

func (d *document) errorAt(line int, err error) *Error {
	return &Error{File: d.file, Line: line, Column: 1, Problem: err.Error()}
}

// headerError returns the error of an object whose kind or name is not a text.
func (d *document) headerError(err error, steps []string) *Error {
	wrong, isTyped := errors.AsType[*json.UnmarshalTypeError](err)
	if !isTyped || wrong.Field == "" {
		return d.errorAt(d.lineOf(steps), errors.New("the document is no API object: write apiVersion, kind and metadata"))
	}
	err = fmt.Errorf("%w: correct it; quotes turn it into a text", typeError(err))
	return d.errorAt(d.lineOf(append(slices.Clone(steps), strings.Split(wrong.Field, ".")...)), err)
}

// syntaxError returns the error of a document that is no YAML. The parser of nodes names more lines than the one that returned the error.
func (d *document) syntaxError(err error) *Error {
	var node yamlnode.Node
	if other := yamlnode.Unmarshal(d.text, &node); other != nil {
		err = other
	}
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), "yaml: ")
	if strings.HasPrefix(text, "invalid map key") {
		text = "a key is a map, as in a template that is not rendered"
	}
	line := d.beginning()
	if found := regexp.MustCompile(`^(?:unmarshal errors:\s+)?line (\d+): `).FindStringSubmatch(text); found != nil {
		n, _ := strconv.Atoi(found[1])
		line, text = d.firstLine+n, strings.TrimPrefix(text, found[0])
	}
	return d.errorAt(line, fmt.Errorf("the document is no YAML: %s; correct its syntax", text))
}

// jsonError returns the error of text that is no JSON. The document begins at an offset of the text that the decoder read.
func (d *document) jsonError(err error, start int) *Error {
	end := len(bytes.TrimRight(d.text, "\n"))
	if syntax, isSyntax := errors.AsType[*json.SyntaxError](err); isSyntax {
		end = min(end, max(0, int(syntax.Offset)-1-start))
	}
	return d.errorAt(d.firstLine+1+bytes.Count(d.text[:end], []byte("\n")), fmt.Errorf("the document is no JSON: %w; correct its syntax", err))
}
