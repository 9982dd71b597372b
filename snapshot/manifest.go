package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/manifest"
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
	// isStrict is true if a field that is unknown, or given twice, is an error.
	isStrict bool
}

// readManifests reads all files of a directory that have the extension of YAML or JSON.
func readManifests(files fs.FS) (*Snapshot, error) {
	m := &manifests{decoder: newDecoder()}
	return m.finish(m.readDir(files))
}

func (m *manifests) readDir(files fs.FS) error {
	names, err := manifest.Files(files)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is neither %s nor a file with the extension .yaml, .yml or .json: name the directory of a snapshot or of manifests", metadataFile)
	}
	for _, name := range names {
		if err != nil {
			break
		}
		err = visitFile(files, name, m.read)
	}
	return err
}

func readManifestStream(name string, r io.Reader) (*Snapshot, error) {
	m := &manifests{decoder: newDecoder()}
	err := m.read(name, r)
	if err == nil && m.isEmpty() {
		err = fmt.Errorf("%s has no objects: give the archive of a snapshot, or objects in YAML or JSON", name)
	}
	return m.finish(err)
}

func (m *manifests) isEmpty() bool {
	return len(m.decoder.batches) == 0 && len(m.snapshot.Skipped)+len(m.snapshot.Creators) == 0 && m.configuration == ""
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
	content, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	objects, errs := manifest.Read(file, content)
	if len(errs) > 0 {
		return errs[0]
	}
	for _, object := range objects {
		if err := m.readObject(object); err != nil {
			return fmt.Errorf("%s: %w", object.At(), err)
		}
	}
	return nil
}

// readObject decodes one object later, together with others of its kind.
func (m *manifests) readObject(o *manifest.Object) error {
	switch o.GVK {
	case schema.FromAPIVersionAndKind(configapi.APIVersion, configapi.Kind):
		return m.configure(o.At(), o.JSON)
	case corev1.SchemeGroupVersion.WithKind("ConfigMap"):
		return m.readConfigMap(o)
	case schema.FromAPIVersionAndKind(APIVersion, metadataKind):
		return errors.New("the file describes a snapshot, and has no objects: name its directory with --snapshot")
	}
	for _, kind := range Kinds() {
		if kind.GVK == o.GVK {
			if m.isStrict {
				if err := o.DecodeStrict(kind.new()); err != nil {
					return err
				}
			}
			m.decoder.add(&batch{kind: kind, placeOf: func(int) string { return o.At() }, raw: [][]byte{o.JSON}})
			return nil
		}
		if kind.GVK.GroupKind() == o.GVK.GroupKind() {
			return fmt.Errorf("%s has apiVersion %s: write it in %s", o, o.GVK.GroupVersion(), kind.GVK.GroupVersion())
		}
	}
	if o.GVK.Group == jobset.GroupVersion.Group || o.GVK.Group == kueue.SchemeGroupVersion.Group && !slices.Contains(otherKinds(), o.GVK.Kind) {
		return fmt.Errorf("%s: there is no kind %s in %s: correct it", o, o.GVK.Kind, o.GVK.GroupVersion())
	}
	m.skip(o)
	return nil
}

func (m *manifests) skip(o *manifest.Object) {
	list := &m.snapshot.Skipped
	if isCreator(o.GVK) {
		list = &m.snapshot.Creators
	}
	*list = append(*list, fmt.Sprintf("%s (%s)", o, o.File))
}

// isCreator reports whether objects of a kind create Jobs or pods that may wait for quota.
func isCreator(gvk schema.GroupVersionKind) bool {
	switch gvk.GroupKind() {
	case batchv1.SchemeGroupVersion.WithKind("CronJob").GroupKind(), corev1.SchemeGroupVersion.WithKind("ReplicationController").GroupKind():
		return true
	}
	return gvk.Group == appsv1.GroupName && gvk.Kind != "ControllerRevision"
}

// otherKinds are the kinds of Kueue that do not decide admission.
func otherKinds() []string {
	return []string{"Topology", "MultiKueueCluster", "MultiKueueConfig", "ProvisioningRequestConfig"}
}

// readConfigMap reads the configuration of the manager from its ConfigMap. Other ConfigMaps are skipped.
func (m *manifests) readConfigMap(o *manifest.Object) error {
	var object corev1.ConfigMap
	if err := json.Unmarshal(o.JSON, &object); err != nil {
		return fmt.Errorf("decode %s: %w", o, err)
	}
	text := object.Data[ConfigKey]
	if !isConfiguration(text) {
		m.skip(o)
		return nil
	}
	return m.configure(fmt.Sprintf("%s in %s", o, o.File), []byte(text))
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
