package queuedjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
)

// read reads a Job and its quota Workloads from the cache or past it. What its queue and its pods depend on comes from the cache.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName, from client.Reader) (*queuedjob.Snapshot, error) {
	s := &queuedjob.Snapshot{Key: key, Orphans: map[types.UID]queuedjob.Objects{}, Retention: r.config.Retention, Now: time.Now()}
	// The quota Workloads are read first, so that the state of the Job is newer.
	var workloads kueue.WorkloadList
	if err := from.List(ctx, &workloads, client.InNamespace(key.Namespace), client.MatchingLabels{apis.JobLabel: key.Name}); err != nil {
		return nil, fmt.Errorf("list quota Workloads of Job %s: %w", key, err)
	}
	for i := range workloads.Items {
		uid := types.UID(workloads.Items[i].Labels[apis.JobUIDLabel])
		b := s.Orphans[uid]
		b.Workloads = append(b.Workloads, &workloads.Items[i])
		s.Orphans[uid] = b
	}
	if err := r.readJob(ctx, s, from); err != nil || s.Job == nil {
		return s, err
	}
	s.Owned = s.Orphans[s.Job.UID]
	delete(s.Orphans, s.Job.UID)
	var err error
	if s.Flavors, err = apply.Flavors(ctx, r.config.Client, s.Owned.Workloads); err != nil {
		return nil, err
	}
	if err := r.readDemand(ctx, s); err != nil {
		return nil, err
	}
	if err := r.readTarget(ctx, s); err != nil {
		return nil, err
	}
	s.Charged, err = apply.Charged(ctx, r.config.Runner, s.Owned.Workloads)
	return s, err
}

// readJob reads the Job, if Tranche manages it.
func (r *Reconciler) readJob(ctx context.Context, s *queuedjob.Snapshot, from client.Reader) error {
	var job batchv1.Job
	err := from.Get(ctx, s.Key, &job)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("read Job %s: %w", s.Key, err)
	case !job.DeletionTimestamp.IsZero():
		s.Leaving = &job
		return nil
	case !queuedjob.IsQueued(&job) && !queuedjob.IsForeign(&job):
		return nil
	}
	var namespace corev1.Namespace
	if err := r.config.Client.Get(ctx, types.NamespacedName{Name: job.Namespace}, &namespace); err != nil {
		return fmt.Errorf("read Namespace %s: %w", job.Namespace, err)
	}
	if r.config.Namespaces.Matches(labels.Set(namespace.Labels)) {
		s.Job = &job
	}
	return nil
}

// readTarget reads where a Job is charged that was there before the admission policies. A Job that is newer than these is not adopted.
func (r *Reconciler) readTarget(ctx context.Context, s *queuedjob.Snapshot) error {
	if !queuedjob.IsForeign(s.Job) {
		return nil
	}
	since, err := apply.PoliciesSince(ctx, r.reader, apis.QueueJobsBinding)
	if err != nil {
		return err
	}
	var missing string
	queue := types.NamespacedName{Namespace: s.Job.Namespace, Name: s.Job.Labels[apis.QueueLabel]}
	if s.Target, missing, err = apply.AdoptionTarget(ctx, r.config.Client, "Job", queue, r.config.Charges); err != nil {
		return err
	}
	if err := r.readForeign(ctx, s); err != nil {
		return err
	}
	switch {
	case !adoption.IsOlder(s.Job, since) && childjob.IsHeld(s.Job):
		s.Refusal = adoption.NotOlderWaiting("Job")
	case !adoption.IsOlder(s.Job, since):
		s.Refusal = adoption.NotOlder("Job")
	case s.Refusal == "" && missing != "" && !childjob.IsHeld(s.Job):
		s.Refusal = missing
	}
	return nil
}

// readForeign reads the Workloads that Kueue has made for a Job under other names than that of its quota Workload.
func (r *Reconciler) readForeign(ctx context.Context, s *queuedjob.Snapshot) error {
	var made kueue.WorkloadList
	if err := r.config.Client.List(ctx, &made, client.InNamespace(s.Key.Namespace), client.MatchingLabels{apis.JobUIDLabel: string(s.Job.UID)}); err != nil {
		return fmt.Errorf("list Workloads of Kueue for Job %s: %w", s.Key, err)
	}
	if prebuilt := cmp.Or(s.Job.Labels[apis.PrebuiltWorkloadKey], s.Job.Annotations[apis.PrebuiltWorkloadKey]); prebuilt != "" {
		var workload kueue.Workload
		err := r.config.Client.Get(ctx, types.NamespacedName{Namespace: s.Key.Namespace, Name: prebuilt}, &workload)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read prebuilt Workload %q of Job %s: %w", prebuilt, s.Key, err)
		}
		if err == nil && !slices.ContainsFunc(made.Items, func(w kueue.Workload) bool { return w.UID == workload.UID }) {
			made.Items = append(made.Items, workload)
		}
	}
	for i := range made.Items {
		if queuedjob.IsForeignWorkload(s.Job, &made.Items[i]) {
			s.Foreign = append(s.Foreign, &made.Items[i])
		}
	}
	return nil
}

// readDemand reads what the Job asks for. A mistake that the user must fix becomes s.Refusal. Deleting a priority class does not affect Jobs
// that are already queued.
func (r *Reconciler) readDemand(ctx context.Context, s *queuedjob.Snapshot) error {
	limits, err := r.costs.Limits(ctx, s.Key.Namespace)
	if err != nil {
		return err
	}
	s.Template = &childjob.Restored(s.Job).Spec.Template
	if err := r.costs.AddDefaults(ctx, &s.Template.Spec, limits); err != nil {
		return err
	}
	problem, err := r.costs.ChargeDevices(ctx, s.Key.Namespace, s.Template)
	if err != nil {
		return err
	}
	r.inheritDevices(s, problem)
	if s.Refusal == "" {
		s.Refusal = queuedjob.Misuse(s.Job)
	}
	return r.readPriority(ctx, s)
}

// inheritDevices keeps the charge for devices whose ResourceClaimTemplate was deleted after the Job was released. Other problems become s.Refusal: a held
// Job waits until the ResourceClaimTemplate exists again, because its pods would claim what that contains.
func (r *Reconciler) inheritDevices(s *queuedjob.Snapshot, problem *device.Problem) {
	if problem == nil {
		return
	}
	for _, workload := range s.Owned.Workloads {
		charged := &workload.Spec.PodSets[0].Template
		if problem.IsMissing && !childjob.IsHeld(s.Job) && charged.Annotations[apis.ClaimTemplatesAnnotation] != "" {
			device.Inherit(s.Template, charged)
			return
		}
	}
	s.Refusal = "spec.template.spec.resourceClaims: " + problem.Message
}

func (r *Reconciler) readPriority(ctx context.Context, s *queuedjob.Snapshot) error {
	name := s.Job.Labels[apis.PriorityClassLabel]
	value, class, err := apply.Priority(ctx, r.config.Client, name, s.Job.Spec.Template.Spec.PriorityClassName, r.config.MaxPodPriority)
	s.Priority = jobsetstate.Priority{Value: value, Class: class}
	switch {
	case !apierrors.IsNotFound(err):
		return err
	case len(s.Owned.Workloads) > 0:
		before := &s.Owned.Workloads[0].Spec
		s.Priority = jobsetstate.Priority{Value: ptr.Deref(before.Priority, 0), Class: before.PriorityClassRef}
		s.UnknownPriority = queuedjob.InsteadOfMissing(s.Job, s.Priority)
	case s.Refusal == "":
		s.Refusal = fmt.Sprintf("%v; create the class or submit the Job with another", err)
	}
	return nil
}

// readPods reads the pods of the Job, and of earlier Jobs of its name, past the cache.
func (r *Reconciler) readPods(ctx context.Context, s *queuedjob.Snapshot) error {
	if s.Leaving != nil {
		s.Orphans[s.Leaving.UID] = queuedjob.Objects{Workloads: s.Orphans[s.Leaving.UID].Workloads}
	}
	for uid, b := range s.Orphans {
		var err error
		if b.Pods, err = r.podsOf(ctx, s.Key, uid); err != nil {
			return err
		}
		s.Orphans[uid] = b
	}
	if s.Job == nil {
		return nil
	}
	var err error
	s.Owned.Pods, err = r.podsOf(ctx, s.Key, s.Job.UID)
	return err
}

// podsOf returns the pods of a Job that are not terminal. Tenants cannot change the label by which they are found (tranche-guard-pods).
func (r *Reconciler) podsOf(ctx context.Context, key types.NamespacedName, job types.UID) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.reader.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{batchv1.ControllerUidLabel: string(job)}); err != nil {
		return nil, fmt.Errorf("list pods of Job %s: %w", key, err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
