package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pin is the file of this module that names the commit of the release before.
const pin = "previous"

// previous returns the directory that holds the release before, as far as a test installs it: bin, config and charts are where a clone has them. It fills it
// from the pinned commit first, if it is not there.
func previous(ctx context.Context, module string) (string, error) {
	content, err := os.ReadFile(filepath.Join(module, pin))
	if err != nil {
		return "", fmt.Errorf("read the commit of the release before: %w", err)
	}
	commit := strings.TrimSpace(string(content))
	return publish(filepath.Join(module, "bin"), "previous-"+commit, func(dir string) error { return buildPrevious(ctx, module, commit, dir) })
}

func buildPrevious(ctx context.Context, module, commit, dir string) error {
	root := filepath.Dir(filepath.Dir(module))
	if exec.CommandContext(ctx, "git", "-C", root, "cat-file", "-e", commit+"^{commit}").Run() != nil { // #nosec G204 -- a file of the repository
		return fmt.Errorf("commit %s, which test/cluster/%s names as the release before, is not in this clone: run git fetch --unshallow", commit, pin)
	}
	source := filepath.Join(dir, "source")
	if err := checkOut(ctx, root, commit, source, "."); err != nil {
		return err
	}
	program := &job{
		title: "the release before", module: source, dir: filepath.Join(dir, "bin"), flags: []string{"-trimpath", "-ldflags=-s -w -X main.version=" + commit[:min(len(commit), 12)]},
		binaries: []binary{{name: "tranche", pkg: "./cmd/tranche"}},
	}
	if err := program.run(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(source); err != nil {
		return fmt.Errorf("remove the sources of the release before: %w", err)
	}
	return checkOut(ctx, root, commit, dir, "config", "charts", ":!*.go")
}

// checkOut writes files of a commit below dir, and leaves the work tree and the index of the repository alone.
func checkOut(ctx context.Context, root, commit, dir string, paths ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make room for the release before: %w", err)
	}
	index := filepath.Join(dir, ".index")
	command := exec.CommandContext(ctx, "git", append([]string{"-C", root, "--work-tree", dir, "checkout", "--quiet", commit, "--"}, paths...)...) // #nosec G204 -- a file of the repository
	command.Env = append(os.Environ(), "GIT_INDEX_FILE="+index)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("check out commit %s: %w: %s", commit, err, output)
	}
	return os.Remove(index)
}
