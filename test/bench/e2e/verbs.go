package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/test/bench/e2e/shape"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

const (
	// backlogTimeout limits how long the manager takes to count all quota Workloads once they exist.
	backlogTimeout = 10 * time.Minute
	// verbRounds is how often each question is asked in each place: the slowest answer counts.
	verbRounds = 3
)

// backlog returns the load: in each Cohort 10 ClusterQueues, which borrow from each other, with 100 quota Workloads each. A few hold all quota, and the
// others wait.
func backlog(total int) *shape.Shape {
	const queuesPerCohort, inQueue = 10, 100
	return &shape.Shape{
		Cohorts: max(total/(queuesPerCohort*inQueue), 1), QueuesPerCohort: queuesPerCohort,
		Queue: shape.Queue{
			Strategy: kueue.BestEffortFIFO, NominalCPU: resource.MustParse("8"), BorrowingLimitCPU: resource.MustParse("8"), LocalQueues: 1,
			ReclaimWithinCohort: kueue.PreemptionPolicyNever, WithinClusterQueue: kueue.PreemptionPolicyNever,
		},
		Classes: []shape.Class{
			{Name: "runs", Count: 1, Priority: 1, CPU: resource.MustParse("8")},
			{Name: "waits", Count: inQueue - 1, CPU: resource.MustParse("4")},
		},
	}
}

// measureVerbs fills a cluster with quota Workloads, and times the verbs that answer questions about it, with their peak memory.
func measureVerbs(ctx context.Context, o *options) (figures []figure, err error) {
	load := backlog(o.workloads)
	err = (&site{queues: backlogQueues(load)}).open(ctx, o, func(r *run) error {
		r.shape = load
		figures, err = r.measureVerbs(ctx)
		return err
	})
	return figures, err
}

// backlogQueues are queues that a manager has had before. In new ones it admits nothing before it has written the finalizer, one after the other, and those that
// come first would borrow what the others do not use yet.
func backlogQueues(load *shape.Shape) []client.Object {
	return queuesOf(load, kueue.ResourceInUseFinalizerName)
}

func (r *run) measureVerbs(ctx context.Context) (_ []figure, err error) {
	began := time.Now()
	if err := r.createBacklog(ctx); err != nil {
		return nil, err
	}
	figures := []figure{seconds("create", time.Since(began))}
	began = time.Now()
	manager, err := r.startVisibleManager(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	if err := r.awaitCounted(ctx); err != nil {
		return nil, err
	}
	figures = append(figures, seconds("counted", time.Since(began)))
	answers, err := r.ask(ctx)
	if err != nil {
		return nil, err
	}
	used, err := r.readServers()
	if err != nil {
		return nil, err
	}
	ofManager, err := readUsage(r.manager)
	return append(append(figures, answers...), mebibytes("manager/peak-rss", ofManager.peak), mebibytes("apiserver/peak-rss", used.apiserver.peak)), err
}

// startVisibleManager starts a manager that serves the visibility API, and that the driver does not slow down.
func (r *run) startVisibleManager(ctx context.Context) (*testenv.Manager, error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(port))
	if err := r.world.ServeVisibility(ctx, address); err != nil {
		return nil, err
	}
	return r.startWith(ctx, map[string]any{
		"clientConnection": map[string]any{"qps": 2000, "burst": 4000},
		"visibility":       map[string]any{"enable": true, "bindAddress": address},
	})
}

// createBacklog creates all quota Workloads, those that hold quota first.
func (r *run) createBacklog(ctx context.Context) error {
	for class := range r.shape.Classes {
		c, queues := &r.shape.Classes[class], r.shape.Queues()
		err := inParallel(c.Count*queues, func(i int) error {
			queue := i % queues
			w := quotaWorkload(queueName(queue), workloadName(c, i/queues), localQueueName(0), c)
			w.Spec.MaximumExecutionTimeSeconds = new(int32(3600 + queue))
			return r.api.create(ctx, w)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func workloadName(c *shape.Class, n int) string { return fmt.Sprintf("%s-%03d", c.Name, n) }

// awaitCounted waits until the statuses of all ClusterQueues count all their quota Workloads. The manager then still writes into each why it waits, which
// takes the longer, the busier the machine: the questions are asked meanwhile, as in a busy cluster.
func (r *run) awaitCounted(ctx context.Context) error {
	all := int32(perQueue(r.shape))
	return r.awaitQueues(ctx, quietFor, backlogTimeout, func(q *kueue.ClusterQueue) bool {
		return q.Name == probeQueue || q.Status.ReservingWorkloads+q.Status.PendingWorkloads >= all
	})
}

// perQueue is the number of quota Workloads in each ClusterQueue.
func perQueue(load *shape.Shape) (n int) {
	for i := range load.Classes {
		n += load.Classes[i].Count
	}
	return n
}

// A question is asked in several places of the cluster. The slowest answer counts.
type question struct {
	name  string
	lines []commandLine
}

// A commandLine asks a question, and its answer has the text want.
type commandLine struct {
	args []string
	want string
}

// ask runs the verbs.
func (r *run) ask(ctx context.Context) ([]figure, error) {
	dir, err := os.MkdirTemp(r.world.Plane.WorkDir(), "verbs-")
	if err != nil {
		return nil, err
	}
	archive := filepath.Join(dir, "cluster.tar.gz")
	var figures []figure
	for _, q := range questions(r.shape, r.world.AdminKubeconfig, archive) {
		found, err := r.time(ctx, &q)
		if err != nil {
			return nil, err
		}
		figures = append(figures, found...)
	}
	info, err := os.Stat(archive)
	if err != nil {
		return nil, err
	}
	return append(figures, mebibytes("snapshot/size", info.Size())), nil
}

// questions returns what is asked about the cluster of a kubeconfig, of which the first question saves a snapshot in an archive. Those about a queue are
// about the first one, one in the middle and the last, and those about one quota Workload about such ones of these queues.
func questions(load *shape.Shape, kubeconfig, archive string) []question {
	waits := &load.Classes[len(load.Classes)-1]
	last := workloadName(waits, waits.Count-1)
	online, anonymized := "--kubeconfig="+kubeconfig, filepath.Join(filepath.Dir(archive), "public.tar.gz")
	total := fmt.Sprintf("%7d workloads.kueue.x-k8s.io", load.Queues()*perQueue(load))
	ofWorkloads := func(from ...string) (lines []commandLine) {
		for _, queue := range spread(load.Queues()) {
			for _, n := range spread(waits.Count) {
				args := append([]string{"explain", "-n", queueName(queue), workloadName(waits, n)}, from...)
				lines = append(lines, commandLine{args, " in its ClusterQueue"}) // a position
			}
		}
		return lines
	}
	ofQueues := func(flag string, from ...string) (lines []commandLine) {
		for _, queue := range spread(load.Queues()) {
			lines = append(lines, commandLine{append([]string{"pending", flag, queueName(queue)}, from...), last})
		}
		return lines
	}
	return []question{
		{"snapshot", []commandLine{{[]string{"snapshot", online, "-o", archive}, total}}},
		{"snapshot-anonymized", []commandLine{{[]string{"snapshot", online, "--anonymize", "-o", anonymized}, total}}},
		{"explain-snapshot", ofWorkloads("--snapshot", archive)},
		{"pending-snapshot", ofQueues("--cluster-queue", "--snapshot", archive)},
		{"explain", ofWorkloads(online)},
		{"pending", ofQueues("--cluster-queue", online)},
		{"pending-namespace", ofQueues("-n", online)},
	}
}

// spread returns the first, one in the middle and the last of some numbers.
func spread(count int) []int {
	return slices.Compact([]int{0, (count - 1) / 2, count - 1})
}

// verbFigures returns the figures of a question from its slowest answer and its largest memory, in bytes.
func verbFigures(q *question, slowest time.Duration, peak int64) []figure {
	return []figure{seconds(q.name+"/wall", slowest), mebibytes(q.name+"/peak-rss", peak)}
}

// time asks a question several times in each place, and reports the slowest answer and the largest memory.
func (r *run) time(ctx context.Context, q *question) ([]figure, error) {
	var slowest time.Duration
	var peak int64
	for i := range q.lines {
		for range verbRounds {
			took, memory, err := r.answer(ctx, &q.lines[i])
			if err != nil {
				return nil, err
			}
			slowest, peak = max(slowest, took), max(peak, memory)
		}
	}
	return verbFigures(q, slowest, peak), nil
}

// answer runs a command line, and returns the time that it takes and its peak memory in bytes.
func (r *run) answer(ctx context.Context, line *commandLine) (took time.Duration, peak int64, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(r.world.Root, "bin", "tranche"), line.args...) // #nosec G204 -- the arguments are those above
	var out, warnings bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &warnings
	began := time.Now()
	err = cmd.Run()
	took = time.Since(began)
	// The manager has no ConfigMap here, so that a snapshot is incomplete.
	if isComplete := err == nil || line.args[0] == "snapshot" && cmd.ProcessState.ExitCode() == 3; !isComplete || !strings.Contains(out.String(), line.want) {
		return 0, 0, fmt.Errorf("tranche %s: the answer lacks %q: %w\n%s%s", strings.Join(line.args, " "), line.want, err, &out, &warnings)
	}
	used, isKnown := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !isKnown {
		return 0, 0, errors.New("read the memory of the process: not on this system")
	}
	return took, used.Maxrss << 10, nil
}
