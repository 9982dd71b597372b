package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/test/bench/mixed"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// measureMixed runs the JobSets once on a control plane, and then in the simulator.
func measureMixed(ctx context.Context, o *options) ([]figure, error) {
	shape := mixed.Scaled()
	submissions := shape.Draw(o.seed)
	fmt.Fprintf(os.Stderr, "bench-e2e: running %d JobSets of the shape mixed ...\n", len(submissions))
	ran := &mixedRun{shape: shape, submissions: submissions}
	s := &site{name: mixedShape, nodes: mixedNodes(shape), queues: objectsOf(shape.Queues())}
	if err := s.run(ctx, o, func(ctx context.Context, r *run) error { return ran.play(ctx, r, o) }); err != nil {
		return nil, fmt.Errorf("run JobSets of the shape mixed: %w", err)
	}
	return ran.figures()
}

// mixedNodes are so many that there is always one of which no pod has a GPU: a pod that has quota never waits for a node.
func mixedNodes(shape *mixed.Shape) []controlplane.NodePool {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("192"), corev1.ResourceMemory: resource.MustParse("2Ti")}
	resources[mixed.GPU] = resource.MustParse(strconv.Itoa(mixed.PerNode))
	return []controlplane.NodePool{{Name: "gpu", Count: int(shape.Quota()), Allocatable: resources}}
}

// objectsOf returns the queues of a snapshot, in the order of creation.
func objectsOf(s *snapshot.Snapshot) []client.Object {
	var all []client.Object
	for _, o := range s.ResourceFlavors {
		all = append(all, o)
	}
	for _, o := range s.Namespaces {
		all = append(all, o)
	}
	for _, o := range s.ClusterQueues {
		all = append(all, o)
	}
	for _, o := range s.LocalQueues {
		all = append(all, o)
	}
	for _, o := range all {
		o.SetUID("") // the API server gives them others
	}
	return all
}

// play submits the JobSets when they are due, and waits until all of them have finished.
func (m *mixedRun) play(ctx context.Context, r *run, o *options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFollower(len(m.submissions))
	err := f.play(ctx, r, o, m.submissions, func(s *mixed.Submission) error { return r.submit(ctx, fated(s)) })
	f.mu.Lock()
	defer f.mu.Unlock()
	m.problems, m.stages = slices.Clone(f.problems), maps.Clone(f.stages)
	return err
}

// submit creates a JobSet.
func (r *run) submit(ctx context.Context, js *jobsetapi.JobSet) error {
	return createAll(ctx, r.world.Admin, []client.Object{js})
}

// fated returns the JobSet of a submission, with annotations that let the fake nodes run its pods as long as it says.
func fated(s *mixed.Submission) *jobsetapi.JobSet {
	js := s.JobSet.DeepCopy()
	js.UID, js.CreationTimestamp = "", metav1.Time{}
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		course := s.Courses[job.Name]
		fate := map[string]string{controlplane.FakeReadyAfter: course.Ready.String(), controlplane.FakeRunTime: (course.Run - course.Ready).String()}
		if !course.Ends {
			fate[controlplane.FakeExit] = controlplane.FakeExitNever
		}
		job.Template.Spec.Template.Annotations = fate
	}
	return js
}
