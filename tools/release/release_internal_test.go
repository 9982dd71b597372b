package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	version  = "v9.8.7-rc.1"
	imageOne = "registry.example.com/mine"
)

// writeRelease writes a release of the program in testdata, with the manifests and the chart of the repository, into a new directory.
func writeRelease(t *testing.T, head commit) (string, v1.ImageIndex) {
	t.Helper()
	repository, err := name.NewRepository(imageOne)
	if err != nil {
		t.Fatal(err)
	}
	r := &release{root: "../..", program: "testdata/program", dir: filepath.Join(t.TempDir(), "new", "release"), version: version, image: repository, commit: head}
	index, err := r.write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.dir, index
}

// TestRelease checks all files of a release, which takes longest to write.
func TestRelease(t *testing.T) {
	head, err := headOf(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, index := writeRelease(t, head)
	files := readAll(t, dir)
	t.Run("again", func(t *testing.T) {
		other, _ := writeRelease(t, head)
		again := readAll(t, other)
		for file, content := range files {
			if !bytes.Equal(content, again[file]) {
				t.Errorf("%s differs when it is written again", file)
			}
		}
		if len(again) != len(files) || len(files) != 20 {
			t.Errorf("%d files, and %d when they are written again, want 20", len(files), len(again))
		}
	})
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("image", func(t *testing.T) { checkImage(t, files, digest) })
	t.Run("manifests", func(t *testing.T) { checkManifests(t, files, imageOne+"@"+digest.String()) })
	t.Run("chart", func(t *testing.T) { checkChart(t, dir, imageOne+"@"+digest.String()) })
	t.Run("checksums", func(t *testing.T) { checkChecksums(t, files) })
	t.Run("program", func(t *testing.T) { checkProgram(t, files) })
	t.Run("bill of materials", func(t *testing.T) { checkBill(t, files) })
	t.Run("push", func(t *testing.T) { checkPush(t, index) })
}

func checkManifests(t *testing.T, files map[string][]byte, image string) {
	t.Helper()
	images := regexp.MustCompile(`(?m)^ +(?:image|groupStartImage): ([^,\n]*)$`)
	for overlay, want := range map[string]int{
		"default": 2, "with-visibility": 2, "with-dashboard": 2, "with-visibility-and-dashboard": 2, "beside": 2, "shadow": 1, "monitoring": 0, "crd": 0, "beside-crd": 0,
	} {
		manifest, ok := files["tranche-"+version+"-"+overlay+".yaml"]
		found := images.FindAllSubmatch(manifest, -1)
		if !ok || len(found) != want {
			t.Errorf("%s: %t, %d images, want %d", overlay, ok, len(found), want)
		}
		for _, match := range found {
			if string(match[1]) != image {
				t.Errorf("%s runs %s, want %s", overlay, match[1], image)
			}
		}
	}
}

func checkChart(t *testing.T, dir, image string) {
	t.Helper()
	file := filepath.Join(dir, "tranche-"+strings.TrimPrefix(version, "v")+".tgz")
	for mode, want := range map[string]int{"Instead": 2, "Beside": 2, "Shadow": 1} {
		rendered, err := output(t.Context(), "../..", nil, "go", "tool", "-modfile=tools/go.mod", "helm", "template", "tranche", file,
			"--namespace=tranche-system", "--kube-version=1.36.0", "--set=mode="+mode)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(rendered), "mage: "+image+"\n"); got != want {
			t.Errorf("in the mode %s, the chart names %s %d times, want %d", mode, image, got, want)
		}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	chart := untar(t, content, true)
	if text := string(chart["tranche/Chart.yaml"].content); !strings.Contains(text, "\nversion: 9.8.7-rc.1\nappVersion: v9.8.7-rc.1\n") {
		t.Errorf("another version in the chart:\n%s", text)
	}
	for path, file := range chart {
		if bytes.Contains(file.content, []byte("ghcr.io/tranche-dev/tranche")) {
			t.Errorf("%s names another image", path)
		}
	}
}

func checkChecksums(t *testing.T, files map[string][]byte) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(files["SHA256SUMS"])), "\n")
	if len(lines) != len(files)-1 || !slices.IsSortedFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) }) {
		t.Errorf("%d checksums, want one for each of %d files, in the order of their names", len(lines), len(files)-1)
	}
	for _, line := range lines {
		sum, file, _ := strings.Cut(line, "  ")
		if got := sha256.Sum256(files[file]); hex.EncodeToString(got[:]) != sum {
			t.Errorf("the checksum of %q is wrong", file)
		}
	}
}

// checkProgram runs the program for the platform of the test.
func checkProgram(t *testing.T, files map[string][]byte) {
	t.Helper()
	platform := runtime.GOOS + "-" + runtime.GOARCH
	archive := untar(t, files["tranche-"+version+"-"+platform+".tar.gz"], true)
	if len(archive) != 3 || archive["LICENSE"].mode != 0o644 || archive["README.md"].mode != 0o644 || archive["tranche"].mode != 0o755 {
		t.Fatalf("the archive for %s has %d files, want LICENSE, README.md and a program", platform, len(archive))
	}
	file := filepath.Join(t.TempDir(), "tranche")
	if err := os.WriteFile(file, archive["tranche"].content, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), file).CombinedOutput(); err != nil || string(out) != version+" true\n" {
		t.Errorf("the program prints %q, %v", out, err)
	}
}

func checkBill(t *testing.T, files map[string][]byte) {
	t.Helper()
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		bill := string(files["tranche-"+version+"-"+platform+".cdx.json"])
		for _, want := range []string{
			`"bomFormat": "CycloneDX"`, `"purl": "pkg:golang/github.com/tranche-dev/tranche/tools/release@` + version + `"`, `"name": "golang.org/x/mod"`,
			`"purl": "pkg:golang/std@` + strings.TrimPrefix(runtime.Version(), "go") + `"`, `"alg": "SHA-256"`,
		} {
			if !strings.Contains(bill, want) {
				t.Errorf("%s: no %s in\n%s", platform, want, bill)
			}
		}
		if strings.Contains(bill, "timestamp") || strings.Contains(bill, "serialNumber") {
			t.Errorf("%s: the bill differs each time", platform)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "release")
	for _, refused := range []string{"", "0.1.0", "v1", "v1.2", "v01.2.3", "v1.2.3+build", "v1.2.3-01", "latest", "06e22acf-dirty", "v1.2.3 "} {
		err := run(t.Context(), []string{"-root=../..", "-out=" + dir, "-image=" + imageOne, "-version=" + refused})
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("VERSION is %q, want a semantic version", refused)) {
			t.Errorf("version %q: %v", refused, err)
		}
	}
	for _, refused := range []string{"", imageOne + ":v1", "Mine"} {
		err := run(t.Context(), []string{"-root=../..", "-out=" + dir, "-image=" + refused, "-version=" + version})
		if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("IMAGE is %q", refused)) {
			t.Errorf("image %q: %v", refused, err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a refused release has been written: %v", err)
	}
}

func readAll(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := entriesOf(os.DirFS(dir), "")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, file := range entries {
		files[file.name] = file.content
	}
	return files
}

// untar returns the files of an archive by their names.
func untar(t *testing.T, content []byte, isCompressed bool) map[string]entry {
	t.Helper()
	var packed io.Reader = bytes.NewReader(content)
	if isCompressed {
		r, err := gzip.NewReader(packed)
		if err != nil {
			t.Fatal(err)
		}
		if r.Name != "" || !r.ModTime.IsZero() {
			t.Errorf("the header has the name %q and the time %s", r.Name, r.ModTime)
		}
		packed = r
	}
	files := map[string]entry{}
	for r := tar.NewReader(packed); ; {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		file, err := io.ReadAll(r)
		if err != nil || header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s: owner %d:%d %q, %v", header.Name, header.Uid, header.Gid, header.Uname, err)
		}
		files[header.Name] = entry{header.Name, header.Mode, file}
	}
}
