package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

func TestSimulate(t *testing.T) {
	dir := t.TempDir()
	script := "# One job in a queue.\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:1\nrun until=1m\n"
	files := map[string]string{
		"plain.txt":     script,
		"differs.txt":   script + "----\n0m admit b\nheld ml gpu 1/4: a 1\n",
		"broken.txt":    "# story\nquue ml gpu=4\n",
		"late.txt":      "# story\nchange queue ml gpu=4\n",
		"manifests.txt": "# The queues are those of a cluster.\nsubmit a queue=default namespace=team-a pods=nvidia.com/gpu:1\nrun until=1m\n",
	}
	for name, content := range files {
		write(t, filepath.Join(dir, name), content)
	}
	scenarios := filepath.Join("..", "..", "simulator", "testdata")
	cases := map[string]struct {
		args     []string
		wantCode int
		// wantOut and wantErr are parts of the output and of the error.
		wantOut, wantErr string
	}{
		"without a golden the timeline is printed": {[]string{filepath.Join(dir, "plain.txt")}, 0, "0m admit a\nheld ml gpu 1/4: a 1\nhash ", ""},
		"the golden is as expected":                {[]string{filepath.Join(scenarios, "safety", "two-halves.txt")}, 0, "1m admit a/train", ""},
		"the golden differs":                       {[]string{filepath.Join(dir, "differs.txt")}, 1, "0m admit a\n", "differs.txt: the timeline differs from the expected one (- expected, + actual):\n- 0m admit b\n+ 0m admit a\n  held"},
		"bad input":                                {[]string{filepath.Join(dir, "broken.txt")}, 2, "", `broken.txt: line 2: "quue" is no verb`},
		"bad input that shows later":               {[]string{filepath.Join(dir, "late.txt")}, 2, "", "late.txt: line 2: queue ml does not exist"},
		"no such file":                             {[]string{filepath.Join(dir, "nowhere.txt")}, 2, "", "nowhere.txt"},
		"no such manifests":                        {[]string{filepath.Join(dir, "plain.txt"), "-f", filepath.Join(dir, "nowhere")}, 2, "", "nowhere"},
		"manifests": {
			[]string{filepath.Join(dir, "manifests.txt"), "-f", filepath.Join("..", "..", "config", "samples", "queues")},
			0, "held team-a a100 nvidia.com/gpu 0/20", "",
		},
		"skipped objects are listed": {
			[]string{filepath.Join(dir, "plain.txt"), "-f", filepath.Join("..", "..", "config", "samples", "jobsets")},
			0, "skipped: JobSet team-a/fine-tune-llm (fine-tune-llm.yaml)", "",
		},
		"help explains the language": {[]string{"--help"}, 0, "submit NAME FIELD=VALUE...", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			cmd := newCommand()
			cmd.SetArgs(append([]string{"simulate"}, c.args...))
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			code, text := 0, ""
			if err != nil {
				code, text = exitcode.Of(err), err.Error()
			}
			if code != c.wantCode {
				t.Errorf("exit code %d, want %d: %v", code, c.wantCode, err)
			}
			if !strings.Contains(out.String(), c.wantOut) {
				t.Errorf("got %q, want something with %q", out.String(), c.wantOut)
			}
			if !strings.Contains(text, c.wantErr) {
				t.Errorf("error is %q, want something with %q", text, c.wantErr)
			}
		})
	}
}
