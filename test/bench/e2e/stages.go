package main

import (
	"context"
	"errors"
	"fmt"
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

// stagesSizes are the numbers of stages. At most 100 are admitted.
var stagesSizes = []int{10, 100}

// stageOrders are the fields by which a JobSet defines that its ReplicatedJobs run one after another.
var stageOrders = []string{"depends-on", "in-order"}

// measureStages runs the benchmark once, one JobSet at a time.
func measureStages(ctx context.Context, o *options) (_ []figure, err error) {
	w, err := testenv.Start(ctx, controlplane.Config{WorkDir: o.workDir, NodePools: []controlplane.NodePool{
		{Name: "cpu", Count: 2, Allocatable: samples.Amounts("cpu", "64", "memory", "256Gi")},
	}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	if err := createStagesQueue(ctx, w.Admin); err != nil {
		return nil, err
	}
	manager, err := w.StartManager(ctx, testenv.ManagerOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, manager.Stop()) }()
	var figures []figure
	for _, order := range stageOrders {
		for _, size := range stagesSizes {
			queued, err := timeStages(ctx, w.Admin, queuedOf(longJobSet(order, size)))
			if err != nil {
				return nil, err
			}
			stock, err := timeStages(ctx, w.Admin, longJobSet(order, size))
			if err != nil {
				return nil, err
			}
			figures = append(figures, stagesFigures(order, size, queued, stock)...)
		}
	}
	return figures, nil
}

// stagesFigures reports how long each stage took, of a JobSet that a queue held and of one that none did.
func stagesFigures(order string, size int, queued, stock time.Duration) []figure {
	prefix := fmt.Sprintf("%s/%d", order, size)
	return []figure{
		millis(prefix+"/queued", queued/time.Duration(size)), millis(prefix+"/stock", stock/time.Duration(size)),
		{name: prefix + "/ratio", value: float64(queued) / float64(stock)},
	}
}

func createStagesQueue(ctx context.Context, admin client.Client) error {
	queue := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	queue.Spec.NamespaceSelector = &metav1.LabelSelector{}
	queue.Spec.ResourceGroups = []kueue.ResourceGroup{{
		CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
		Flavors: []kueue.FlavorQuotas{{Name: flavorName, Resources: []kueue.ResourceQuota{
			{Name: corev1.ResourceCPU, NominalQuota: resource.MustParse("10")},
		}}},
	}}
	for _, object := range []client.Object{
		&kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavorName}}, queue,
		&kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "main"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "main"},
		},
	} {
		if err := admin.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
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

// longJobSet returns a JobSet whose ReplicatedJobs, of one pod each, run one after another.
func longJobSet(order string, size int) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-%d", order, size)}}
	if order == "in-order" {
		js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	}
	for i := range size {
		job := samples.ReplicatedJob(fmt.Sprintf("r%d", i), 1, samples.Amounts("cpu", "100m"), map[string]string{
			controlplane.FakeRunTime: stageRunTime.String(),
		})
		if order == "depends-on" && i > 0 {
			job.DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("r%d", i-1), Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, job)
	}
	return js
}

// queuedOf puts a JobSet into the queue.
func queuedOf(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	js.Name += "-queued"
	js.Labels = map[string]string{apis.QueueLabel: "main"}
	return js
}
