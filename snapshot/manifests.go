package snapshot

import (
	"errors"
	"io"
	"io/fs"
)

// Manifests reads objects as users write them, from several directories and files. Unlike ReadDir it is strict: a field that is unknown, or given
// twice, is an error, because the API server would refuse it or ignore it.
type Manifests struct{ reader *manifests }

// NewManifests returns a reader without objects. Snapshot must be called once.
func NewManifests() *Manifests {
	return &Manifests{reader: &manifests{decoder: newDecoder(), isStrict: true}}
}

// ReadDir reads the YAML and JSON files in a directory and its subdirectories.
func (m *Manifests) ReadDir(files fs.FS) error { return m.reader.readDir(files) }

// ReadStream reads YAML documents or JSON objects. The name is for errors.
func (m *Manifests) ReadStream(name string, r io.Reader) error { return m.reader.read(name, r) }

// Snapshot returns the objects that were read, unless an error occurred before, which it returns.
func (m *Manifests) Snapshot(err error) (*Snapshot, error) {
	if err == nil && m.reader.isEmpty() {
		err = errors.New("the manifests have no objects: name a directory or a file with objects in YAML or JSON")
	}
	return m.reader.finish(err)
}
