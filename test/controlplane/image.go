package controlplane

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// An Image is a container image that has one program and nothing else. It runs as a user that is not root.
type Image struct {
	// Name is what pods ask for. It has a tag, so that a kubelet looks for it on its node only.
	Name string
	// Program is the path of a static binary on this machine. It is the entry point.
	Program string
}

// imageUser is the user of all images.
const imageUser = "65532"

// write writes the image to a file, in the form in which `docker save` writes one.
func (i Image) write(path string) error {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return fmt.Errorf("read the program of image %s: %w", i.Name, err)
	}
	entryPoint := filepath.Base(i.Program)
	layer, err := archive(file{entryPoint, 0o755, program})
	if err != nil {
		return fmt.Errorf("write the layer of image %s: %w", i.Name, err)
	}
	digest := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": runtime.GOOS,
		"config": map[string]any{"Entrypoint": []string{"/" + entryPoint}, "User": imageUser},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(digest[:])}},
	})
	if err != nil {
		return fmt.Errorf("describe image %s: %w", i.Name, err)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("describe image %s: %w", i.Name, err)
	}
	content, err := archive(file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer}, file{"manifest.json", 0o644, manifest})
	if err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return nil
}

// A file is an entry of an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

func archive(files ...file) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}
