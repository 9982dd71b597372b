package lint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/tranche-dev/tranche/lint"
	"github.com/tranche-dev/tranche/manifest"
)

// An input collects the objects of files.
type input struct {
	stdin io.Reader
	// report gets a line for each file that is fixed.
	report io.Writer
	fixes  bool

	objects    []*manifest.Object
	unreadable []*manifest.Error
}

// read reads a directory, a file, or standard input.
func (in *input) read(path string) error {
	if path == "-" {
		if in.fixes {
			return errors.New("--fix needs files: name them instead of standard input")
		}
		content, err := io.ReadAll(in.stdin)
		if err != nil {
			return fmt.Errorf("read standard input: %w", err)
		}
		in.add("stdin", content)
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return in.readFile(path, info)
	}
	names, err := manifest.Files(os.DirFS(path))
	if err != nil {
		return fmt.Errorf("read manifests: %s: %w", path, err)
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no files with the extension .yaml, .yml or .json: name another directory, or a file", path)
	}
	for _, name := range names {
		name = filepath.Join(path, name)
		info, err := os.Stat(name)
		if err != nil {
			return fmt.Errorf("read manifests: %w", err)
		}
		if err := in.readFile(name, info); err != nil {
			return err
		}
	}
	return nil
}

func (in *input) readFile(name string, info os.FileInfo) error {
	content, err := os.ReadFile(name) // #nosec G304 -- the user names the file
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	if in.fixes {
		if content, err = in.fix(name, content, info); err != nil {
			return err
		}
	}
	in.add(name, content)
	return nil
}

func (in *input) add(name string, content []byte) {
	objects, unreadable := manifest.Read(name, content)
	in.objects, in.unreadable = append(in.objects, objects...), append(in.unreadable, unreadable...)
}

// fix rewrites the objects of an old version in a file.
func (in *input) fix(name string, content []byte, info os.FileInfo) ([]byte, error) {
	text, objects := lint.Upgrade(name, content)
	if objects == 0 {
		return content, nil
	}
	if err := os.WriteFile(name, text, info.Mode().Perm()); err != nil { // #nosec G703 -- the user names the file
		return nil, fmt.Errorf("write manifests: %w", err)
	}
	if _, err := fmt.Fprintf(in.report, "fixed: %s (%s)\n", name, lint.Plural(objects, "object")); err != nil {
		return nil, fmt.Errorf("report the fix: %w", err)
	}
	return text, nil
}
