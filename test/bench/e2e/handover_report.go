package main

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/test/bench/e2e/ledger"
)

// handoverFigures reports how long the parts of the handovers took in a queue and without one, and the requests for each stage.
func handoverFigures(queued, stock *handoverRun, inFlight int) []figure {
	var figures []figure
	for _, part := range []struct {
		name string
		of   func(*handover) time.Duration
	}{
		{"job-created", func(h *handover) time.Duration { return h.created }},
		{"stage-open", func(h *handover) time.Duration { return h.opened }},
		{"admitted", func(h *handover) time.Duration { return h.admitted }},
		{"released", func(h *handover) time.Duration { return h.released }},
		{"pod", func(h *handover) time.Duration { return h.pod }},
	} {
		with, without := partTimes(queued.handover, part.of), partTimes(stock.handover, part.of)
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			name := part.name + "/" + q.name
			figures = append(figures, millis("queued/"+name, ledger.Quantile(with, q.at)))
			if base := ledger.Quantile(without, q.at); base > 0 {
				figures = append(
					figures, millis("stock/"+name, base),
					figure{name: "ratio/" + name, value: float64(ledger.Quantile(with, q.at)) / float64(base), unit: "x", note: "queued by stock"},
				)
			}
		}
	}
	missing := 2*inFlight*(handoverStages-1) - len(queued.handover) - len(stock.handover)
	figures = append(figures, figure{name: "unfinished", value: float64(missing), unit: "n", note: "handovers that were not observed"})
	for _, ran := range []*handoverRun{queued, stock} {
		figures = append(figures, ran.requests.figures(ran.name, inFlight*handoverStages, "n/stage")...)
	}
	return figures
}

// partTimes returns the times of one part of all handovers, sorted, without those that do not have it.
func partTimes(all []handover, of func(*handover) time.Duration) []time.Duration {
	var times []time.Duration
	for i := range all {
		if d := of(&all[i]); d != 0 {
			times = append(times, d)
		}
	}
	slices.Sort(times)
	return times
}
