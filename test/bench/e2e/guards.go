package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/testenv"
)

// guardsRounds is how often each write is done with guards, and how often without.
const guardsRounds = 40

// guardsSizes are the numbers of ReplicatedJobs.
var guardsSizes = []int{1, 10, 100, 300}

// measureGuards times writes of a queued JobSet, of its child Job and of a pod of that, as a multiple of the same writes in a namespace without the guards.
// Besides etcd and the API server only the JobSet controller runs, for its webhooks.
func measureGuards(ctx context.Context, o *options) (figures []figure, err error) {
	err = new(site).open(ctx, o, func(r *run) error {
		manager, err := r.world.As(testenv.ManagerUser)
		if err != nil {
			return err
		}
		var writes []guardedWrite
		for _, size := range guardsSizes {
			writes = append(writes, writesOfJobSets(r.world.Admin, size)...)
		}
		writes = append(writes, writesOfJobs(r.world.Admin, manager)...)
		for _, namespace := range []string{guarded, free} {
			stored := []client.Object{childJob(namespace, "stored"), podOf(childJob(namespace, "stored"), "stored")}
			for _, size := range guardsSizes {
				stored = append(stored, wideJobSet(namespace, storedName(size), size))
			}
			if err := createAll(ctx, r.world.Admin, stored); err != nil {
				return err
			}
		}
		draw := rand.New(rand.NewPCG(o.seed, 0))
		for _, write := range writes {
			with, without, err := write.alternate(ctx, draw)
			if err != nil {
				return fmt.Errorf("write with guards and without: %s: %w", write.name, err)
			}
			figures = append(figures, guardsFigures(write.name, with, without)...)
		}
		return nil
	})
	return figures, err
}

// A guardedWrite is one of the writes that are timed.
type guardedWrite struct {
	name string
	do   func(ctx context.Context, namespace string) error
}

// The namespace with the guards, and the one without.
const guarded, free = metav1.NamespaceDefault, metav1.NamespaceSystem

func storedName(size int) string { return fmt.Sprintf("stored-%d", size) }

// writesOfJobSets are writes of a JobSet with that many ReplicatedJobs.
func writesOfJobSets(admin client.Client, size int) []guardedWrite {
	return []guardedWrite{
		{fmt.Sprintf("create/%d", size), func(ctx context.Context, namespace string) error {
			return admin.Create(ctx, wideJobSet(namespace, "new", size), client.DryRunAll)
		}},
		{fmt.Sprintf("update/%d", size), func(ctx context.Context, namespace string) error {
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: storedName(size)}}
			return admin.Patch(ctx, js, mergePatch(`{"metadata":{"labels":{"changed":"yes"}}}`), client.DryRunAll)
		}},
	}
}

// guardsFigures reports one write: how long it took with guards and without.
func guardsFigures(write string, with, without time.Duration) []figure {
	return []figure{
		millis(write+"/guarded", with), millis(write+"/free", without),
		ratio(write+"/ratio", float64(with), float64(without), ""),
	}
}

// writesOfJobs are what is written of each Job of a JobSet, and of each of its pods.
func writesOfJobs(admin, manager client.Client) []guardedWrite {
	return []guardedWrite{
		{"job/create", func(ctx context.Context, namespace string) error {
			return admin.Create(ctx, childJob(namespace, "new"), client.DryRunAll)
		}},
		{"job/release", func(ctx context.Context, namespace string) error {
			return manager.Patch(ctx, childJob(namespace, "stored"), mergePatch(`{"spec":{"suspend":false}}`), client.DryRunAll)
		}},
		{"job/status", func(ctx context.Context, namespace string) error {
			return admin.Status().Patch(ctx, childJob(namespace, "stored"), mergePatch(`{"status":{"active":1}}`), client.DryRunAll)
		}},
		{"pod/create", func(ctx context.Context, namespace string) error {
			return admin.Create(ctx, podOf(childJob(namespace, "stored"), "new"), client.DryRunAll)
		}},
		{"pod/status", func(ctx context.Context, namespace string) error {
			return admin.Status().Patch(ctx, podOf(childJob(namespace, "stored"), "stored"), mergePatch(`{"status":{"podIP":"10.0.0.1"}}`), client.DryRunAll)
		}},
	}
}

func mergePatch(patch string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(patch))
}

// alternate does the write in both namespaces in turn and returns the mean of each, without the slowest and the fastest quarter. Which of the two comes
// first is drawn for each turn: the API server collects garbage after so many bytes, so it may come at every second write, and always at the same one.
func (w guardedWrite) alternate(ctx context.Context, draw *rand.Rand) (with, without time.Duration, err error) {
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
			Template: corev1.PodTemplateSpec{Spec: trainer()},
		}}}
		if first := i / 3 * 3; first > 0 {
			job.DependsOn = []jobset.DependsOn{{Name: fmt.Sprintf("r%d", first-1), Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{ReplicatedJob: job})
	}
	return js
}

func trainer() corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/trainer", Command: []string{"python", "train.py"},
			Env:       []corev1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: "DATA", Value: "/mnt/data"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}},
	}
}

// childJob returns a held Job of the JobSet main, as the JobSet controller creates it.
func childJob(namespace, name string) *batchv1.Job {
	labels := map[string]string{
		jobset.JobSetNameKey: "main", jobset.JobSetUIDKey: "5a7dd3c1-5e9c-4a52-8d5f-0d4b8b1f6d4f", jobset.ReplicatedJobNameKey: "r0", jobset.JobIndexKey: "0",
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: merged(labels, map[string]string{apis.HoldLabel: apis.HoldValue}), Annotations: labels,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: jobset.SchemeGroupVersion.String(), Kind: "JobSet", Name: "main", UID: types.UID(labels[jobset.JobSetUIDKey]),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: labels}, Spec: trainer(),
		}},
	}
}

// podOf returns a pod of a Job, as the Job controller creates it.
func podOf(job *batchv1.Job, name string) *corev1.Pod {
	const uid = "0b8d4a0e-2f3c-4a5e-9a44-7c1f0f6f5f10"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: job.Namespace, Name: name, Annotations: job.Spec.Template.Annotations,
			Labels:     merged(job.Spec.Template.Labels, map[string]string{batchv1.JobNameLabel: job.Name, batchv1.ControllerUidLabel: uid}),
			Finalizers: []string{batchv1.JobTrackingFinalizer},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Name: job.Name, UID: uid, Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
		Spec: job.Spec.Template.Spec,
	}
}

func merged(a, b map[string]string) map[string]string {
	both := maps.Clone(a)
	maps.Copy(both, b)
	return both
}
