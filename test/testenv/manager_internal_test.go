package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRaces: a data race in the log of any manager is an error.
func TestRaces(t *testing.T) {
	dir := t.TempDir()
	for name, log := range map[string]string{"manager-1": "started\n", "manager-2": "started\n==================\nWARNING: DATA RACE\nWrite at 0x1\n"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "log"), []byte(log), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := races(dir); (err != nil) != strings.Contains(log, "RACE") {
			t.Errorf("%s with log %q: %v", name, log, err)
		}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}
