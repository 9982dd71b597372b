// Package snapshotfile writes snapshots to directories and archives, reads them, and shows the progress.
package snapshotfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tranche-dev/tranche/snapshot"
)

// Stream is the path of standard input and of standard output.
const Stream = "-"

// A Draft is a snapshot that is being written. Its files are in a temporary directory until Commit.
type Draft struct {
	output, temporary string
}

// NewDraft begins a snapshot that becomes an archive if the path has the extension .tar.gz or .tgz or is Stream, and otherwise a directory, which
// must not exist.
func NewDraft(output string) (*Draft, error) {
	d := &Draft{output: output}
	parent := filepath.Dir(output)
	if output == Stream {
		parent = "" // the default for temporary files
	}
	if _, err := os.Lstat(output); err == nil && d.isDirectory() {
		return nil, fmt.Errorf("%s exists: remove it, or name another directory, or a file with the extension .tar.gz", output)
	}
	var err error
	if d.temporary, err = os.MkdirTemp(parent, ".tranche-snapshot-"); err != nil {
		return nil, fmt.Errorf("create a directory for the snapshot: %w", err)
	}
	return d, nil
}

func (d *Draft) isDirectory() bool {
	return d.output != Stream && !strings.HasSuffix(d.output, ".tar.gz") && !strings.HasSuffix(d.output, ".tgz")
}

// Create creates a file of the snapshot that only its owner can read.
func (d *Draft) Create(name string) (io.WriteCloser, error) {
	return os.OpenFile(filepath.Join(d.temporary, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) // #nosec G304 -- the names are those of kinds
}

// Commit moves the snapshot to its path, or writes it to stdout, and returns its size in bytes.
func (d *Draft) Commit(stdout io.Writer) (int64, error) {
	files := os.DirFS(d.temporary)
	if d.isDirectory() {
		size, err := sizeOf(files)
		return size, errors.Join(err, os.Rename(d.temporary, d.output))
	}
	counted := &countingWriter{Writer: stdout}
	if d.output == Stream {
		err := snapshot.Pack(counted, files)
		return counted.n, err
	}
	archive, err := os.CreateTemp(d.temporary, "archive") // its owner can read it
	if err != nil {
		return 0, err
	}
	counted.Writer = archive
	if err := errors.Join(snapshot.Pack(counted, files), archive.Close()); err != nil {
		return 0, err
	}
	return counted.n, os.Rename(archive.Name(), d.output)
}

// Discard removes the files that Commit has not moved.
func (d *Draft) Discard() { _ = os.RemoveAll(d.temporary) }

// sizeOf returns the size of all files in bytes.
func sizeOf(files fs.FS) (size int64, err error) {
	err = fs.WalkDir(files, ".", func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}

// A countingWriter counts the bytes that are written.
type countingWriter struct {
	io.Writer
	n int64
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.n += int64(n)
	return n, err
}
