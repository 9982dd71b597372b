// Package main is `make demo`: it brings a real control plane up with fake GPU nodes, installs Tranche from the manifests in config,
// submits the sample JobSets of two teams, more than fit at once, and shows their stages. With -kueue the manager of Kueue admits the stages, and
// Jobs of its own in the same cohort, until Tranche takes the cohort over.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	copies  = 3
	timeout = 5 * time.Minute
)

func main() {
	keep := flag.Bool("keep", false, "keep the cluster running after the demo, until interrupted")
	beside := flag.Bool("kueue", false, "run beside the manager of Kueue, which admits stages and Jobs of its own, until Tranche takes their cohort over")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	show := scene{
		start: setUp, play: play, again: "make demo KEEP=1",
		ideas: []string{
			"kubectl create -f config/samples/jobsets/fine-tune-llm.yaml   # stages",
			"kubectl create -f config/samples/jobsets/group-start.yaml     # pods that start together",
			"kubectl apply -k config/samples/podgroups                     # pods that are admitted together",
		},
	}
	if *beside {
		show = besideScene()
	}
	finish := show.suggestKeep
	if *keep {
		finish = show.awaitInterrupt
	}
	if err := run(ctx, show, finish); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// A scene starts a cluster and plays a script in it.
type scene struct {
	start func(context.Context) (*testenv.World, error)
	play  func(context.Context, *testenv.World) error
	// again is the command that keeps the cluster, and ideas are commands to try in it.
	again string
	ideas []string
}

// run starts everything, plays the script, and calls finish before it stops everything.
func run(ctx context.Context, show scene, finish func(context.Context, *testenv.World)) error {
	w, err := show.start(ctx)
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // the process ends, and everything with it
	if err := show.play(ctx, w); err != nil {
		return err
	}
	finish(ctx, w)
	return nil
}

func (s *scene) suggestKeep(context.Context, *testenv.World) {
	say("To keep the cluster for kubectl after the demo, run `%s`.", s.again)
}

func (s *scene) awaitInterrupt(ctx context.Context, w *testenv.World) {
	say("The cluster is still running. In another terminal:")
	say("  export KUBECONFIG=%s PATH=%s:%s:$PATH", w.AdminKubeconfig, w.Plane.BinDir(), filepath.Join(w.Root, "bin"))
	say("  kubectl get jobsets,kwl -A")
	for _, command := range s.ideas {
		say("  %s", command)
	}
	say("Press Ctrl-C to stop.")
	<-ctx.Done()
}

func setUp(ctx context.Context) (*testenv.World, error) {
	say("Starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, JobSet and kwok ...")
	began := time.Now()
	w, err := testenv.Start(ctx, controlplane.Config{NodePools: pools()})
	if err != nil {
		return nil, err
	}
	// Those of other schedulers, for the sample of pods in a PodGroup.
	if err := w.InstallPodGroups(); err != nil {
		return nil, stopped(w, err)
	}
	say("Ready after %s, with the CRDs, RBAC and admission policies from config/.", seconds(time.Since(began)))
	return w, nil
}

// stopped stops what has been started before an error.
func stopped(w *testenv.World, err error) error { return errors.Join(err, w.Stop()) }

// pools are the fake nodes: plain ones, and two with 8 GPUs for each team.
func pools() []controlplane.NodePool {
	plain := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi")}
	gpus := plain.DeepCopy()
	gpus[gpu] = resource.MustParse("8")
	return []controlplane.NodePool{
		{Name: "cpu", Count: 2, Allocatable: plain},
		{Name: "a100", Count: 12, Labels: map[string]string{"accelerator": "a100"}, Allocatable: gpus},
	}
}

// play runs the manager and the JobSets, and reports.
func play(ctx context.Context, w *testenv.World) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	script, err := loadScript(ctx, w)
	if err != nil {
		return err
	}
	// It is ended with the control plane, so that KEEP=1 leaves it running.
	if _, err := w.StartManager(ctx, testenv.ManagerOptions{}); err != nil {
		return err
	}
	say("The manager runs as user %s.", testenv.ManagerUser)
	observer, err := observe(ctx, w)
	if err != nil {
		return err
	}
	if err := script.submit(ctx, w); err != nil {
		return err
	}
	say("%s.\n", script)
	if err := show(ctx, observer, len(script.jobSets)); err != nil {
		return err
	}
	whole, err := script.wholeJobSets(observer)
	if err != nil {
		return err
	}
	summarize(observer.totals(), whole)
	return nil
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stdout, format+"\n", args...)
}

func seconds(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
