package simulator_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

var update = flag.Bool("update", false, "write the goldens of the scenarios")

// runs is how often each scenario must give the same.
const runs = 20

// TestScenarios runs every file against its golden. Those in testdata/next wait for the engine.
func TestScenarios(t *testing.T) {
	for _, path := range scenarios(t) {
		if strings.HasPrefix(path, filepath.Join("testdata", "next")) {
			continue
		}
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) { testScenario(t, path) })
	}
}

// TestScenariosParse reads every file, also those that wait for the engine.
func TestScenariosParse(t *testing.T) {
	for _, path := range scenarios(t) {
		s := parse(t, path)
		again, err := scenario.Parse(s.String())
		if err != nil {
			t.Fatalf("%s: printed and read again: %v", path, err)
		}
		if diff := scenario.Diff(s.String(), again.String()); diff != "" {
			t.Errorf("%s: printed and read again: -want +got\n%s", path, diff)
		}
	}
}

func scenarios(t *testing.T) []string {
	t.Helper()
	var paths []string
	err := filepath.WalkDir("testdata", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".txt" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios in testdata: %v", err)
	}
	return paths
}

func parse(t *testing.T, path string) *scenario.Scenario {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return s
}

func testScenario(t *testing.T, path string) {
	t.Helper()
	s := parse(t, path)
	var first string
	for i := range runs {
		result, err := simulator.Run(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, violation := range result.Violations {
			t.Error(violation)
		}
		if i == 0 {
			first = result.String()
		}
		if diff := scenario.Diff(first, result.String()); diff != "" {
			t.Fatalf("run %d differs from the first: -first +now\n%s", i+1, diff)
		}
	}
	if *update {
		s.Golden, s.HasGolden = first, true
		if err := os.WriteFile(path, []byte(s.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := scenario.Diff(s.Golden, first); diff != "" {
		t.Errorf("the golden differs, run make golden and review the change: -want +got\n%s", diff)
	}
}
