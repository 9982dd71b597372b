package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/test/document"
)

// root is the root of the repository.
const root = "../.."

// TestDocumentCommands parses each command line of tranche in the documents: its verb and its flags exist, and a whole command line also has the
// arguments that it needs.
func TestDocumentCommands(t *testing.T) {
	blocks, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	parsed := 0
	for i := range blocks {
		if blocks[i].Language != "sh" {
			continue
		}
		for _, command := range blocks[i].Commands() {
			if line, isOurs := oursOf(command); isOurs {
				parsed++
				cmd := parse(t, blocks[i].String(), line)
				if cmd == nil {
					continue
				}
				if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
					t.Errorf("%s: %s: %v", &blocks[i], command, err)
				}
			}
		}
	}
	if parsed < 5 {
		t.Errorf("%d command lines of tranche in the documents, want at least 5", parsed)
	}
	files, err := document.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	inText := regexp.MustCompile("`([^`\n]+)`")
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range inText.FindAllStringSubmatch(string(text), -1) {
			if line, isOurs := oursOf(found[1]); isOurs {
				parse(t, file, line)
			}
		}
	}
}

// oursOf returns the words of a command line of tranche behind the name of the program.
func oursOf(command string) (words []string, isOurs bool) {
	command, _, _ = strings.Cut(command, " > ") // the shell writes the output to a file
	words = strings.Fields(command)
	if len(words) < 2 || words[0] != "tranche" && words[0] != "bin/tranche" {
		return nil, false
	}
	return words[1:], true
}

// parse checks the verb and the flags of a command line, and returns the command. It returns nil if they do not exist.
func parse(t *testing.T, place string, line []string) *cobra.Command {
	t.Helper()
	cmd, args, err := newCommand().Find(line)
	if err == nil {
		err = cmd.ParseFlags(args)
	}
	if err != nil {
		t.Errorf("%s: tranche %s: %v", place, strings.Join(line, " "), err)
		return nil
	}
	return cmd
}

// TestDocumentTraces replays each trace of the documents.
func TestDocumentTraces(t *testing.T) {
	blocks, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i := range blocks {
		if blocks[i].Language != "csv" {
			continue
		}
		ran++
		var out strings.Builder
		cmd := newCommand()
		cmd.SetArgs([]string{"simulate", "--trace", "-", "--quota", "nvidia.com/gpu=32,cpu=16"})
		cmd.SetIn(strings.NewReader(blocks[i].Text))
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", &blocks[i], err)
		}
		if strings.Contains(out.String(), "never starts") {
			t.Errorf("%s: %s", &blocks[i], &out)
		}
	}
	if ran == 0 {
		t.Error("the documents have no trace")
	}
}

// TestDocumentScenarios runs each scenario of the documents on the queues of the samples.
func TestDocumentScenarios(t *testing.T) {
	blocks, err := document.Blocks(root)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i := range blocks {
		if blocks[i].Language != "scenario" {
			continue
		}
		ran++
		file := filepath.Join(t.TempDir(), "scenario.txt")
		write(t, file, blocks[i].Text)
		var out strings.Builder
		cmd := newCommand()
		cmd.SetArgs([]string{"simulate", file, "-f", filepath.Join(root, "config", "samples", "queues")})
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", &blocks[i], err)
		}
		if !strings.Contains(out.String(), " admit ") || strings.Contains(out.String(), " refuse ") {
			t.Errorf("%s: want admissions and no refusal, got:\n%s", &blocks[i], &out)
		}
	}
	if ran == 0 {
		t.Error("the documents have no scenario")
	}
}
