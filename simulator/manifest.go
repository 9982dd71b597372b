package simulator

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// Manifests are objects that exist before a scenario begins.
type Manifests struct {
	// Skipped names the objects of other kinds, with their files.
	Skipped []string

	namespaces    []*corev1.Namespace
	flavors       []*kueue.ResourceFlavor
	checks        []*kueue.AdmissionCheck
	classes       []*kueue.WorkloadPriorityClass
	cohorts       []*kueue.Cohort
	clusterQueues []*kueue.ClusterQueue
	localQueues   []*kueue.LocalQueue
}

// Read adds the objects in all YAML files of a file system, subdirectories included. It is strict: an unknown field and one that is
// given twice are errors that name the file.
func (m *Manifests) Read(files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		if err := m.readFile(name, content); err != nil {
			return fmt.Errorf("read manifests: %s: %w", name, err)
		}
		return nil
	})
}

func (m *Manifests) readFile(name string, content []byte) error {
	reader := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.readDocument(name, document)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", number, err)
		}
	}
}

// readDocument decodes one object.
func (m *Manifests) readDocument(file string, document []byte) error {
	var header struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(document, &header); err != nil {
		return err
	}
	group, _, _ := strings.Cut(header.APIVersion, "/")
	switch {
	case header.Kind == "" && header.APIVersion == "":
		if len(bytes.TrimSpace(withoutComments(document))) > 0 {
			return errors.New("there is no kind")
		}
		return nil
	case group == kueue.SchemeGroupVersion.Group && header.APIVersion != kueue.SchemeGroupVersion.String():
		return fmt.Errorf("%s %s has apiVersion %s: write it in %s", header.Kind, header.Metadata.Name, header.APIVersion, kueue.SchemeGroupVersion)
	case group != kueue.SchemeGroupVersion.Group && (header.APIVersion != "v1" || header.Kind != "Namespace"):
		m.skip(file, header.Kind, header.Metadata.Name)
		return nil
	}
	return m.decode(file, header.Kind, header.Metadata.Name, document)
}

func withoutComments(document []byte) []byte {
	var kept [][]byte
	for line := range bytes.Lines(document) {
		if text := bytes.TrimSpace(line); !bytes.HasPrefix(text, []byte("#")) && !bytes.Equal(text, []byte("---")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, nil)
}

func (m *Manifests) skip(file, kind, name string) {
	m.Skipped = append(m.Skipped, fmt.Sprintf("%s %s (%s)", kind, name, file))
}

func (m *Manifests) decode(file, kind, name string, document []byte) error {
	var err error
	switch kind {
	case "Namespace":
		err = decodeInto(document, &m.namespaces)
	case "ResourceFlavor":
		err = decodeInto(document, &m.flavors)
	case "AdmissionCheck":
		err = decodeInto(document, &m.checks)
	case "WorkloadPriorityClass":
		err = decodeInto(document, &m.classes)
	case "Cohort":
		err = decodeInto(document, &m.cohorts)
	case "ClusterQueue":
		err = decodeInto(document, &m.clusterQueues)
	case "LocalQueue":
		err = decodeInto(document, &m.localQueues)
	default:
		m.skip(file, kind, name)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return nil
}

func decodeInto[T any](document []byte, list *[]*T) error {
	object := new(T)
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return err
	}
	*list = append(*list, object)
	return nil
}

// addTo puts the objects into a store. Of two objects of the same kind and name the later one is used.
func (m *Manifests) addTo(cl *cluster.Cluster) {
	if m == nil {
		return
	}
	for _, o := range m.namespaces {
		cl.StoreNamespace(o.DeepCopy())
	}
	addAll(cl, m.flavors, func(o *kueue.ResourceFlavor) { cl.Flavors[o.Name] = o })
	addAll(cl, m.checks, func(o *kueue.AdmissionCheck) {
		// The controller of a check reports in its status that it is active, which manifests do not have.
		o.Status = activeCheck()
		cl.AdmissionChecks[o.Name] = o
	})
	addAll(cl, m.classes, func(o *kueue.WorkloadPriorityClass) { cl.PriorityClasses[o.Name] = o })
	addAll(cl, m.cohorts, func(o *kueue.Cohort) { cl.Cohorts[o.Name] = o })
	addAll(cl, m.clusterQueues, func(o *kueue.ClusterQueue) {
		if o.Spec.QueueingStrategy == "" {
			o.Spec.QueueingStrategy = kueue.BestEffortFIFO
		}
		cl.ClusterQueues[o.Name] = o
	})
	addAll(cl, m.localQueues, func(o *kueue.LocalQueue) {
		if o.Namespace == "" {
			o.Namespace = metav1.NamespaceDefault
		}
		if _, ok := cl.Namespaces[o.Namespace]; !ok {
			cl.StoreNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Namespace}})
		}
		cl.LocalQueues[types.NamespacedName{Namespace: o.Namespace, Name: o.Name}] = o
	})
}

// addAll stamps copies, so that the same manifests can be used again.
func addAll[T copyable[T]](cl *cluster.Cluster, objects []T, put func(T)) {
	for _, o := range objects {
		object := o.DeepCopy()
		object.SetUID("")
		cl.Stamp(object)
		put(object)
	}
}
