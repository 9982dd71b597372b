package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// peersPrefix begins the name under which the figures of a comparison with Kueue go.
const peersPrefix = "peers/"

// A peer is a manager that admits quota Workloads through Kueue's API.
type peer struct {
	// name is that of a column.
	name string
	// kueue configures Kueue's manager. Nil means Tranche's, with its defaults.
	kueue *controlplane.KueueOptions
}

// tranche is the name of the peer that the others are compared with.
const tranche = "Tranche"

// peers are in the order in which they run.
var peers = []peer{
	{name: "Kueue", kueue: kueueWith(300, 500)}, // the limits of its manifests
	{name: tranche},
	{name: "Kueue without a client limit", kueue: kueueWith(-1, 1)},
}

func kueueWith(qps float64, burst int) *controlplane.KueueOptions {
	return &controlplane.KueueOptions{Settings: map[string]any{"clientConnection": map[string]any{"qps": qps, "burst": burst}}}
}

// A side has the figures of all runs of a peer, in the order in which they are reported.
type side struct {
	peer string
	runs [][]figure
}

// comparePeers runs a shape with each peer in turn, each time on a new control plane, prints the figures of each run, then all side by side, and returns Tranche's as multiples of
// those of Kueue without a client limit.
func comparePeers(ctx context.Context, s *shape.Shape, o *options) ([]figure, error) {
	sides := make([]side, len(peers))
	for round := range o.count {
		for i, p := range peers {
			fmt.Fprintf(os.Stderr, "bench-peers: round %d of %d: %s ...\n", round+1, o.count, p.name)
			found, err := p.measure(ctx, s, o)
			if err != nil {
				return nil, fmt.Errorf("run %s: %w", p.name, err)
			}
			figures := peerFigures(s, found)
			sides[i].peer = p.name
			sides[i].runs = append(sides[i].runs, figures)
			if _, err := os.Stdout.WriteString(benchstat(peersPrefix+strings.ReplaceAll(p.name, " ", "-"), figures)); err != nil {
				return nil, fmt.Errorf("print the figures of %s: %w", p.name, err)
			}
		}
	}
	if _, err := os.Stdout.WriteString(peersTable(sides)); err != nil {
		return nil, fmt.Errorf("print the comparison: %w", err)
	}
	return peersRatios(sides), nil
}

// measure runs a shape with this manager alone. The rate of the machine without a manager is not measured: Kueue's webhooks refuse all writes while it does
// not run.
func (p *peer) measure(ctx context.Context, s *shape.Shape, o *options) (found *results, err error) {
	err = (&site{queues: queuesOf(s), kueue: p.kueue}).open(ctx, o, func(r *run) error {
		r.shape = s
		found = &results{driver: newDriver(r.api, s)}
		following, cancel := context.WithCancel(ctx)
		defer cancel()
		if err := found.driver.follow(following, r.world.Admin); err != nil {
			return err
		}
		if p.kueue == nil {
			manager, err := r.startManager(ctx)
			if err != nil {
				return err
			}
			defer manager.Stop() //nolint:errcheck // the control plane ends with it
			return r.drive(ctx, found, o.timeout)
		}
		// Kueue leaves the reservation of an evicted quota Workload to the controller of its job, which reacts at once.
		found.driver.grace, r.manager = 0, r.world.Plane.PID(controlplane.Kueue)
		if err := r.awaitPrepared(ctx); err != nil {
			return err
		}
		return r.drive(ctx, found, o.timeout)
	})
	return found, err
}

// peerFigures are those that every peer has.
func peerFigures(s *shape.Shape, found *results) []figure {
	figures := append([]figure{seconds("wall", found.wall)}, service(s, found)...)
	return append(append(figures, writes(found)...), costs(found)...)
}

// valuesOf returns the values of a figure in all runs of a side, in ascending order. A request that a run has not seen is 0.
func (s *side) valuesOf(name string) []float64 {
	var values []float64
	for _, run := range s.runs {
		value := 0.0
		if i := slices.IndexFunc(run, func(f figure) bool { return f.name == name }); i >= 0 {
			value = run[i].value
		}
		values = append(values, value)
	}
	slices.Sort(values)
	return values
}

// median is the middle value of a figure, or the mean of the two in the middle.
func (s *side) median(name string) float64 {
	values := s.valuesOf(name)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// peersTable renders the figures of all sides as a table in Markdown: the median, and where there are several runs the least and the largest.
func peersTable(sides []side) string {
	var out strings.Builder
	out.WriteString("| figure | unit |")
	for i := range sides {
		fmt.Fprintf(&out, " %s |", sides[i].peer)
	}
	out.WriteString("\n|---|---|" + strings.Repeat("---|", len(sides)) + "\n")
	for _, f := range allFigures(sides) {
		fmt.Fprintf(&out, "| %s | %s |", f.name, f.unit)
		for i := range sides {
			values := sides[i].valuesOf(f.name)
			fmt.Fprintf(&out, " %.4g", sides[i].median(f.name))
			if last := len(values) - 1; last > 0 {
				fmt.Fprintf(&out, " (%.4g to %.4g)", values[0], values[last])
			}
			out.WriteString(" |")
		}
		out.WriteString("\n")
	}
	return out.String()
}

// allFigures has each figure of any run once.
func allFigures(sides []side) []figure {
	var all []figure
	for i := range sides {
		for _, f := range slices.Concat(sides[i].runs...) {
			if !slices.ContainsFunc(all, func(known figure) bool { return known.name == f.name }) {
				all = append(all, f)
			}
		}
	}
	return all
}

// peersRatios are figures of Tranche as multiples of those of Kueue without a client limit, which is the faster one, and what must not happen to any peer.
func peersRatios(sides []side) []figure {
	ours := &sides[slices.IndexFunc(sides, func(s side) bool { return s.peer == tranche })]
	theirs := &sides[len(sides)-1]
	var figures []figure
	for _, f := range allFigures(sides) {
		name := f.name
		isMean := strings.HasPrefix(name, "admission/") && strings.HasSuffix(name, "/mean")
		if isMean || slices.Contains([]string{"wall", "writes", "manager/cpu", "apiserver/cpu", "manager/peak-rss"}, name) {
			figures = append(figures, figure{
				name: "ratio/" + name, value: ours.median(name) / theirs.median(name), unit: "x", note: "by that of " + theirs.peer,
			})
		}
	}
	for _, name := range []string{"unfinished", "violations", "problems"} {
		total := figure{name: name, unit: "n", note: "of " + tranche}
		for _, value := range ours.valuesOf(name) {
			total.value += value
		}
		figures = append(figures, total)
	}
	late := figure{name: "driver/lag/p99", unit: "ms", note: "the largest of all runs"}
	for i := range sides {
		late.value = max(late.value, slices.Max(sides[i].valuesOf(late.name)))
	}
	return append(figures, late)
}
