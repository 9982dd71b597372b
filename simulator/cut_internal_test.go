package simulator

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/simulator/scenario"
)

// TestCutStepsChangeNothing kills the manager after each write of each Step of every scenario. The next manager continues from the objects, so
// that the run must be the same (I5).
func TestCutStepsChangeNothing(t *testing.T) {
	writes := 0
	err := filepath.WalkDir("testdata", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) != ".txt" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		script, err := scenario.Parse(string(text))
		if err != nil {
			return err
		}
		if strings.Contains(script.Script(), "\nfail-write ") {
			return nil // which write fails depends on what has been decided before
		}
		want, total := runCut(t, script, -1)
		for n := range total {
			writes++
			if got, _ := runCut(t, script, n); got != want {
				t.Errorf("%s: a manager that dies after %d writes changes the run: -want +got\n%s", path, n, scenario.Diff(want, got))
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if writes < 1000 {
		t.Errorf("the manager was killed after %d writes, want many more", writes)
	}
}

// runCut runs a scenario with a manager that dies after some writes. It returns what may not depend on that, and how many writes there were.
func runCut(t *testing.T, script *scenario.Scenario, diesAfter int) (lines string, writes int) {
	t.Helper()
	sim := newSimulation()
	sim.diesAfter = diesAfter
	result, err := sim.run(script, nil)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, line := range result.Lines {
		// A new engine reports the free quota to every pending stage.
		if !strings.HasPrefix(line, "hash ") && !strings.Contains(line, " refuse ") {
			kept = append(kept, line)
		}
	}
	// What happens at the same time may happen in another order.
	slices.Sort(kept)
	return strings.Join(append(kept, result.Violations...), "\n"), sim.writes
}
