package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/bench/mixed"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// mixedShape is the name under which a run of the scaled shape mixed is compared with its replay on virtual time.
const mixedShape = "mixed"

// measureMixed runs the JobSets once on a control plane, and then in the simulator.
func measureMixed(ctx context.Context, o *options) ([]figure, error) {
	shape := mixed.Scaled()
	submissions := shape.Draw(o.seed)
	fmt.Fprintf(os.Stderr, "bench-e2e: running %d JobSets of the shape mixed ...\n", len(submissions))
	ran := &mixedRun{shape: shape, submissions: submissions}
	s := &site{name: mixedShape, nodes: mixedNodes(shape), queues: mixedQueues(shape)}
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

// mixedQueues are the objects of the tenants, in the order of creation.
func mixedQueues(shape *mixed.Shape) []client.Object {
	s := shape.Queues()
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
	if err := f.follow(ctx, r.world.Admin); err != nil {
		return err
	}
	due := make([]time.Duration, len(m.submissions))
	for i := range m.submissions {
		due[i] = m.submissions[i].After
	}
	err := o.whenDue(ctx, due, func(i int) error {
		if err := r.world.Admin.Create(ctx, fated(&m.submissions[i])); err != nil {
			return fmt.Errorf("submit JobSet %s: %w", m.submissions[i].JobSet.Name, err)
		}
		return nil
	})
	if err == nil {
		err = f.wait(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m.problems = slices.Clone(f.problems)
	for _, st := range f.stages {
		m.stages = append(m.stages, *st)
	}
	return err
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
