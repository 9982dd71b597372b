package snapshot

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

// errNoMetadata is the error of a snapshot of which nothing can be answered about.
var errNoMetadata = fmt.Errorf("%s is missing, so that neither the version nor the time of the snapshot is known, nor what else is missing, and nothing can be answered: "+
	"copy all files of the snapshot, or %s", metadataFile, takeAgain)

// ReadDir reads the directory of a snapshot, or all manifests in a directory and its subdirectories.
func ReadDir(files fs.FS) (*Snapshot, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, err
	}
	isSnapshot, hasMetadata := false, false
	for _, entry := range entries {
		hasMetadata = hasMetadata || entry.Name() == metadataFile
		isSnapshot = isSnapshot || strings.HasSuffix(entry.Name(), fileSuffix)
	}
	switch {
	case hasMetadata:
		return readFiles(func(visit visitor) error { return visitDir(files, entries, visit) })
	case isSnapshot:
		return nil, errNoMetadata
	}
	return readManifests(files)
}

// ReadStream reads the tar archive of a snapshot, compressed by gzip or not, or manifests in YAML or JSON. The name is for errors.
func ReadStream(name string, r io.Reader) (*Snapshot, error) {
	buffered := bufio.NewReaderSize(r, 1<<16)
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		compressed, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, damaged(name, err)
		}
		return readArchive(name, compressed)
	}
	// The magic number of a tar archive.
	if header, _ := buffered.Peek(262); len(header) == 262 && string(header[257:]) == "ustar" {
		return readArchive(name, buffered)
	}
	if strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".tgz") {
		return nil, fmt.Errorf("%s is no gzip archive, although its name ends like that of one: copy it again, or give manifests a name such as queues.yaml", name)
	}
	return readManifestStream(name, buffered)
}

func readArchive(name string, r io.Reader) (*Snapshot, error) {
	return readFiles(func(visit visitor) error {
		archive := tar.NewReader(r)
		for {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				// The rest has the checksum.
				if _, err := io.Copy(io.Discard, r); err != nil {
					return damaged(name, err)
				}
				return nil
			}
			if err != nil {
				return damaged(name, err)
			}
			if header.Typeflag != tar.TypeReg {
				continue
			}
			if err := visit(path.Base(header.Name), archive); err != nil {
				return damaged(name, err)
			}
		}
	})
}

// damaged explains the errors of an archive that is cut off or changed.
func damaged(name string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, tar.ErrHeader) {
		return fmt.Errorf("%s: %w: the archive is truncated or damaged; copy it again, or %s", name, err, takeAgain)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// A visitor reads one file of a snapshot.
type visitor func(file string, r io.Reader) error

func visitDir(files fs.FS, entries []fs.DirEntry, visit visitor) error {
	// An error of the version comes before those of the files.
	if err := visitFile(files, metadataFile, visit); err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			return fmt.Errorf("%s: a snapshot has no directories: remove it, or name a directory of manifests without %s", entry.Name(), metadataFile)
		}
		if entry.Name() == metadataFile {
			continue
		}
		if err := visitFile(files, entry.Name(), visit); err != nil {
			return err
		}
	}
	return nil
}

// visitFile visits a file. That it cannot be opened is the error of its first read.

func visitFile(files fs.FS, name string, visit visitor) error {
	file, err := files.Open(name)
	if err != nil {
		return visit(name, unreadable{err})
	}
	defer file.Close() //nolint:errcheck // the file is only read
	return visit(name, file)
}

// An unreadable file cannot be opened.
type unreadable struct{ error }

// Read implements io.Reader.
func (u unreadable) Read([]byte) (int, error) { return 0, u.error }

// A reading reads the files of one snapshot, in any order. Files that are missing or damaged become Gaps: the other kinds can be answered about.
type reading struct {
	decoder  *decoder
	snapshot Snapshot
	metadata *metadata
	// objects has the number of objects in each file.
	objects map[string]int
	// damages has why files cannot be read.
	damages map[string]error
}

// readFiles reads the snapshot whose files walk visits.
func readFiles(walk func(visitor) error) (*Snapshot, error) {
	r := &reading{decoder: newDecoder(), objects: map[string]int{}, damages: map[string]error{}}
	err := walk(r.visit)
	r.decoder.stop()
	if errors.Is(err, io.ErrUnexpectedEOF) && r.metadata != nil {
		err = nil // the metadata says which files are behind the end
	}
	if err != nil {
		return nil, err
	}
	if err := r.compare(); err != nil {
		return nil, err
	}
	if err := r.decoder.collect(&r.snapshot); err != nil {
		return nil, err
	}
	m := r.metadata
	r.snapshot.TakenAt, r.snapshot.Version, r.snapshot.IsAnonymized = m.TakenAt.UTC(), m.Version, m.Anonymized
	r.snapshot.OnlyNamespaces, r.snapshot.Gaps = m.Namespaces, append(m.Gaps, r.snapshot.Gaps...)
	return &r.snapshot, nil
}

// visit reads a file. An error ends the reading.
func (r *reading) visit(file string, content io.Reader) error {
	if _, isKnown := r.objects[file]; isKnown {
		return fmt.Errorf("%s is in the archive twice: %s", file, takeAgain)
	}
	if file == metadataFile {
		text, err := io.ReadAll(content)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		r.metadata, err = decodeMetadata(text)
		return err
	}
	var err error
	switch kind := kindOf(file); {
	case file == configFile:
		r.objects[file], err = 1, r.configure(content)
	case kind != nil:
		r.objects[file], err = r.decoder.readLines(kind, file, content)
	default:
		return fmt.Errorf("%s is no file of a snapshot: remove it, or use the version of Tranche that took the snapshot", file)
	}
	if err != nil {
		r.damages[file] = err
	}
	return nil
}

func (r *reading) configure(content io.Reader) error {
	text, err := io.ReadAll(content)
	if err == nil {
		r.snapshot.Configuration, err = configapi.Decode(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	return nil
}

// kindOf returns the kind that a file has, or nil.
func kindOf(file string) *Kind {
	for _, kind := range Kinds() {
		if kind.file() == file {
			return kind
		}
	}
	return nil
}

// compare compares the files with those that the metadata lists. A kind of which not all objects are readable is a Gap, and its objects are dropped: a
// part of them would answer as if the others did not exist.
func (r *reading) compare() error {
	if r.metadata == nil {
		return errNoMetadata
	}
	listed := map[string]bool{}
	for _, entry := range r.metadata.Files {
		listed[entry.Name] = true
		objects, exists := r.objects[entry.Name]
		kind := kindOf(entry.Name)
		err := cmp.Or(r.damages[entry.Name], r.decoder.damage(kind))
		switch {
		case kind == nil && entry.Name != configFile:
			return fmt.Errorf("%s lists %s, which is no file of a snapshot: use the version of Tranche that took the snapshot", metadataFile, entry.Name)
		case !exists:
			r.lacks(kind, entry.Name+" is missing", "copy all files of the snapshot, or "+takeAgain)
		case err != nil:
			r.lacks(kind, err.Error(), "copy it again, or "+takeAgain)
		case objects != entry.Objects:
			r.lacks(kind, fmt.Sprintf("%s has %d of %d objects", entry.Name, objects, entry.Objects), "copy it again, or "+takeAgain)
		}
	}
	for file := range r.objects {
		if !listed[file] {
			return fmt.Errorf("%s is not listed in %s: remove it, or %s", file, metadataFile, takeAgain)
		}
	}
	return nil
}

// lacks adds a Gap of a kind, or of the configuration if it is nil.
func (r *reading) lacks(kind *Kind, reason, cure string) {
	gap := Gap{Resource: "configmaps", Reason: reason, Cure: cure}
	if kind != nil {
		gap.Resource = kind.FullResource()
		r.decoder.drop(kind)
	}
	r.snapshot.Gaps = append(r.snapshot.Gaps, gap)
}
