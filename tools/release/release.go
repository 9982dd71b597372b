package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A release is all files of one version.
type release struct {
	root    string // the repository
	program string // the directory of the binary's package
	dir     string // where the files are written
	version string
	image   name.Repository
	commit  commit
}

// write builds all files into a new directory, and returns the image.
func (r *release) write(ctx context.Context) (v1.ImageIndex, error) {
	if err := os.MkdirAll(filepath.Dir(r.dir), 0o750); err != nil {
		return nil, err
	}
	if err := os.Mkdir(r.dir, 0o750); err != nil {
		return nil, fmt.Errorf("write a release: %w", err)
	}
	work, err := os.MkdirTemp("", "tranche-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work) //nolint:errcheck // a temporary directory
	binaries, err := r.build(ctx, work)
	if err != nil {
		return nil, err
	}
	for _, b := range binaries {
		if err := r.writeProgram(b); err != nil {
			return nil, err
		}
	}
	index, err := r.indexOf(binaries)
	if err != nil {
		return nil, fmt.Errorf("make the image: %w", err)
	}
	if err := r.writeImage(index, filepath.Join(work, "image")); err != nil {
		return nil, fmt.Errorf("write the image: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, err
	}
	if err := r.writeInstallation(ctx, digest.String(), work); err != nil {
		return nil, err
	}
	return index, r.writeChecksums()
}

// writeProgram writes the archive and the bill of materials of a binary.
func (r *release) writeProgram(b binary) error {
	base := fmt.Sprintf("tranche-%s-%s-%s", r.version, b.os, b.arch)
	files := []entry{{name: "tranche", mode: 0o755, content: b.content}}
	for _, file := range []string{"LICENSE", "README.md"} {
		content, err := os.ReadFile(filepath.Join(r.root, file))
		if err != nil {
			return err
		}
		files = append(files, entry{name: file, mode: 0o644, content: content})
	}
	archive, err := r.tarGz(files)
	if err != nil {
		return fmt.Errorf("pack %s: %w", base, err)
	}
	if err := r.writeFile(base+".tar.gz", archive); err != nil {
		return err
	}
	bill, err := r.billOf(b)
	if err != nil {
		return fmt.Errorf("list the modules of %s: %w", base, err)
	}
	return r.writeFile(base+".cdx.json", bill)
}

// writeChecksums lists all files of the release as sha256sum does.
func (r *release) writeChecksums() error {
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(r.dir, file.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sha256.Sum256(content), file.Name())
	}
	return r.writeFile("SHA256SUMS", []byte(list.String()))
}

func (r *release) writeFile(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.dir, name), content, 0o644) // #nosec G306 -- it is published
}
