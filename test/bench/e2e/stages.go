package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	samples "github.com/tranche-dev/tranche/test/sample"
)

// stageRunTime is how long the pod of each stage runs.
const stageRunTime = time.Second

// A chain is a JobSet whose ReplicatedJobs run one after another.
type chain struct {
	// order is the field by which the JobSet defines that.
	order string
	// At most 100 stages are admitted.
	stages int
}

// stagesChains are the JobSets that run.
var stagesChains = []chain{{"depends-on", 10}, {"depends-on", 100}, {"in-order", 10}, {"in-order", 100}}

// name is the first part of the names of its figures.
func (c chain) name() string { return fmt.Sprintf("%s/%d", c.order, c.stages) }

// measureStages runs one JobSet at a time: how long a stage takes, as a multiple of what the JobSet controller alone needs for it without a queue.
func measureStages(ctx context.Context, o *options) (figures []figure, err error) {
	s := &site{queues: cpuQueues("10"), nodes: cpuNodes(2)}
	err = s.open(ctx, o, func(r *run) (err error) {
		manager, err := r.startWith(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, manager.Stop()) }()
		for _, c := range stagesChains {
			name := strings.ReplaceAll(c.name(), "/", "-")
			queued, err := timeStages(ctx, r.world.Admin, queuedOf(c.jobSet(name, stageRunTime)))
			if err != nil {
				return err
			}
			stock, err := timeStages(ctx, r.world.Admin, c.jobSet(name, stageRunTime))
			if err != nil {
				return err
			}
			figures = append(figures, c.figures(queued, stock)...)
		}
		return nil
	})
	return figures, err
}

// figures reports how long each stage took, of a JobSet that a queue held and of one that none did.
func (c chain) figures(queued, stock time.Duration) []figure {
	each := time.Duration(c.stages)
	return []figure{
		millis(c.name()+"/queued", queued/each), millis(c.name()+"/stock", stock/each),
		ratio(c.name()+"/ratio", float64(queued), float64(stock), ""),
	}
}

func cpuNodes(count int) []controlplane.NodePool {
	return []controlplane.NodePool{{Name: "cpu", Count: count, Allocatable: samples.Amounts("cpu", "64", "memory", "256Gi")}}
}

// cpuQueues are the LocalQueue main with so many CPUs, in the order of creation.
func cpuQueues(cpus string) []client.Object {
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{samples.ResourceGroup(corev1.ResourceCPU, flavorName, cpus)}
	return []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavorName}}, queue,
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "main"},
		},
	}
}

// timeStages runs a JobSet and returns how long it took from its creation to its end.
func timeStages(ctx context.Context, admin client.WithWatch, js *jobsetapi.JobSet) (time.Duration, error) {
	news, err := admin.Watch(ctx, &jobsetapi.JobSetList{}, client.InNamespace(js.Namespace), client.MatchingFields{"metadata.name": js.Name})
	if err != nil {
		return 0, fmt.Errorf("watch JobSet %s: %w", js.Name, err)
	}
	defer news.Stop()
	start := time.Now()
	if err := admin.Create(ctx, js); err != nil {
		return 0, fmt.Errorf("create JobSet %s: %w", js.Name, err)
	}
	for event := range news.ResultChan() {
		seen, isJobSet := event.Object.(*jobsetapi.JobSet)
		if !isJobSet || seen.Status.TerminalState == "" {
			continue
		}
		took := time.Since(start)
		if seen.Status.TerminalState != string(jobset.JobSetCompleted) {
			return 0, fmt.Errorf("JobSet %s: %s", js.Name, seen.Status.TerminalState)
		}
		if err := admin.Delete(ctx, js, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return 0, fmt.Errorf("delete JobSet %s: %w", js.Name, err)
		}
		return took, nil
	}
	return 0, errors.Join(fmt.Errorf("the watch of JobSet %s ended before the JobSet did", js.Name), ctx.Err())
}

// jobSet returns the JobSet, each pod of which runs that long.
func (c chain) jobSet(name string, runTime time.Duration) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if c.order == "in-order" {
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	}
	for i := range c.stages {
		job := samples.ReplicatedJob(stageName(i), 1, samples.Amounts("cpu", "100m"), map[string]string{controlplane.FakeRunTime: runTime.String()})
		if c.order == "depends-on" && i > 0 {
			job.DependsOn = []jobset.DependsOn{{Name: stageName(i - 1), Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, job)
	}
	return js
}

// stageName is the name of the ReplicatedJob of a stage.
func stageName(i int) string { return fmt.Sprintf("r%d", i) }

// queuedOf puts a JobSet into the queue.
func queuedOf(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	js.Name += "-queued"
	js.Labels = map[string]string{apis.QueueLabel: "main"}
	return js
}
