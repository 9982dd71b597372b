package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
)

// TestBarrier: the command ends with a code for each outcome, and writes the error to the termination message. The tests of package barrier
// cover the protocol.
func TestBarrier(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "token"), "t")
	write(t, filepath.Join(dir, "pods"), "64")
	write(t, filepath.Join(dir, "released"), "b.1\na.1\n")
	cases := map[string]struct {
		args     []string
		signal   string
		wantCode int
		// want is a part of the error, and of the termination message.
		want string
	}{
		"released":       {[]string{"--timeout=1h", "--signal=a.1"}, "", 0, ""},
		"by environment": {[]string{"--timeout=1h"}, "b.1", 0, ""},
		"timeout":        {[]string{"--timeout=1ms", "--signal=a.2"}, "", 3, "timed out after 1ms: not all of the 64 pods of the group had started"},
		"no signal":      {[]string{"--timeout=1h"}, "", 1, "--signal or $TRANCHE_SIGNAL must be set"},
		"no timeout":     {[]string{"--signal=a.1"}, "", 1, "--timeout is 0s"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TRANCHE_SIGNAL", c.signal)
			log := filepath.Join(t.TempDir(), "termination-log")
			write(t, log, "")
			cmd := newCommand()
			cmd.SetArgs(append([]string{"barrier", "--dir", dir, "--termination-log", log}, c.args...))
			cmd.SetErr(&bytes.Buffer{})
			err := cmd.ExecuteContext(t.Context())
			code := 0
			if err != nil {
				code = exitcode.Of(err)
			}
			if code != c.wantCode {
				t.Errorf("code %d (%v), want %d", code, err, c.wantCode)
			}
			message, readErr := os.ReadFile(log)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if !strings.Contains(string(message), c.want) || (err == nil) != (len(message) == 0) {
				t.Errorf("termination message %q, want %q", message, c.want)
			}
		})
	}
}
