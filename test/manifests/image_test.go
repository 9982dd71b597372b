package manifests_test

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// TestDockerfileBuilds does without Docker what the stages of the Dockerfile do: it copies what they copy into empty directories, and runs
// the commands that build the binary there, without a network.
func TestDockerfileBuilds(t *testing.T) {
	image := &imageBuild{t: t, ignored: readIgnored(t), roots: map[string]string{}, env: map[string]string{
		"BUILDPLATFORM": runtime.GOOS + "/" + runtime.GOARCH, "TARGETOS": runtime.GOOS, "TARGETARCH": runtime.GOARCH,
	}}
	for _, line := range instructions(t) {
		image.do(line)
	}
	final := image.root
	if out, err := exec.Command(filepath.Join(final, "tranche"), "version").CombinedOutput(); err != nil || strings.TrimSpace(string(out)) == "" {
		t.Errorf("the image's binary: %v: %q", err, out)
	}
	if image.base != "scratch" || image.user != "65532:65532" {
		t.Errorf("the image is made from %q for user %q, want scratch and a user by number, so that runAsNonRoot can be checked", image.base, image.user)
	}
}

// TestDockerfilePinsImages keeps an image that changes under its tag from changing what is built.
func TestDockerfilePinsImages(t *testing.T) {
	pinned := regexp.MustCompile(`^(scratch|\S+:\S+@sha256:[0-9a-f]{64})$`)
	for _, line := range instructions(t) {
		if words := strings.Fields(line); words[0] == "FROM" {
			if base := baseOf(words); !pinned.MatchString(base) {
				t.Errorf("the base image %q has no digest", base)
			}
		}
	}
	if content := run(t, "cat", "Dockerfile"); strings.Contains(content, "syntax=") {
		t.Error("the Dockerfile names a frontend, which is an image, too")
	}
}

// An imageBuild follows the instructions of a Dockerfile. The root of each stage is a directory.
type imageBuild struct {
	t       *testing.T
	ignored func(path string) bool
	roots   map[string]string
	env     map[string]string

	base, user, root, workDir string
}

func (b *imageBuild) do(line string) {
	b.t.Helper()
	words := strings.Fields(line)
	switch words[0] {
	case "FROM":
		b.base, b.root, b.workDir = baseOf(words), b.t.TempDir(), "/"
		b.roots[words[len(words)-1]] = b.root
	case "WORKDIR":
		b.workDir = words[1]
	case "ARG":
		for _, argument := range words[1:] {
			if name, value, ok := strings.Cut(argument, "="); ok {
				b.env[name] = value
			}
		}
	case "COPY":
		b.copy(words[1:])
	case "RUN":
		b.run(strings.TrimSpace(strings.TrimPrefix(line, "RUN")))
	case "USER":
		b.user = words[1]
	case "ENTRYPOINT":
	default:
		b.t.Fatalf("this test does not know the instruction %q", line)
	}
}

func baseOf(from []string) string {
	for _, word := range from[1:] {
		if !strings.HasPrefix(word, "--") {
			return word
		}
	}
	return ""
}

func (b *imageBuild) copy(words []string) {
	b.t.Helper()
	from, ignored := root, b.ignored
	if stage, ok := strings.CutPrefix(words[0], "--from="); ok {
		from, ignored, words = b.roots[stage], func(string) bool { return false }, words[1:]
	}
	target := words[len(words)-1]
	to := filepath.Join(b.root, b.workDir, target)
	if filepath.IsAbs(target) {
		to = filepath.Join(b.root, target)
	}
	for _, source := range words[:len(words)-1] {
		info, err := os.Stat(filepath.Join(from, source))
		if err != nil {
			b.t.Fatalf("COPY %s: %v", source, err)
		}
		destination := to
		if !info.IsDir() && (strings.HasSuffix(target, "/") || len(words) > 2) {
			destination = filepath.Join(to, filepath.Base(source))
		}
		b.copyTree(filepath.Join(from, source), destination, func(path string) bool {
			return ignored(filepath.ToSlash(filepath.Join(source, path)))
		})
	}
}

func (b *imageBuild) copyTree(from, to string, ignored func(string) bool) {
	b.t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if relative != "." && ignored(filepath.ToSlash(relative)) {
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, relative), 0o755)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, content, info.Mode())
	})
	if err != nil {
		b.t.Fatalf("copy %s: %v", from, err)
	}
}

func (b *imageBuild) run(command string) {
	b.t.Helper()
	if command == "go mod download" {
		return // the modules of this machine serve, without those that the manager does not need
	}
	// What the command writes outside of the work directory belongs into the root of the stage.
	command = regexp.MustCompile(`(-o )(/\S+)`).ReplaceAllString(command, "${1}"+b.root+"${2}")
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = filepath.Join(b.root, b.workDir)
	env := maps.Clone(b.env)
	maps.Copy(env, map[string]string{"GOPROXY": "off", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"})
	cmd.Env = os.Environ()
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("RUN %s: %v\n%s", command, err, out)
	}
}

// instructions reads the Dockerfile, one instruction for each element.
func instructions(t *testing.T) []string {
	t.Helper()
	var all []string
	continued := false
	for line := range strings.Lines(run(t, "cat", "Dockerfile")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, more := strings.CutSuffix(line, `\`)
		if continued {
			all[len(all)-1] += text
		} else {
			all = append(all, text)
		}
		continued = more
	}
	return all
}

// readIgnored returns what .dockerignore keeps out, as Docker reads it: a pattern also matches all below it, and the last one decides.
func readIgnored(t *testing.T) func(path string) bool {
	t.Helper()
	type pattern struct {
		expression *regexp.Regexp
		kept       bool
	}
	var patterns []pattern
	for line := range strings.Lines(run(t, "cat", ".dockerignore")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		line, kept := strings.CutPrefix(line, "!")
		expression := regexp.QuoteMeta(strings.Trim(line, "/"))
		expression = strings.ReplaceAll(expression, `\*\*/`, "(.*/)?")
		expression = strings.ReplaceAll(expression, `\*`, "[^/]*")
		patterns = append(patterns, pattern{regexp.MustCompile("^" + expression + "(/.*)?$"), kept})
	}
	return func(path string) bool {
		ignored := false
		for _, p := range patterns {
			if p.expression.MatchString(path) {
				ignored = !p.kept
			}
		}
		return ignored
	}
}
