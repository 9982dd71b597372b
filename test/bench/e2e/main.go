// Package main is `make bench-e2e`: it runs a shape of load through the real manager binary on a real control plane, measures in the
// same run what the machine can do without a manager, and holds the figures against bounds.yaml.
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
	count   int
	atOnce  bool
	lives   int
	workDir string
	timeout time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.shape, "shape", "baseline-tenth", "name of a file in shapes, or path of another one")
	flag.IntVar(&o.count, "count", 1, "how many times to run it, each time on a new control plane")
	flag.BoolVar(&o.atOnce, "at-once", false, "submit everything at once instead of at the rate of the shape")
	flag.IntVar(&o.lives, "lives", 600, "how many quota Workloads to create, admit and finish to learn what the machine can do, before and again after")
	flag.StringVar(&o.workDir, "work-dir", "", "keep logs and data of the control plane in this directory")
	flag.DurationVar(&o.timeout, "timeout", 15*time.Minute, "give up on a run that takes longer")
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

// benchmark runs the shape as often as it is asked to and returns which bounds were exceeded.
func benchmark(ctx context.Context, o *options) ([]string, error) {
	s, name, err := loadShape(o)
	if err != nil {
		return nil, err
	}
	bounds, err := decodeBounds(boundsFile)
	if err != nil {
		return nil, err
	}
	var exceeded []string
	for range o.count {
		figures, err := measure(ctx, s, o)
		if err != nil {
			return exceeded, err
		}
		text := table(name, figures, bounds) + benchstat(name, figures)
		if _, err := os.Stdout.WriteString(text); err != nil {
			return exceeded, fmt.Errorf("print the figures: %w", err)
		}
		exceeded = append(exceeded, bounds.exceeded(name, figures)...)
	}
	return exceeded, nil
}

// loadShape returns the shape and the name under which its figures go.
func loadShape(o *options) (*shape.Shape, string, error) {
	read, path := shapes.ReadFile, "shapes/"+o.shape+".yaml"
	if strings.ContainsRune(o.shape, os.PathSeparator) {
		read, path = os.ReadFile, o.shape
	}
	data, err := read(path)
	if err != nil {
		return nil, "", fmt.Errorf("read shape: %w", err)
	}
	s, err := shape.Decode(data)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	name := strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".yaml")
	if o.atOnce {
		s.AllAtOnce()
		name += "-at-once"
	}
	return s, name, nil
}
