package simulator

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis/visibility"
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
	t.Parallel()
	compared, noted, reserved, differing := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		file := RandomConfiguration(t)
		text, isRestarted, latest := RandomReservations(t), true, 1500
		if rapid.IntRange(0, 3).Draw(t, "of any kind") == 0 {
			latest = 4000
			text, isRestarted = RandomLimits(t)
		}
		text = ReserveQuota(t, file, text)
		s := limitedRun(t, text)
		if isRestarted {
			s.Course = &durations.Course{Cluster: s.Cluster}
		}
		s.Config = scenario.Config{Config: admission.ConfigOf(file), WaitForPodsReady: file.WaitForPodsReady}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := s.runUntil(time.Duration(rapid.IntRange(60, latest).Draw(t, "at")) * time.Second); err != nil {
			t.Fatal(err)
		}
		s.Engine.Advance(s.Time()) // as the visibility API does before it answers
		taken := snapshotOf(s)
		taken.Configuration = file
		read, reserving := reread(t, taken), reservingQueues(s, taken)
		for _, key := range PendingStages(taken, func(admission.StageKey) bool { return true }) {
			inspection, err := Inspect(read, key)
			if err != nil {
				t.Fatal(err)
			}
			got, isQueued := inspection.Why(key)
			want := Reason{}
			var isPending bool
			if want.Pending, isPending = s.Engine.PendingStage(key); isPending {
				want.Explanation, _ = s.Engine.Explanation(key)
			}
			part := Around(read, key)
			note := scope.Unshown(part)
			compared++
			if note != "" {
				noted++
			}
			if slices.ContainsFunc(part.ClusterQueues, func(q *kueue.ClusterQueue) bool { return reserving[q.Name] }) {
				reserved++
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
	t.Logf("%d answers, of which %d have a note, %d are about queues with a reservation for a stage that waits, and %d differ", compared, noted, reserved, differing)
	if compared == noted || noted == 0 {
		t.Errorf("%d of %d answers have a note: these worlds are too much alike", noted, compared)
	}
	if reserved*20 < compared {
		t.Errorf("only %d of %d answers are about queues with a reservation for a stage that waits", reserved, compared)
	}
}

// TestAnswerAfterAMinimumRuntime asks a manager why a stage waits, one second after the minimum runtime of another stage has passed that it may preempt. That
// alone does not let it in, so that the engine has decided nothing since. Like the visibility API, the test advances the time of the engine before it asks.
func TestAnswerAfterAMinimumRuntime(t *testing.T) {
	s := started(t, "# story\nqueue ml gpu=4 within=LowerPriority minimum-runtime=1m\nsubmit high queue=ml pods=2*gpu:1 priority=2\n"+
		"submit waits queue=ml pods=4*gpu:1 priority=1\nsubmit low queue=ml pods=2*gpu:1\n")
	key := admission.StageKey{Namespace: "default", Name: "waits"}
	const freeQuota = "waits for quota in ClusterQueue ml: needs 4 gpu of flavor default: 0 of 4 free"
	for _, c := range []struct {
		at   time.Duration
		want string
	}{
		{59 * time.Second, freeQuota + "; stages that it may preempt run for their minimum runtime first, the next until 2026-01-01T00:01:00Z"},
		{61 * time.Second, freeQuota},
	} {
		if err := s.runUntil(c.at); err != nil {
			t.Fatal(err)
		}
		s.Engine.Advance(s.Time())
		asked, _ := s.Engine.Explanation(key)
		inspection, err := Inspect(snapshotOf(s), key)
		if err != nil {
			t.Fatal(err)
		}
		read, _ := inspection.Why(key)
		if asked.Message != c.want || read.Message != c.want {
			t.Errorf("at %s the manager answers %q and a snapshot %q, want %q", c.at, asked.Message, read.Message, c.want)
		}
	}
}

// reservingQueues returns the ClusterQueues in which the manager reserves quota for a stage that waits: until its victims have left, or because it is the
// head of a StrictFIFO queue. Its answers about others name these reservations.
func reservingQueues(s *simulation, taken *snapshot.Snapshot) map[string]bool {
	queues := map[string]bool{}
	for _, key := range PendingStages(taken, func(admission.StageKey) bool { return true }) {
		e, _ := s.Engine.Explanation(key)
		if p, isPending := s.Engine.PendingStage(key); isPending && e.Check == "RoomIsMade" {
			queues[p.ClusterQueue] = true
		}
		for _, a := range e.Alternatives {
			for _, shortage := range a.Shortages {
				for _, h := range shortage.Holders {
					if h.Kept && !holdsQuota(taken, &h) {
						queues[h.ClusterQueue] = true
					}
				}
			}
		}
	}
	return queues
}

// holdsQuota reports whether a quota Workload of a holder has quota.
func holdsQuota(taken *snapshot.Snapshot, h *visibility.Holder) bool {
	return slices.ContainsFunc(taken.Workloads, func(w *kueue.Workload) bool {
		isItself := w.Name == h.Name || len(w.OwnerReferences) > 0 && w.OwnerReferences[0].Name == h.Name
		return isItself && w.Namespace == h.Namespace && quotaworkload.HoldsQuota(w)
	})
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
