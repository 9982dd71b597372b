package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// overlays has the directories of config to apply, and after these the CRDs that go first.
var overlays = []string{
	"default", "with-visibility", "with-dashboard", "with-visibility-and-dashboard", "beside", "shadow", "monitoring",
	"crd", "beside/crd",
}

// writeInstallation writes the manifests and the chart, both with the image by its digest.
func (r *release) writeInstallation(ctx context.Context, digest, work string) error {
	if err := r.copyTracked(ctx, work, "config", "charts"); err != nil {
		return err
	}
	for _, dir := range []string{"config", "charts"} {
		if err := r.setImage(filepath.Join(work, dir), digest); err != nil {
			return fmt.Errorf("set the image in %s: %w", dir, err)
		}
	}
	for _, overlay := range overlays {
		manifest, err := output(ctx, r.root, nil, "go", "tool", "-modfile=tools/go.mod", "kustomize", "build", filepath.Join(work, "config", overlay))
		if err != nil {
			return err
		}
		if err := r.writeFile("tranche-"+r.version+"-"+strings.ReplaceAll(overlay, "/", "-")+".yaml", manifest); err != nil {
			return err
		}
	}
	return r.writeChart(filepath.Join(work, "charts", "tranche"), digest)
}

// copyTracked copies the files of some directories that git knows: others, such as those of an editor, are in no release.
func (r *release) copyTracked(ctx context.Context, to string, dirs ...string) error {
	files, err := output(ctx, r.root, nil, "git", append([]string{"ls-files", "-z", "--"}, dirs...)...)
	if err != nil {
		return err
	}
	for file := range strings.SplitSeq(strings.TrimSuffix(string(files), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(r.root, file)) // #nosec G304 -- a file of the repository
		if err != nil {
			return err
		}
		copied := filepath.Join(to, file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(copied, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// setImage replaces the image in all manifests below dir.
func (r *release) setImage(dir, digest string) error {
	image := regexp.MustCompile(`ghcr\.io/tranche-dev/tranche:v[0-9][0-9A-Za-z.-]*`)
	return filepath.WalkDir(dir, func(path string, found fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path) // #nosec G122 G304 -- a copy in a temporary directory
		if err != nil {
			return err
		}
		return os.WriteFile(path, image.ReplaceAllLiteral(content, []byte(r.image.Name()+"@"+digest)), 0o600)
	})
}

// writeChart packs a copy of the chart with the version and the image of the release.
func (r *release) writeChart(dir, digest string) error {
	number := strings.TrimPrefix(r.version, "v")
	for _, edit := range []struct{ file, old, new string }{
		{"Chart.yaml", `(?m)^version: .*$`, "version: " + number},
		{"Chart.yaml", `(?m)^appVersion: .*$`, "appVersion: " + r.version},
		{"values.yaml", `(?m)^  repository: .*$`, "  repository: " + r.image.Name()},
		{"values.yaml", `(?m)^  digest: .*$`, "  digest: " + digest},
	} {
		if err := replaceOnce(filepath.Join(dir, edit.file), edit.old, edit.new); err != nil {
			return err
		}
	}
	files, err := entriesOf(os.DirFS(dir), "tranche/")
	if err != nil {
		return err
	}
	packed, err := r.tarGz(files)
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	return r.writeFile("tranche-"+number+".tgz", packed)
}

// replaceOnce replaces the only match of a pattern in a file.
func replaceOnce(file, pattern, replacement string) error {
	content, err := os.ReadFile(file) // #nosec G304 -- a copy in a temporary directory
	if err != nil {
		return err
	}
	found := regexp.MustCompile(pattern).FindAll(content, -1)
	if len(found) != 1 {
		return fmt.Errorf("%s has %d matches of %q, want one", filepath.Base(file), len(found), pattern)
	}
	return os.WriteFile(file, bytes.Replace(content, found[0], []byte(replacement), 1), 0o600)
}
