package explain_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// A search finds what the verb prints, about the quota Workloads that are pending, and changes no object: those of the manager belong to its cache.
func TestSearch(t *testing.T) {
	s, waits := snapshotOf(t), admission.StageKey{Namespace: "ml", Name: "waits"}
	before := textOf(t, s)
	found, err := explain.Search(t.Context(), s, &simulator.Durations{}, []admission.StageKey{waits, {Namespace: "ml", Name: "runs"}}, simulator.Bound{Workloads: 10})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"raise nominalQuota of cpu of flavor h100 in ClusterQueue gpus by 1, from 4 to 5",
		"Workload ml/runs ends (3 cpu of flavor h100 in ClusterQueue gpus, expected by 2026-01-01 12:00:00Z)",
	}
	if len(found) != 1 || found[waits] == nil {
		t.Fatalf("found %v", found)
	}
	if diff := cmp.Diff(want, found[waits].Texts()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(before, textOf(t, s)); diff != "" {
		t.Errorf("objects have changed: -before +after\n%s", diff)
	}
}

// textOf returns the objects that a simulation changes, as text.
func textOf(t *testing.T, s *snapshot.Snapshot) string {
	t.Helper()
	text, err := json.MarshalIndent([]any{s.Workloads, s.JobSets, s.Jobs, s.Pods, s.ClusterQueues, s.Cohorts}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A search in queues beyond the limit is not made, and one whose time has expired ends.
func TestSearchIsLimited(t *testing.T) {
	s, waits := snapshotOf(t), []admission.StageKey{{Namespace: "ml", Name: "waits"}}
	_, err := explain.Search(t.Context(), s, &simulator.Durations{}, waits, simulator.Bound{Workloads: 1, Setting: "a.b"})
	if want := "the tree of ClusterQueue gpus has 2 quota Workloads, more than 1 (a.b): no simulated answer"; !errors.Is(err, simulator.ErrTooLarge) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := explain.Search(ctx, s, &simulator.Durations{}, waits, simulator.Bound{Workloads: 10}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v, want %v", found, err, context.Canceled)
	}
}

func snapshotOf(t *testing.T) *snapshot.Snapshot {
	t.Helper()
	s, err := snapshot.ReadStream("queues", strings.NewReader(queues))
	if err != nil {
		t.Fatal(err)
	}
	s.TakenAt = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
	return s
}
