package snapshot

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// A Writer writes a snapshot, kind by kind, without keeping its objects.
type Writer struct {
	// Create creates a file of the snapshot, or empties it.
	Create func(name string) (io.WriteCloser, error)
	// Anonymizer replaces the names, unless it is nil.
	Anonymizer *Anonymizer

	files  []fileEntry
	kind   *Kind
	file   io.WriteCloser
	buffer *bufio.Writer
}

// Begin starts the file of a kind. If the kind is being written already, it starts again without objects.
func (w *Writer) Begin(kind *Kind) error {
	if err := w.end(); err != nil {
		return err
	}
	if n := len(w.files); n > 0 && w.files[n-1].Name == kind.file() {
		w.files = w.files[:n-1]
	}
	w.kind = kind
	w.files = append(w.files, fileEntry{Name: kind.file()})
	return w.open(kind.file())
}

func (w *Writer) open(name string) error {
	file, err := w.Create(name)
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	w.file = file
	w.buffer = bufio.NewWriterSize(file, 1<<18)
	return nil
}

// Add writes an object of the kind. It does not change the object.
func (w *Writer) Add(object Object) error {
	object = w.kind.reduce(object)
	if w.Anonymizer != nil {
		object = w.Anonymizer.object(object)
	}
	line, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", w.kind.GVK.Kind, nameOf(object), err)
	}
	w.files[len(w.files)-1].Objects++
	return w.write(append(line, '\n'))
}

func (w *Writer) write(content []byte) error {
	if _, err := w.buffer.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", w.files[len(w.files)-1].Name, err)
	}
	return nil
}

// end closes the current file.
func (w *Writer) end() error {
	if w.file == nil {
		return nil
	}
	err := errors.Join(w.buffer.Flush(), w.file.Close())
	w.file = nil
	if err != nil {
		return fmt.Errorf("write %s: %w", w.files[len(w.files)-1].Name, err)
	}
	return nil
}

// Configure writes the configuration of the manager.
func (w *Writer) Configure(config *configapi.Configuration) error {
	if err := w.end(); err != nil {
		return err
	}
	config = ReduceConfiguration(config)
	if w.Anonymizer != nil {
		config = w.Anonymizer.configuration(config)
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	w.files = append(w.files, fileEntry{Name: configFile, Objects: 1})
	if err := w.open(configFile); err != nil {
		return err
	}
	return w.write(content)
}

// Close completes the snapshot. Of about only the fields count that describe the snapshot: when it was taken, and what is missing.
func (w *Writer) Close(about *Snapshot) error {
	if err := w.end(); err != nil {
		return err
	}
	m := metadata{
		TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: metadataKind}, TakenAt: metav1.NewMicroTime(about.TakenAt.UTC()),
		Version: about.Version, Anonymized: about.IsAnonymized, Namespaces: about.OnlyNamespaces, Files: w.files, Gaps: about.Gaps,
	}
	if w.Anonymizer != nil {
		m.Anonymized = true
		m.Namespaces, m.Gaps = w.Anonymizer.names(about.OnlyNamespaces), w.Anonymizer.gaps(about.Gaps)
	}
	content, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", metadataFile, err)
	}
	if err := w.open(metadataFile); err != nil {
		return err
	}
	if err := w.write(append(content, '\n')); err != nil {
		return err
	}
	return w.end()
}

// Counts returns how many objects of each resource were written.
func (w *Writer) Counts() []Count {
	var counts []Count
	for _, entry := range w.files {
		if resource, isKind := strings.CutSuffix(entry.Name, fileSuffix); isKind {
			counts = append(counts, Count{Resource: resource, Objects: entry.Objects})
		}
	}
	return counts
}

// A Count is how many objects of a resource a snapshot has.
type Count struct {
	Resource string
	Objects  int
}

// Write writes a snapshot by creating its files. The objects do not change.
func (s *Snapshot) Write(create func(name string) (io.WriteCloser, error), anonymizer *Anonymizer) error {
	w := &Writer{Create: create, Anonymizer: anonymizer}
	if s.Configuration != nil {
		if err := w.Configure(s.Configuration); err != nil {
			return err
		}
	}
	for _, kind := range Kinds() {
		if err := w.Begin(kind); err != nil {
			return err
		}
		for object := range kind.all(s) {
			if err := w.Add(object); err != nil {
				return err
			}
		}
	}
	return w.Close(s)
}

// Pack writes the files of a snapshot as a tar archive that is compressed by gzip.
func Pack(out io.Writer, files fs.FS) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	content, err := fs.ReadFile(files, metadataFile)
	if err != nil {
		return err
	}
	m, err := decodeMetadata(content)
	if err != nil {
		return err
	}
	// A reader checks the version before anything else.
	names := []string{metadataFile}
	for _, entry := range m.Files {
		names = append(names, entry.Name)
	}
	for _, name := range names {
		if err := packFile(archive, files, name, m.TakenAt.Time); err != nil {
			return fmt.Errorf("archive %s: %w", name, err)
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

func packFile(archive *tar.Writer, files fs.FS, name string, at time.Time) error {
	file, err := files.Open(name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // the file is only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: at.Truncate(time.Second), Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}

func nameOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return object.GetNamespace() + "/" + object.GetName()
}
