package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator"
)

// course returns what happens to a quota Workload: starts and evictions in turn, in minutes. A first start of -1 was before the snapshot.
func course(end simulator.End, minutes ...int) *simulator.History {
	h := &simulator.History{Record: simulator.Record{Workload: admission.StageKey{Namespace: "ns", Name: "w"}, End: end}}
	for i, minute := range minutes {
		switch at := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute); {
		case minute < 0:
			h.IsAdmitted = true
		case i%2 == 0:
			h.Starts = append(h.Starts, at)
		default:
			h.Evictions = append(h.Evictions, simulator.Eviction{At: at, Reason: "Preempted"})
		}
	}
	return h
}

// TestCompareEvictions compares courses without and with a change. Only an eviction that lets a start be later than without the change does harm.
func TestCompareEvictions(t *testing.T) {
	const waits, holds, finished = simulator.Waits, simulator.Holds, simulator.Finished
	for name, c := range map[string]struct {
		was, now *simulator.History
		want     []Kind
		severity Severity
	}{
		"earlier, preempted, again at the same time":        {course(finished, 20), course(finished, 5, 10, 20), []Kind{Restarted, Earlier}, Follows},
		"earlier, preempted, again earlier than without":    {course(finished, 20), course(finished, 5, 10, 15), []Kind{Restarted, Earlier}, Follows},
		"earlier, preempted, again later than without":      {course(finished, 20), course(finished, 5, 10, 25), []Kind{Evicted, Earlier}, Harms},
		"earlier, preempted, not again":                     {course(finished, 20), course(waits, 5, 10), []Kind{Evicted, Earlier}, Harms},
		"twice preempted, again in time":                    {course(finished, 20), course(finished, 5, 6, 7, 8, 20), []Kind{Restarted, Restarted, Earlier}, Follows},
		"twice preempted, the second time for too long":     {course(finished, 20), course(finished, 5, 6, 7, 8, 21), []Kind{Evicted, Evicted, Earlier}, Harms},
		"started only with the change, preempted, again":    {course(waits), course(holds, 5, 10, 15), []Kind{Restarted, NewlyAdmitted}, Follows},
		"started only with the change, preempted, no more":  {course(waits), course(waits, 5, 10), []Kind{Evicted, NewlyAdmitted}, Harms},
		"ran before the snapshot, preempted, again":         {course(finished, -1), course(finished, -1, 10, 11), []Kind{Evicted}, Harms},
		"ran, preempted in both, and once more, in time":    {course(finished, -1, 5, 30), course(finished, -1, 5, 10, 15, 30), []Kind{Restarted, Earlier}, Follows},
		"ran, preempted in both, and once more, for longer": {course(finished, -1, 5, 30), course(finished, -1, 5, 10, 15, 31), []Kind{Evicted, Earlier}, Harms},
		"starts at the same time, preempted":                {course(finished, 20), course(finished, 20, 25, 30), []Kind{Evicted}, Harms},
		"new with the change, preempted":                    {course(simulator.Gone), course(finished, 5, 10, 15), []Kind{Evicted, NewlyAdmitted}, Harms},
		"preempted in both, later":                          {course(finished, -1, 5, 30), course(finished, -1, 6, 30), []Kind{EvictionMoved}, Follows},
		"preempted only without":                            {course(finished, -1, 5, 30), course(finished, -1), []Kind{NotEvicted}, Follows},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{Consequences: compare(&simulator.Outcome{Histories: []simulator.History{*c.was}}, &simulator.Outcome{Histories: []simulator.History{*c.now}})}
			var got []Kind
			for i := range p.Consequences {
				got = append(got, p.Consequences[i].Kind)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || p.Severity() != c.severity {
				t.Errorf("severity %d, want %d; kinds -want +got\n%s", p.Severity(), c.severity, diff)
			}
		})
	}
}
