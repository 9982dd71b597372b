package simulator

import (
	"bytes"
	"io"
	"testing"
	"testing/fstest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator/internal/durations"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/scope"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// TestSnapshotsAnswerLikeTheManager compares the answers of a manager that has run for some time with those that tranche explain gives from the files of a
// snapshot: position, reason, message and amounts of every pending stage. The worlds have cohort trees, preemption, fair sharing, StrictFIFO, all policies
// of stages, and gangs.
//
// An answer may differ only where quota is reserved in the memory of the manager, which no object shows: Unshown names these cases, and the answer has
// it as a note. Even there both have the same queue and priority.
func TestSnapshotsAnswerLikeTheManager(t *testing.T) {
	compared, noted, differing := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		file := RandomConfiguration(t)
		text, isRestarted := RandomLimits(t)
		s := limitedRun(t, text)
		if isRestarted {
			s.Course = &durations.Course{Cluster: s.Cluster}
		}
		s.Config = scenario.Config{Config: admission.ConfigOf(file), WaitForPodsReady: file.WaitForPodsReady}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := s.runUntil(time.Duration(rapid.IntRange(60, 4000).Draw(t, "at")) * time.Second); err != nil {
			t.Fatal(err)
		}
		taken := snapshotOf(s)
		taken.Configuration = file
		read := reread(t, taken)
		for _, key := range PendingStages(taken, func(admission.StageKey) bool { return true }) {
			study, err := NewStudy(read, &Durations{}, key)
			if err != nil {
				t.Fatal(err)
			}
			got, isQueued := study.Why(key)
			want := Reason{}
			var isPending bool
			if want.Pending, isPending = s.Engine.PendingStage(key); isPending {
				want.Explanation, _ = s.Engine.Explanation(key)
			}
			note := scope.Unshown(influencing(read, []admission.StageKey{key}))
			compared++
			if note != "" {
				noted++
			}
			diff := gocmp.Diff(want, got)
			if isQueued == isPending && diff == "" {
				continue
			}
			if note == "" {
				t.Fatalf("%s is in a queue: %t, in the snapshot: %t, and nothing is reserved unseen: -manager +snapshot\n%s\n%s", key, isPending, isQueued, diff, text)
			}
			differing++
			if isQueued && isPending && (got.ClusterQueue != want.ClusterQueue || got.LocalQueue != want.LocalQueue || got.Priority != want.Priority) {
				t.Fatalf("%s waits elsewhere: -manager +snapshot\n%s\n%s", key, diff, text)
			}
		}
	})
	t.Logf("%d answers, of which %d have a note, and %d differ", compared, noted, differing)
	if compared == noted || noted == 0 {
		t.Errorf("%d of %d answers have a note: these worlds are too much alike", noted, compared)
	}
}

// limitedRun returns a simulation of a scenario of RandomLimits that has not been started.
func limitedRun(t *rapid.T, text string) *simulation {
	script, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	s := newSimulation()
	if err := s.start(script, nil); err != nil {
		t.Fatal(err)
	}
	jobcontrollers.AnswerChecks(s.Cluster, 0)
	for i := range script.Lines {
		if err := s.schedule(&script.Lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := scheduleGangs(s, text); err != nil {
		t.Fatal(err)
	}
	return s
}

// reread returns a snapshot as it is read from the files to which it was written.
func reread(t *rapid.T, s *snapshot.Snapshot) *snapshot.Snapshot {
	buffers := map[string]*bytes.Buffer{}
	err := s.Write(func(name string) (io.WriteCloser, error) {
		buffers[name] = &bytes.Buffer{}
		return unclosed{buffers[name]}, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, content := range buffers {
		files[name] = &fstest.MapFile{Data: content.Bytes()}
	}
	read, err := snapshot.ReadDir(files)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// unclosed is a file whose contents stay when it is closed.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }
