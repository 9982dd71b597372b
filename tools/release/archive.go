package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"io/fs"
	"slices"
	"time"
)

// An entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// tarOf packs files in the order of their names. They belong to root, and have been changed at the same time.
func tarOf(files []entry, changed time.Time) ([]byte, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, file := range slices.SortedFunc(slices.Values(files), func(a, b entry) int { return cmp.Compare(a.name, b.name) }) {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: changed, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(file.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}

// tarGz packs files and compresses them. The header of the compressed data has neither a name nor a time.
func (r *release) tarGz(files []entry) ([]byte, error) {
	packed, err := tarOf(files, r.commit.time)
	if err != nil {
		return nil, err
	}
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	if _, err := w.Write(packed); err != nil {
		return nil, err
	}
	err = w.Close()
	return compressed.Bytes(), err
}

// entriesOf returns all files of a directory, with their paths below a prefix.
func entriesOf(dir fs.FS, prefix string) ([]entry, error) {
	var files []entry
	err := fs.WalkDir(dir, ".", func(path string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, path)
		files = append(files, entry{name: prefix + path, mode: 0o644, content: content})
		return err
	})
	return files, err
}
