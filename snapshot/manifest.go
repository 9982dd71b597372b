package snapshot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// This file reads objects as kubectl prints them and users write them: YAML documents, JSON objects, and lists of objects.

// ConfigKey is the key of a ConfigMap whose value is the configuration of the manager.
const ConfigKey = "config.yaml"

// manifests reads manifests.
type manifests struct {
	decoder  *decoder
	snapshot Snapshot
	// configuration is the place of the configuration.
	configuration string
}

// readManifests reads all files of a directory that have the extension of YAML or JSON.
func readManifests(files fs.FS) (*Snapshot, error) {
	m := &manifests{decoder: newDecoder()}
	found := false
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return err
		}
		found = true
		return visitFile(files, name, m.read)
	})
	if err == nil && !found {
		err = fmt.Errorf("there is neither %s nor a file with the extension .yaml, .yml or .json: name the directory of a snapshot or of manifests", metadataFile)
	}
	return m.finish(err)
}

func readManifestStream(name string, r io.Reader) (*Snapshot, error) {
	m := &manifests{decoder: newDecoder()}
	err := m.read(name, r)
	if err == nil && len(m.decoder.batches) == 0 && len(m.snapshot.Skipped) == 0 && m.configuration == "" {
		err = fmt.Errorf("%s has no objects: give the archive of a snapshot, or objects in YAML or JSON", name)
	}
	return m.finish(err)
}

func (m *manifests) finish(err error) (*Snapshot, error) {
	if err != nil {
		m.decoder.stop()
		return nil, err
	}
	if err := m.decoder.finish(&m.snapshot); err != nil {
		return nil, err
	}
	return &m.snapshot, nil
}

func (m *manifests) read(file string, r io.Reader) error {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if isJSON(buffered) {
		return m.readJSON(file, buffered)
	}
	documents := k8syaml.NewYAMLReader(buffered)
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			document, err = yaml.YAMLToJSON(document)
		}
		if err == nil && string(document) != "null" {
			err = m.readObject(file, "document", number, document)
		}
		if err != nil {
			return fmt.Errorf("%s document %d: %w", file, number, err)
		}
	}
}

// isJSON reports whether a file begins with a JSON object. A brace may also begin a YAML document.
func isJSON(r *bufio.Reader) bool {
	beginning, _ := r.Peek(512) // an error is reported when the file is read
	text, hasBrace := bytes.CutPrefix(bytes.TrimSpace(beginning), []byte("{"))
	return hasBrace && bytes.HasPrefix(bytes.TrimSpace(text), []byte(`"`))
}

// readJSON reads JSON objects that follow each other.
func (m *manifests) readJSON(file string, r io.Reader) error {
	objects := json.NewDecoder(r)
	for number := 1; ; number++ {
		var raw json.RawMessage
		err := objects.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.readObject(file, "object", number, raw)
		}
		if err != nil {
			return fmt.Errorf("%s object %d: %w", file, number, err)
		}
	}
}

// A header is what objects and lists have in common.
type header struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (h *header) name() string {
	return nameOf(&metav1.ObjectMeta{Name: h.Metadata.Name, Namespace: h.Metadata.Namespace})
}

func (m *manifests) readObject(file, unit string, number int, raw []byte) error {
	var h header
	if err := json.Unmarshal(raw, &h); err != nil {
		return fmt.Errorf("decode an object: %w", err)
	}
	itemKind, isList := strings.CutSuffix(h.Kind, "List")
	if h.Kind == "" {
		return errors.New("the object has no kind: write apiVersion and kind")
	}
	if !isList {
		return m.readItem(place{file, unit, number}, &h, raw)
	}
	for i, item := range h.Items {
		var ih header
		if err := json.Unmarshal(item, &ih); err != nil {
			return fmt.Errorf("decode item %d: %w", i+1, err)
		}
		if ih.Kind == "" && itemKind != "" {
			// The items of a typed list do not repeat its kind.
			ih.TypeMeta = metav1.TypeMeta{APIVersion: h.APIVersion, Kind: itemKind}
		}
		if err := m.readItem(place{file, "item", i + 1}, &ih, item); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

// readItem decodes one object later, together with others of its kind.
func (m *manifests) readItem(at place, h *header, raw []byte) error {
	gvk := schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	switch gvk {
	case schema.FromAPIVersionAndKind(configapi.APIVersion, configapi.Kind):
		return m.configure(at.String(), raw)
	case corev1.SchemeGroupVersion.WithKind("ConfigMap"):
		return m.readConfigMap(at.file, h, raw)
	}
	for _, kind := range Kinds() {
		if kind.GVK == gvk {
			m.decoder.add(&batch{kind: kind, place: at, raw: [][]byte{raw}})
			return nil
		}
		if kind.GVK.GroupKind() == gvk.GroupKind() {
			return fmt.Errorf("%s %s has apiVersion %s: write it in %s", h.Kind, h.name(), h.APIVersion, kind.GVK.GroupVersion())
		}
	}
	if gvk.Group == jobset.GroupVersion.Group || gvk.GroupVersion() == kueue.SchemeGroupVersion && !slices.Contains(otherKinds(), h.Kind) {
		return fmt.Errorf("%s %s: there is no kind %s in %s: correct it", h.Kind, h.name(), h.Kind, h.APIVersion)
	}
	m.snapshot.Skipped = append(m.snapshot.Skipped, fmt.Sprintf("%s %s (%s)", h.Kind, h.name(), at.file))
	return nil
}

// otherKinds are the kinds of Kueue that do not decide admission.
func otherKinds() []string {
	return []string{"Topology", "MultiKueueCluster", "MultiKueueConfig", "ProvisioningRequestConfig"}
}

// readConfigMap reads the configuration of the manager from its ConfigMap. Other ConfigMaps are skipped.
func (m *manifests) readConfigMap(file string, h *header, raw []byte) error {
	var object corev1.ConfigMap
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("decode ConfigMap %s: %w", h.name(), err)
	}
	text := object.Data[ConfigKey]
	if !isConfiguration(text) {
		m.snapshot.Skipped = append(m.snapshot.Skipped, fmt.Sprintf("ConfigMap %s (%s)", h.name(), file))
		return nil
	}
	return m.configure(fmt.Sprintf("ConfigMap %s in %s", h.name(), file), []byte(text))
}

func isConfiguration(text string) bool {
	var content metav1.TypeMeta
	err := yaml.Unmarshal([]byte(text), &content)
	return err == nil && content.APIVersion == configapi.APIVersion
}

func (m *manifests) configure(place string, content []byte) error {
	if m.configuration != "" {
		return fmt.Errorf("the configuration of the manager is given twice, in %s and in %s: remove one of them", m.configuration, place)
	}
	config, err := configapi.Decode(content)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	m.snapshot.Configuration, m.configuration = config, place
	return nil
}
