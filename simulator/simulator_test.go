package simulator_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

var update = flag.Bool("update", false, "write the goldens of the scenarios")

// runs is how often each scenario must give the same.
const runs = 10

// TestScenarios runs every file against its golden.
func TestScenarios(t *testing.T) {
	for _, path := range scenarios(t) {
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
			t.Parallel()
			testScenario(t, path)
		})
	}
}

// expected returns the lines below the comments "# expect:".
func expected(s *scenario.Scenario) []string {
	var all []string
	expecting := false
	for i := range s.Lines {
		comment := s.Lines[i].Comment
		if comment == "# expect:" || len(s.Lines[i].Words) > 0 {
			expecting = comment == "# expect:"
			continue
		}
		if want, isComment := strings.CutPrefix(comment, "# "); expecting && isComment {
			all = append(all, want)
		}
	}
	return all
}

// unmet returns the first expected line that the timeline does not have after the lines before it, or "". Three dots in it stand for anything.
func unmet(all []string, timeline string) string {
	lines := strings.Split(timeline, "\n")
	for _, want := range all {
		at := slices.IndexFunc(lines, func(line string) bool { return matches(line, want) })
		if at < 0 {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}

func matches(line, pattern string) bool {
	parts := strings.Split(pattern, "...")
	if len(parts) == 1 {
		return line == pattern
	}
	rest, ok := strings.CutPrefix(line, parts[0])
	for _, part := range parts[1:] {
		var found bool
		_, rest, found = strings.Cut(rest, strings.TrimSpace(part))
		ok = ok && found
	}
	return ok
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
	want := expected(s)
	if len(want) == 0 {
		t.Error("no lines below the comment \"# expect:\" state the point of the scenario")
	}
	if missing := unmet(want, first); missing != "" {
		t.Errorf("the run should tell, after the lines before it, of %q, and is:\n%s", missing, first)
	}
	if diff := scenario.Diff(s.Golden, first); diff != "" {
		t.Errorf("the golden differs, run make golden and review the change: -want +got\n%s", diff)
	}
}

// TestCrashesChangeNothing kills the engine at each time at which a scenario has something to tell. Everything must go on as if
// nothing had been (I5).
func TestCrashesChangeNothing(t *testing.T) {
	for _, path := range scenarios(t) {
		t.Run(strings.TrimPrefix(path, "testdata/"), func(t *testing.T) {
			t.Parallel()
			s := parse(t, path)
			if strings.Contains(s.Script(), "\nfail-write ") {
				// Which write fails depends on what has been decided before.
				return
			}
			want := withoutCrashes(t, s)
			for _, at := range times(want) {
				if diff := scenario.Diff(want, withoutCrashes(t, withCrash(t, s, at))); diff != "" {
					t.Errorf("a crash at %s changes the run: -want +got\n%s", at, diff)
				}
			}
		})
	}
}

// withCrash puts a crash before the first run line, so that it comes after everything that is planned for the same time.
func withCrash(t *testing.T, s *scenario.Scenario, at string) *scenario.Scenario {
	t.Helper()
	var lines []string
	crashed := false
	for _, line := range strings.SplitAfter(s.Script(), "\n") {
		if !crashed && (line == "" || strings.HasPrefix(line, "run") || strings.HasPrefix(line, "held\n")) {
			lines, crashed = append(lines, "crash at="+at+"\n"), true
		}
		lines = append(lines, line)
	}
	changed, err := scenario.Parse(strings.Join(lines, ""))
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// withoutCrashes runs a scenario and returns what a crash may not change.
func withoutCrashes(t *testing.T, s *scenario.Scenario) string {
	t.Helper()
	result, err := simulator.Run(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range result.Violations {
		t.Error(violation)
	}
	return timeline(result)
}

// timeline leaves out the lines that a crash may change: its own lines, the hash, and refusals, because a new engine reports the free quota
// to every pending stage, and the old one keeps them parked while no quota that they could use is released.
func timeline(result *simulator.Result) string {
	var lines []string
	for _, line := range result.Lines {
		if !strings.HasSuffix(line, " crash") && !strings.HasPrefix(line, "hash ") && !strings.Contains(line, " refuse ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// times are the first words of the lines of a timeline.
func times(timeline string) []string {
	var all []string
	for line := range strings.Lines(timeline) {
		at, _, _ := strings.Cut(line, " ")
		if at != "held" && !slices.Contains(all, at) {
			all = append(all, at)
		}
	}
	return all
}
