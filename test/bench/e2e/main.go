// Package main is `make bench-e2e`: it runs a shape of load through the real manager binary on a real control plane, measures in the same
// run the rate of the machine without a manager, and compares the figures with bounds.yaml. docs/benchmarks.md describes the shapes.
package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
)

//go:embed shapes/*.yaml
var shapes embed.FS

//go:embed bounds.yaml
var boundsFile []byte

// options are the flags.
type options struct {
	shape   string
	peers   bool
	count   int
	atOnce  bool
	workDir string
	// workloads is how many there are in the cluster that verbs answer about.
	workloads int
	timeout   time.Duration
	// of the comparison
	seed    uint64
	jobSets int
	out     string
	// inFlight is how many JobSets run at the same time in the shape handover.
	inFlight int
	// stageTime is how long the pod of each of their stages runs. They are submitted within that time, so that all are in flight and stages end at about the
	// same rate all the time.
	stageTime time.Duration
	// heldFor is how long the requests about held Jobs are counted.
	heldFor time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.shape, "shape", "baseline-tenth", "names of files in shapes, paths of others, staged, guards, stages, handover, held, mixed, verbs or start; separated by commas")
	flag.BoolVar(&o.peers, "peers", false, "run shapes of files with Kueue's manager as well, and compare")
	flag.IntVar(&o.count, "count", 1, "how many times to run it, each time on a new control plane")
	flag.BoolVar(&o.atOnce, "at-once", false, "submit everything at once instead of at the rate of the shape")
	flag.StringVar(&o.workDir, "work-dir", "", "keep logs and data of the control plane in this directory")
	flag.DurationVar(&o.timeout, "timeout", 15*time.Minute, "give up on a run that takes longer")
	flag.IntVar(&o.workloads, "workloads", 100_000, "verbs and start: how many quota Workloads the cluster has, 100 in each ClusterQueue")
	flag.Uint64Var(&o.seed, "seed", 1, "staged and mixed: what the JobSets are drawn from")
	flag.IntVar(&o.jobSets, "jobsets", 24, "staged: how many JobSets there are")
	flag.StringVar(&o.out, "out", "bin/comparison", "staged: write the measurements to this path with .json, and the plot with .svg")
	flag.IntVar(&o.inFlight, "in-flight", 100, "handover: how many JobSets run at the same time")
	flag.DurationVar(&o.stageTime, "stage-time", time.Minute, "handover: how long each of their stages runs")
	flag.DurationVar(&o.heldFor, "held-for", 10*time.Minute, "held: how long the requests about held Jobs are counted")
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exceeded, err := benchmark(ctx, &o)
	for _, breach := range exceeded {
		fmt.Fprintln(os.Stderr, "bench-e2e: out of bounds:", breach)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-e2e:", err)
	}
	if err != nil || len(exceeded) > 0 {
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// benchmark runs the shapes as often as it is asked to and returns which bounds were exceeded.
func benchmark(ctx context.Context, o *options) ([]string, error) {
	bounds, err := decodeBounds(boundsFile)
	if err != nil {
		return nil, err
	}
	var exceeded []string
	for name := range strings.SplitSeq(o.shape, ",") {
		once, name, err := load(o, name)
		if err != nil {
			return exceeded, err
		}
		for range o.rounds() {
			figures, err := once(ctx)
			if err != nil {
				return exceeded, err
			}
			text := table(name, figures, bounds) + benchstat(name, figures)
			if _, err := os.Stdout.WriteString(text); err != nil {
				return exceeded, fmt.Errorf("print the figures: %w", err)
			}
			exceeded = append(exceeded, bounds.exceeded(name, figures)...)
		}
	}
	return exceeded, nil
}

// The shapes without a file.
const (
	comparisonShape = "staged" // whole and staged admission of the same JobSets
	guardsShape     = "guards" // writes with the admission policies and without
	stagesShape     = "stages" // long JobSets with a queue and without
	handoverShape   = "handover"
	heldShape       = "held"
	mixedShape      = "mixed"
	verbsShape      = "verbs"
	startShape      = "start"
)

var namedShapes = map[string]func(context.Context, *options) ([]figure, error){
	comparisonShape: compareOnce, guardsShape: measureGuards, stagesShape: measureStages, handoverShape: measureHandover, heldShape: measureHeld,
	mixedShape: measureMixed, verbsShape: measureVerbs, startShape: measureStart,
}

// load returns how to run a shape once, and the name under which its figures go.
func load(o *options, name string) (func(context.Context) ([]figure, error), string, error) {
	if o.peers {
		s, label, err := loadShape(o, name)
		return func(ctx context.Context) ([]figure, error) { return comparePeers(ctx, s, o) }, peersPrefix + label, err
	}
	if run, ok := namedShapes[name]; ok {
		return func(ctx context.Context) ([]figure, error) { return run(ctx, o) }, name + suffix(o), nil
	}
	s, label, err := loadShape(o, name)
	return func(ctx context.Context) ([]figure, error) { return measure(ctx, s, o) }, label, err
}

// rounds is how many times a shape is loaded. A comparison of peers repeats each of them itself, and is one.
func (o *options) rounds() int {
	if o.peers {
		return 1
	}
	return o.count
}

func suffix(o *options) string {
	if o.atOnce {
		return "-at-once"
	}
	return ""
}

// loadShape returns the shape and the name under which its figures go.
func loadShape(o *options, name string) (*shape.Shape, string, error) {
	read, path := shapes.ReadFile, "shapes/"+name+".yaml"
	if strings.ContainsRune(name, os.PathSeparator) {
		read, path = os.ReadFile, name
	}
	data, err := read(path)
	if err != nil {
		return nil, "", fmt.Errorf("read shape: %w", err)
	}
	s, err := shape.Decode(data)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	if o.atOnce {
		s.AllAtOnce()
	}
	return s, strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".yaml") + suffix(o), nil
}
