// Command release builds the files of a release into a new directory, the same bytes for each commit and version, and pushes its image to a registry.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/mod/semver"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	r := &release{}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.root, "root", ".", "the repository")
	flags.StringVar(&r.dir, "out", "dist/release", "the directory to create")
	flags.StringVar(&r.version, "version", "", "the semantic version, with a leading v")
	repository := flags.String("image", "", "the repository of the image, without a tag")
	pushes := flags.Bool("push", false, "also push the image")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := checkVersion(r.version); err != nil {
		return err
	}
	var err error
	if r.image, err = name.NewRepository(*repository); err != nil {
		return fmt.Errorf("IMAGE is %q, want a repository without a tag: %w", *repository, err)
	}
	r.program = filepath.Join(r.root, "cmd", "tranche")
	if r.commit, err = headOf(ctx, r.root); err != nil {
		return err
	}
	if r.commit.isDirty && *pushes {
		return errors.New("push the image: the work tree has changes that are not committed")
	}
	index, err := r.write(ctx)
	if err != nil {
		return err
	}
	if *pushes {
		return push(ctx, r.image.Tag(r.version), index)
	}
	return nil
}

// checkVersion returns an error for all but semantic versions with a leading v. Metadata of a build, after a plus, cannot be a tag of an image.
func checkVersion(version string) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("VERSION is %q, want a semantic version such as v0.1.0 or v0.2.0-rc.1", version)
	}
	return nil
}

// A commit is what a release is built from.
type commit struct {
	hash    string
	time    time.Time
	isDirty bool
}

// revision returns the hash, with a suffix if the work tree differs from the commit.
func (c commit) revision() string {
	if c.isDirty {
		return c.hash + "-dirty"
	}
	return c.hash
}

func headOf(ctx context.Context, root string) (commit, error) {
	head, err := output(ctx, root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return commit{}, err
	}
	changes, err := output(ctx, root, nil, "git", "status", "--porcelain")
	if err != nil {
		return commit{}, err
	}
	hash, date, _ := strings.Cut(strings.TrimSpace(string(head)), " ")
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil {
		return commit{}, fmt.Errorf("read the date of commit %s: %w", hash, err)
	}
	return commit{hash: hash, time: time.Unix(seconds, 0).UTC(), isDirty: len(changes) > 0}, nil
}

// output runs a command in dir and returns what it prints.
func output(ctx context.Context, dir string, env []string, command string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", cmd, err)
	}
	return out, nil
}
