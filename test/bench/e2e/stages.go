package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	samples "github.com/tranche-dev/tranche/test/sample"
	"github.com/tranche-dev/tranche/test/testenv"
)

// stagesShape is the name of the benchmark of long JobSets: how long a stage takes, from its start to the start of the next, as a multiple of what
// the JobSet controller alone needs for the same JobSet without a queue.
const stagesShape = "stages"

// stageRunTime is how long the pod of each stage runs.
const stageRunTime = time.Second

// A chain is a JobSet whose ReplicatedJobs run one after another.
type chain struct {
	// order is the field by which the JobSet defines that.
	order string
	// At most 100 stages are admitted.
	stages int
	// replicas are those of each stage, of one pod each.
	replicas int32
}

// stagesChains are the JobSets that run.
var stagesChains = []chain{{"depends-on", 10, 1}, {"depends-on", 100, 1}, {"in-order", 10, 1}, {"in-order", 100, 1}, {"depends-on", 100, 5}}

// name is the first part of the names of its figures.
func (c chain) name() string {
	if c.replicas > 1 {
		return fmt.Sprintf("%s/%dx%d", c.order, c.stages, c.replicas)
	}
	return fmt.Sprintf("%s/%d", c.order, c.stages)
}

// measureStages runs the benchmark once, one JobSet at a time.
func measureStages(ctx context.Context, o *options) (_ []figure, err error) {
	w, err := testenv.Start(ctx, controlplane.Config{WorkDir: o.workDir, NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 2, Allocatable: samples.Amounts("cpu", "64", "memory", "256Gi")},
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	for _, object := range cpuQueues("10") {
		if err := w.Admin.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	manager, err := w.StartManager(ctx, testenv.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	var figures []figure
	for _, c := range stagesChains {
		name := strings.ReplaceAll(c.name(), "/", "-")
		queued, err := timeStages(ctx, w.Admin, queuedOf(c.jobSet(name, stageRunTime)))
		if err != nil {
			return nil, err
		}
		stock, err := timeStages(ctx, w.Admin, c.jobSet(name, stageRunTime))
		if err != nil {
			return nil, err
		}
		figures = append(figures, c.figures(queued, stock)...)
	}
	return figures, nil
}

// figures reports how long each stage took, of a JobSet that a queue held and of one that none did.
func (c chain) figures(queued, stock time.Duration) []figure {
	each := time.Duration(c.stages)
	return []figure{
		millis(c.name()+"/queued", queued/each), millis(c.name()+"/stock", stock/each),
		{name: c.name() + "/ratio", value: float64(queued) / float64(stock)},
	}
}

// cpuQueues are the LocalQueue main with so many CPUs, in the order of creation.
func cpuQueues(cpus string) []client.Object {
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors: []kueue.FlavorQuotas{{Name: flavorName, Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse(cpus)},
		}}},
	}}
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
		job.Replicas = c.replicas
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
