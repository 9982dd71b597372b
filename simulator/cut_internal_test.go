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

// racing has the scenarios in which the order counts in which several JobSets open a stage at the same time. A manager that dies between them
// has opened some of these stages, and the next one decides before it opens the others.
var racing = []string{"testdata/strict/later-stage-blocks.txt"}

// TestCutStepsChangeNothing kills the manager after each write of each Step of every scenario. The next manager continues from the objects, so
// that the run must be the same (I5).
func TestCutStepsChangeNothing(t *testing.T) {
	err := filepath.WalkDir("testdata", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".txt" && !slices.Contains(racing, path) {
			t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
				t.Parallel()
				testCuts(t, path)
			})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testCuts(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	script, err := scenario.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(script.Script(), "\nfail-write ") {
		return // which write fails depends on what has been decided before
	}
	want, writes := runCut(t, script, -1)
	if strings.Contains(script.Script(), "stages=") && writes == 0 {
		t.Fatal("no Step writes anything")
	}
	for n := range writes {
		if got, _ := runCut(t, script, n); got != want {
			t.Fatalf("a manager that dies after %d writes changes the run: -want +got\n%s", n, scenario.Diff(want, got))
		}
	}
}

// runCut runs a scenario with a manager that dies after some writes. It returns what may not depend on that, and how many writes there were.
func runCut(t *testing.T, script *scenario.Scenario, diesAfter int) (lines string, writes int) {
	t.Helper()
	sim := newSimulation()
	sim.DiesAfter = diesAfter
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
	return strings.Join(append(kept, result.Violations...), "\n"), sim.Writes
}
