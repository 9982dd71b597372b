package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// indexOf returns the image for all platforms of Linux: what the Dockerfile builds, and labels.
func (r *release) indexOf(binaries []binary) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		if b.os != "linux" {
			continue
		}
		image, err := r.imageOf(b)
		if err != nil {
			return nil, err
		}
		platform := &v1.Platform{OS: b.os, Architecture: b.arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

func (r *release) imageOf(b binary) (v1.Image, error) {
	files, err := tarOf([]entry{{name: "tranche", mode: 0o755, content: b.content}}, r.commit.time)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.commit.time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: b.os, Architecture: b.arch, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: "65532:65532", Entrypoint: []string{"/tranche"}, Labels: map[string]string{
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit.revision(),
			"org.opencontainers.image.source":   "https://github.com/tranche-dev/tranche",
			"org.opencontainers.image.licenses": "Apache-2.0",
		}},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "COPY /tranche /tranche"}})
}

// writeImage writes the image as an archive of an OCI layout, which it makes in a new directory.
func (r *release) writeImage(index v1.ImageIndex, dir string) error {
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	names := map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": r.image.Tag(r.version).Name()}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := entriesOf(os.DirFS(dir), "")
	if err != nil {
		return err
	}
	packed, err := tarOf(files, r.commit.time)
	if err != nil {
		return err
	}
	return r.writeFile("tranche-"+r.version+"-image.tar", packed)
}

// push pushes the image with the credentials of docker login. It does not move a tag that names another image.
func push(ctx context.Context, tag name.Tag, index v1.ImageIndex) error {
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	found, err := remote.Head(tag, options...)
	switch problem, isAnswer := errors.AsType[*transport.Error](err); {
	case err == nil && found.Digest != digest:
		return fmt.Errorf("push %s: the tag names another image, %s", tag, found.Digest)
	case err != nil && (!isAnswer || problem.StatusCode != http.StatusNotFound):
		return fmt.Errorf("push %s: find what the tag names: %w", tag, err)
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}
