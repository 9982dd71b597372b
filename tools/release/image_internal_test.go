package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// checkImage reads the image from its archive. It must have the digest that the manifests name.
func checkImage(t *testing.T, files map[string][]byte, digest v1.Hash) {
	t.Helper()
	index := readImage(t, files["tranche-"+version+"-image.tar"])
	if got, err := index.Digest(); err != nil || got != digest {
		t.Errorf("the archive has image %s, want %s: %v", got, digest, err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, described := range manifest.Manifests {
		platforms = append(platforms, described.Platform.String())
		image, err := index.Image(described.Digest)
		if err != nil {
			t.Fatal(err)
		}
		program := untar(t, files["tranche-"+version+"-linux-"+described.Platform.Architecture+".tar.gz"], true)["tranche"]
		checkPlatform(t, image, described.Platform, program)
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
		t.Errorf("the image is for %v", platforms)
	}
}

func checkPlatform(t *testing.T, image v1.Image, platform *v1.Platform, program entry) {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config := file.Config
	if !platform.Equals(*file.Platform()) || config.User != "65532:65532" || !slices.Equal(config.Entrypoint, []string{"/tranche"}) || len(config.Cmd) > 0 {
		t.Errorf("%s: platform %s, user %q, entry point %v and %v", platform, file.Platform(), config.User, config.Entrypoint, config.Cmd)
	}
	if got := config.Labels["org.opencontainers.image.version"]; got != version || len(config.Labels) != 4 {
		t.Errorf("%s: version %q, labels %v", platform, got, config.Labels)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%s: %d layers, want one: %v", platform, len(layers), err)
	}
	layer, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(layer)
	if err != nil {
		t.Fatal(err)
	}
	got := untar(t, content, false)
	if len(got) != 1 || got["tranche"].mode != 0o755 || !bytes.Equal(got["tranche"].content, program.content) {
		t.Errorf("%s: the image has %d files, want only the program of the archive", platform, len(got))
	}
}

// readImage returns the only image of an archive of an OCI layout.
func readImage(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for path, file := range untar(t, archive, false) {
		target := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, file.content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("read the archive: %v, %v", manifest, err)
	}
	if got := manifest.Manifests[0].Annotations["io.containerd.image.name"]; got != imageOne+":"+version {
		t.Errorf("the archive names the image %q", got)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// checkPush pushes to a registry in memory, where a tag stays what it is.
func checkPush(t *testing.T, index v1.ImageIndex) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/mine:" + version)
	if err != nil {
		t.Fatal(err)
	}
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := push(t.Context(), tag, index); err != nil {
			t.Fatal(err)
		}
		if got, err := remote.Head(tag); err != nil || got.Digest != want {
			t.Errorf("the registry has %v, want %s: %v", got, want, err)
		}
	}
	pulled, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(pulled); err != nil {
		t.Error(err)
	}
	other, err := random.Index(1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := push(t.Context(), tag, other); err == nil || !strings.Contains(err.Error(), "the tag names another image, "+want.String()) {
		t.Errorf("another image with the same tag: %v", err)
	}
}
