package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// twoPeers ran twice each. Only one run of Kueue wrote Events.
func twoPeers() []side {
	run := func(wall, cpu float64, others ...figure) []figure {
		figures := append([]figure{{name: "wall", value: wall, unit: "s"}}, others...)
		return append(figures, figure{name: "manager/cpu", value: cpu, unit: "s"})
	}
	return []side{
		{peer: tranche, runs: [][]figure{run(4, 1, figure{name: "violations", value: 1}), run(3, 2, figure{name: "violations", value: 2})}},
		{peer: "Kueue", runs: [][]figure{run(6, 4), run(8, 8, figure{name: "writes/POST events", value: 2, unit: "n/admission"})}},
	}
}

func TestPeersTable(t *testing.T) {
	const want = `| figure | unit | Tranche | Kueue |
|---|---|---|---|
| wall | s | 3.5 (3 to 4) | 7 (6 to 8) |
| violations |  | 1.5 (1 to 2) | 0 (0 to 0) |
| manager/cpu | s | 1.5 (1 to 2) | 6 (4 to 8) |
| writes/POST events | n/admission | 0 (0 to 0) | 1 (0 to 2) |
`
	if diff := cmp.Diff(want, peersTable(twoPeers())); diff != "" {
		t.Errorf("peersTable(): -want +got\n%s", diff)
	}
}

func TestPeersRatios(t *testing.T) {
	want := map[string]float64{"ratio/wall": 0.5, "ratio/manager/cpu": 0.25, "unfinished": 0, "violations": 3, "problems": 0, "driver/lag/p99": 0}
	got := map[string]float64{}
	for _, f := range peersRatios(twoPeers()) {
		got[f.name] = f.value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("peersRatios(): -want +got\n%s", diff)
	}
}
