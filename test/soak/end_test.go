package soak_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// examples is how many of those that are stuck are described.
const examples = 5

// expectEnd waits until all JobSets, gangs of pods and queued Jobs have completed. All of them can.
func (s *soak) expectEnd() {
	s.t.Helper()
	ctx := s.t.Context()
	completed, since := -1, time.Now()
	for {
		s.heedManager()
		if s.manager == nil {
			s.startManager()
		}
		var list jobsetapi.JobSetList
		if err := s.admin.List(ctx, &list); err != nil {
			s.t.Fatal(err)
		}
		var open []*jobsetapi.JobSet
		for i := range list.Items {
			js := &list.Items[i]
			if js.Status.TerminalState != string(jobset.JobSetCompleted) && js.DeletionTimestamp.IsZero() {
				open = append(open, js)
			}
		}
		jobs, ended := s.unfinishedJobs(ctx)
		if len(open)+len(jobs) == 0 {
			return
		}
		if now := len(list.Items) - len(open) + ended; now != completed {
			completed, since = now, time.Now()
			s.log("%d JobSets and %d Jobs that are queued or of gangs of pods have not completed", len(open), len(jobs))
		}
		if time.Since(since) > stuckAfter {
			for _, js := range open[:min(len(open), examples)] {
				s.t.Error(s.describe(ctx, js))
			}
			for _, job := range jobs[:min(len(jobs), examples)] {
				s.t.Error(s.describeJob(ctx, job))
			}
			s.t.Fatalf("%d JobSets and %d Jobs that are queued or of gangs of pods are stuck, %d have completed", len(open), len(jobs), completed)
		}
		<-time.After(poll)
	}
}

// expectFewRestarts checks that only failures count as restarts, and other effects of the chaos on a JobSet do not.
func (s *soak) expectFewRestarts() {
	s.t.Helper()
	var list jobsetapi.JobSetList
	if err := s.admin.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		js := &list.Items[i]
		if key := client.ObjectKeyFromObject(js); !s.doomed[key] && js.Status.Restarts > 0 {
			s.t.Errorf("JobSet %s has been restarted %d times and has never failed", key, js.Status.Restarts)
		}
	}
	deleted := 0
	for _, key := range s.jobSets {
		if s.deleted[key] {
			deleted++
		}
	}
	if found := len(list.Items) + deleted; found < len(s.jobSets) {
		s.t.Errorf("%d of %d JobSets exist, and %d were deleted", len(list.Items), len(s.jobSets), deleted)
	}
}

// expectNothingHeld waits until the engine reports that all quota is free.
func (s *soak) expectNothingHeld() {
	s.t.Helper()
	s.await("wait until all quota is free", func(ctx context.Context) error {
		var queues kueue.ClusterQueueList
		if err := s.admin.List(ctx, &queues); err != nil {
			return err
		}
		for i := range queues.Items {
			if err := isIdle(&queues.Items[i]); err != nil {
				return err
			}
		}
		var workloads kueue.WorkloadList
		if err := s.admin.List(ctx, &workloads); err != nil {
			return err
		}
		for i := range workloads.Items {
			w := &workloads.Items[i]
			if !apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
				return fmt.Errorf("quota Workload %s has not finished: %s", w.Name, render(w.Status.Conditions))
			}
		}
		return nil
	})
}

func isIdle(q *kueue.ClusterQueue) error {
	if q.Status.ReservingWorkloads+q.Status.AdmittedWorkloads+q.Status.PendingWorkloads > 0 {
		return fmt.Errorf("ClusterQueue %s: %d reserving, %d admitted, %d pending", q.Name, q.Status.ReservingWorkloads, q.Status.AdmittedWorkloads, q.Status.PendingWorkloads)
	}
	for _, flavors := range [][]kueue.FlavorUsage{q.Status.FlavorsReservation, q.Status.FlavorsUsage} {
		for _, flavor := range flavors {
			for _, usage := range flavor.Resources {
				if !usage.Total.IsZero() {
					return fmt.Errorf("ClusterQueue %s: %s %s of flavor %s are held", q.Name, usage.Total.String(), usage.Name, flavor.Name)
				}
			}
		}
	}
	return nil
}

// expectNothingLeft deletes all JobSets, gangs of pods and queued Jobs, and waits until nothing exists that belonged to one.
func (s *soak) expectNothingLeft() {
	s.t.Helper()
	groups := &unstructured.UnstructuredList{}
	groups.SetGroupVersionKind(newPodGroup().GroupVersionKind())
	for i := range tenants {
		namespace := client.InNamespace(tenantName(i))
		s.await("delete all JobSets, gangs of pods and queued Jobs", func(ctx context.Context) error {
			for _, object := range []client.Object{&jobsetapi.JobSet{}, &batchv1.Job{}, newPodGroup()} {
				if err := s.admin.DeleteAllOf(ctx, object, namespace, client.PropagationPolicy("Background")); err != nil {
					return err
				}
			}
			return nil
		})
		s.await("wait until nothing is left over", func(ctx context.Context) error {
			for _, list := range []client.ObjectList{
				&jobsetapi.JobSetList{}, &kueue.WorkloadList{}, &batchv1.JobList{}, &corev1.PodList{}, groups,
				&schedulingv1alpha2.PodGroupList{}, &schedulingv1alpha2.WorkloadList{},
			} {
				if err := s.admin.List(ctx, list, namespace); err != nil {
					return err
				}
				if n := apimeta.LenList(list); n > 0 {
					items, _ := apimeta.ExtractList(list)
					return fmt.Errorf("%d of %T, such as %+v", n, list, items[0].(client.Object).GetName())
				}
			}
			return nil
		})
	}
}

func (s *soak) expectNoViolations() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), auditTimeout)
	defer cancel()
	violations, err := s.auditor.Violations(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, v := range violations {
		s.t.Error(v)
	}
}

// describe returns the full state of a JobSet.
func (s *soak) describe(ctx context.Context, js *jobsetapi.JobSet) string {
	var out strings.Builder
	fmt.Fprintf(&out, "JobSet %s/%s suspend=%v restarts=%d %s\n", js.Namespace, js.Name, ptr.Deref(js.Spec.Suspend, false), js.Status.Restarts, render(js.Status.Conditions))
	mine := client.MatchingLabels{jobset.JobSetNameKey: js.Name}
	var workloads kueue.WorkloadList
	var jobs batchv1.JobList
	var pods corev1.PodList
	for _, err := range []error{
		s.admin.List(ctx, &workloads, client.InNamespace(js.Namespace)),
		s.admin.List(ctx, &jobs, client.InNamespace(js.Namespace), mine),
		s.admin.List(ctx, &pods, client.InNamespace(js.Namespace), mine),
	} {
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	for i := range workloads.Items {
		if w := &workloads.Items[i]; metav1.IsControlledBy(w, js) {
			fmt.Fprintf(&out, "  Workload %s %v deleted=%v reclaimable=%v %s\n", w.Name, w.Annotations, w.DeletionTimestamp, w.Status.ReclaimablePods, render(w.Status.Conditions))
		}
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		fmt.Fprintf(&out, "  Job %s suspend=%v deleted=%v parallelism=%d active=%d terminating=%d succeeded=%d failed=%d completions=%d %v\n", j.Name, ptr.Deref(j.Spec.Suspend, false),
			j.DeletionTimestamp, ptr.Deref(j.Spec.Parallelism, 1), j.Status.Active, ptr.Deref(j.Status.Terminating, 0), j.Status.Succeeded, j.Status.Failed, ptr.Deref(j.Spec.Completions, 0), j.Labels)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		fmt.Fprintf(&out, "  Pod %s %s on %q deleted=%v\n", p.Name, p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp)
	}
	return out.String()
}

func render(conditions []metav1.Condition) string {
	var out strings.Builder
	for _, c := range conditions {
		fmt.Fprintf(&out, "\n    %s=%s %s at %s: %s", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format("15:04:05"), c.Message)
	}
	return out.String()
}
