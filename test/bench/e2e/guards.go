package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/testenv"
)

// guardsShape is the name of the benchmark of the guards: how long the API server takes to create and to update a queued JobSet, as a
// multiple of the same write in a namespace without the guards.
const guardsShape = "guards"

// guardsRounds is how often each write is done with guards, and how often without.
const guardsRounds = 40

// guardsSizes are the numbers of ReplicatedJobs.
var guardsSizes = []int{1, 10, 100, 300}

// measureGuards runs the benchmark once. Nothing but etcd, the API server and the JobSet controller runs, which has webhooks.
func measureGuards(ctx context.Context, o *options) (_ []figure, err error) {
	w, err := testenv.Start(ctx, controlplane.Config{
		WorkDir: o.workDir, Without: []string{controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	draw := rand.New(rand.NewPCG(o.seed, 0))
	var figures []figure
	for _, size := range guardsSizes {
		found, err := guardsOf(ctx, w.Admin, draw, size)
		if err != nil {
			return nil, err
		}
		figures = append(figures, found...)
	}
	return figures, nil
}

// A guardedWrite is one of the writes that are timed.
type guardedWrite struct {
	name string
	do   func(ctx context.Context, namespace string) error
}

func guardsOf(ctx context.Context, admin client.Client, draw *rand.Rand, size int) ([]figure, error) {
	const guarded, free = metav1.NamespaceDefault, metav1.NamespaceSystem
	for _, namespace := range []string{guarded, free} {
		if err := admin.Create(ctx, wideJobSet(namespace, "stored", size)); err != nil {
			return nil, fmt.Errorf("create a JobSet with %d ReplicatedJobs in %s: %w", size, namespace, err)
		}
	}
	writes := []guardedWrite{
		{"create", func(ctx context.Context, namespace string) error {
			return admin.Create(ctx, wideJobSet(namespace, "new", size), client.DryRunAll)
		}},
		{"update", func(ctx context.Context, namespace string) error {
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "stored"}}
			return admin.Patch(ctx, js, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)), client.DryRunAll)
		}},
	}
	var figures []figure
	for _, write := range writes {
		with, without, err := write.alternate(ctx, draw, guarded, free)
		if err != nil {
			return nil, fmt.Errorf("%s a JobSet with %d ReplicatedJobs: %w", write.name, size, err)
		}
		figures = append(figures, guardsFigures(write.name, size, with, without)...)
	}
	for _, namespace := range []string{guarded, free} {
		if err := admin.Delete(ctx, wideJobSet(namespace, "stored", 0), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return nil, fmt.Errorf("delete the JobSet in %s: %w", namespace, err)
		}
	}
	return figures, nil
}

// guardsFigures reports one write: how long it took with guards and without.
func guardsFigures(write string, size int, with, without time.Duration) []figure {
	prefix := fmt.Sprintf("%s/%d", write, size)
	return []figure{
		millis(prefix+"/guarded", with), millis(prefix+"/free", without),
		{name: prefix + "/ratio", value: float64(with) / float64(without)},
	}
}

// alternate does the write in both namespaces in turn and returns the mean of each, without the slowest and the fastest quarter. Which of the two comes
// first is drawn for each turn: the API server collects garbage after so many bytes, so it may come at every second write, and always at the same one.
func (w guardedWrite) alternate(ctx context.Context, draw *rand.Rand, guarded, free string) (with, without time.Duration, err error) {
	times := map[string][]time.Duration{}
	for round := range guardsRounds + 1 {
		namespaces := []string{guarded, free}
		draw.Shuffle(len(namespaces), func(i, j int) { namespaces[i], namespaces[j] = namespaces[j], namespaces[i] })
		for _, namespace := range namespaces {
			start := time.Now()
			if err := w.do(ctx, namespace); err != nil {
				return 0, 0, err
			}
			if round > 0 { // the first one warms up
				times[namespace] = append(times[namespace], time.Since(start))
			}
		}
	}
	return midMean(times[guarded]), midMean(times[free]), nil
}

// midMean returns the mean of the times without the slowest and the fastest quarter.
func midMean(times []time.Duration) time.Duration {
	slices.Sort(times)
	middle := times[len(times)/4 : len(times)-len(times)/4]
	var sum time.Duration
	for _, t := range middle {
		sum += t
	}
	return sum / time.Duration(len(middle))
}

// wideJobSet returns a queued JobSet of that many ReplicatedJobs, three to a stage, that no controller acts on.
func wideJobSet(namespace, name string, size int) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{apis.QueueLabel: "main"},
	}}
	js.Spec.ManagedBy, js.Spec.Suspend = new("example.com/nothing"), new(true)
	for i := range size {
		job := jobset.ReplicatedJob{Name: fmt.Sprintf("r%d", i), Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{
					Name: "main", Image: "example.com/trainer", Command: []string{"python", "train.py"},
					Env:       []corev1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: "DATA", Value: "/mnt/data"}},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
				}},
			}},
		}}}
		if first := i / 3 * 3; first > 0 {
			job.DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("r%d", first-1), Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{ReplicatedJob: job})
	}
	return js
}
