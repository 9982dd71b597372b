package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// An Error is a part of a file that has no readable object.
type Error struct {
	File string
	// Line and Column count from 1.
	Line, Column int
	// Problem says what is wrong and what to do.
	Problem string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Problem) }

// Files returns the names of all files in a directory and its subdirectories that have the extension of YAML or JSON. It leaves out directories whose name
// begins with two dots: the files of a mounted ConfigMap are symbolic links into one of these.
func Files(files fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), "..") {
			return fs.SkipDir
		}
		isFile := err == nil && (entry.Type().IsRegular() || entry.Type()&fs.ModeSymlink != 0)
		if isFile && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// Read returns the objects of a file, those of lists included, in the order of the file. Documents that are not readable do not hide others.
func Read(file string, content []byte) ([]*Object, []*Error) {
	var objects []*Object
	var errs []*Error
	for _, d := range split(file, content) {
		read, err := d.objects()
		objects = append(objects, read...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return objects, errs
}

// split splits a file at lines of three dashes.
func split(file string, content []byte) []*document {
	var all []*document
	start, offset, line, firstLine := 0, 0, 0, 0
	add := func() { all = append(all, &document{file: file, text: content[start:offset], firstLine: firstLine}) }
	for text := range bytes.Lines(content) {
		line++
		if rest, isSeparator := bytes.CutPrefix(text, []byte("---")); isSeparator && isBlank(rest) {
			add()
			start, firstLine = offset+len(text), line
		}
		offset += len(text)
	}
	add()
	return all
}

// isBlank reports whether a line has nothing but a comment.
func isBlank(line []byte) bool {
	text := bytes.TrimSpace(line)
	return len(text) == 0 || text[0] == '#'
}

// objects returns the objects of a document. Those before an error are readable.
func (d *document) objects() ([]*Object, *Error) {
	if isJSON(d.text) {
		return d.jsonObjects()
	}
	if d.hidesOthers() {
		return nil, d.errorAt(d.beginning(), errors.New("another document may follow in the same text: write UTF-8, and a line of three dashes between documents"))
	}
	raw, err := yaml.YAMLToJSON(d.text)
	if err != nil {
		return nil, d.syntaxError(err)
	}
	if string(raw) == "null" {
		return nil, nil
	}
	return d.read(raw, nil, metav1.TypeMeta{})
}

// hidesOthers reports whether a text may have several documents that are not separated by a line of three dashes, of which the parser would read only the
// first one: in UTF-16 no line is such a line, and YAML also ends a document with three dots and begins one on the line of the dashes.
func (d *document) hidesOthers() bool {
	if bytes.IndexByte(d.text, 0) >= 0 {
		return true
	}
	for i, line := range bytes.Split(d.text, []byte("\n")) {
		rest, ends := bytes.CutPrefix(line, []byte("..."))
		if ends && isBlank(rest) && len(bytes.TrimSpace(bytes.Join(bytes.Split(d.text, []byte("\n"))[i+1:], nil))) > 0 {
			return true
		}
		if _, begins := bytes.CutPrefix(line, []byte("--- ")); begins && i > 0 {
			return true
		}
	}
	return false
}

// isJSON reports whether a document begins with a JSON object. A brace may also begin YAML.
func isJSON(text []byte) bool {
	rest, hasBrace := bytes.CutPrefix(bytes.TrimSpace(text), []byte("{"))
	return hasBrace && bytes.HasPrefix(bytes.TrimSpace(rest), []byte(`"`))
}

// jsonObjects reads JSON objects that follow each other.
func (d *document) jsonObjects() ([]*Object, *Error) {
	var objects []*Object
	decoder := json.NewDecoder(bytes.NewReader(d.text))
	start := 0
	for {
		part := &document{file: d.file, text: d.text[start:], firstLine: d.firstLine + bytes.Count(d.text[:start], []byte("\n"))}
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return objects, part.jsonError(err, start)
		}
		part.text = d.text[start:decoder.InputOffset()]
		start = int(decoder.InputOffset())
		read, problem := part.read(raw, nil, metav1.TypeMeta{})
		objects = append(objects, read...)
		if problem != nil {
			return objects, problem
		}
	}
}

// A header has the fields that identify objects and lists.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name         string `json:"name"`
		GenerateName string `json:"generateName"`
		Namespace    string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// read returns an object, or the items of a list. A typed list determines the kind of items that do not repeat it.
func (d *document) read(raw []byte, steps []string, typed metav1.TypeMeta) ([]*Object, *Error) {
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, d.headerError(err, steps)
	}
	if h.Kind == "" && h.APIVersion == "" {
		h.TypeMeta = typed
	}
	if h.Kind == "" && isKustomization(d.file) {
		h.TypeMeta = metav1.TypeMeta{APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization"}
	}
	if h.Kind == "" || h.APIVersion == "" {
		return nil, d.errorAt(d.lineOf(steps), errors.New("the object has no kind: write apiVersion and kind"))
	}
	itemKind, isList := strings.CutSuffix(h.Kind, "List")
	if !isList {
		o := &Object{
			File: d.file, GVK: schema.FromAPIVersionAndKind(h.APIVersion, h.Kind), Namespace: h.Metadata.Namespace,
			Name: h.Metadata.Name, JSON: raw, document: d, steps: steps,
		}
		if o.Name == "" && h.Metadata.GenerateName != "" {
			if err := o.generateName(h.Metadata.GenerateName); err != nil {
				return nil, d.errorAt(d.lineOf(steps), err)
			}
		}
		return []*Object{o}, nil
	}
	typed = metav1.TypeMeta{}
	if itemKind != "" {
		typed = metav1.TypeMeta{APIVersion: h.APIVersion, Kind: itemKind}
	}
	var all []*Object
	for i, item := range h.Items {
		read, err := d.read(item, append(slices.Clone(steps), "items", strconv.Itoa(i)), typed)
		if err != nil {
			return all, err
		}
		all = append(all, read...)
	}
	return all, nil
}

// isKustomization reports whether a file is one that kustomize reads without a kind.
func isKustomization(file string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml"}, path.Base(file))
}
