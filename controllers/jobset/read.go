package jobset

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*jobsetstate.Snapshot, error) {
	s := &jobsetstate.Snapshot{Key: key, Orphans: map[types.UID]jobsetstate.Objects{}, Now: time.Now(), Patience: r.config.Gangs.Patience, Retention: r.config.Retention}
	var js jobsetapi.JobSet
	err := r.config.Client.Get(ctx, key, &js)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	switch {
	case err != nil:
	case !js.DeletionTimestamp.IsZero():
		if !slices.Contains(js.Finalizers, metav1.FinalizerDeleteDependents) {
			s.Leaving = &js
		}
	default:
		managed, err := r.manages(ctx, &js)
		if err != nil {
			return nil, err
		}
		if managed {
			s.JobSet, s.Lost = stageplan.Restored(&js)
			s.IsUnqueued = childjob.AreUnqueued(&js)
		}
	}
	if err := r.readOwned(ctx, s); err != nil {
		return nil, err
	}
	if s.JobSet == nil {
		return s, nil
	}
	if r.config.ExpectedStarts != nil {
		s.ExpectedStart = r.config.ExpectedStarts.ExpectedStart(s.JobSet)
	}
	if s.Flavors, err = apply.Flavors(ctx, r.config.Client, s.Owned.Workloads); err != nil {
		return nil, err
	}
	backend, err := r.chooseScheduler(ctx, s)
	if err != nil {
		return nil, err
	}
	if s.HasUnknownRules, err = hasUnknownRules(ctx, r.config.Fields, s); err != nil {
		return nil, err
	}
	if s.HasUnknownRules {
		s.Refusal = jobsetstatus.UnknownRules
	} else if err := r.readPlan(ctx, s, backend); err != nil {
		return nil, err
	}
	if err := r.readOtherEngine(ctx, s); err != nil {
		return nil, err
	}
	// Only stages that the engine charges may be released.
	s.Charged, err = apply.Charged(ctx, r.config.Runner, s.Owned.Workloads)
	return s, err
}

// manages reports whether Tranche manages a JobSet: the JobSet is held, and its namespace is selected.
func (r *Reconciler) manages(ctx context.Context, js *jobsetapi.JobSet) (bool, error) {
	if apis.QueueNameOf(js.Labels) == "" && !r.config.WithoutQueueName && !childjob.AreUnqueued(js) {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := r.config.Client.Get(ctx, types.NamespacedName{Name: js.Namespace}, &namespace); err != nil {
		return false, fmt.Errorf("read Namespace %s: %w", js.Namespace, err)
	}
	return r.config.Namespaces.Matches(labels.Set(namespace.Labels)), nil
}

func (r *Reconciler) readOwned(ctx context.Context, s *jobsetstate.Snapshot) error {
	var workloads kueue.WorkloadList
	if err := r.config.Client.List(ctx, &workloads, client.InNamespace(s.Key.Namespace), client.MatchingLabels{apis.JobSetLabel: s.Key.Name}); err != nil {
		return fmt.Errorf("list quota Workloads of JobSet %s: %w", s.Key, err)
	}
	if s.JobSet != nil {
		s.Orphans[s.JobSet.UID] = jobsetstate.Objects{}
	}
	for i := range workloads.Items {
		uid := types.UID(workloads.Items[i].Labels[apis.JobUIDLabel])
		b := s.Orphans[uid]
		b.Workloads = append(b.Workloads, &workloads.Items[i])
		s.Orphans[uid] = b
	}
	for uid, b := range s.Orphans {
		if err := r.readJobs(ctx, s.Key.Namespace, uid, &b); err != nil {
			return err
		}
		s.Orphans[uid] = b
	}
	if s.JobSet != nil {
		s.Owned = s.Orphans[s.JobSet.UID]
		delete(s.Orphans, s.JobSet.UID)
	}
	return nil
}

func (r *Reconciler) readJobs(ctx context.Context, namespace string, uid types.UID, b *jobsetstate.Objects) error {
	options := []client.ListOption{client.InNamespace(namespace), client.MatchingFields{indexJobSetUID: string(uid)}}
	var jobs batchv1.JobList
	if err := r.config.Client.List(ctx, &jobs, options...); err != nil {
		return fmt.Errorf("list Jobs of JobSet %s: %w", uid, err)
	}
	for i := range jobs.Items {
		b.Jobs = append(b.Jobs, &jobs.Items[i])
	}
	var pods corev1.PodList
	if err := r.config.Client.List(ctx, &pods, options...); err != nil {
		return fmt.Errorf("list pods of JobSet %s: %w", uid, err)
	}
	return addPods(ctx, r.config.Client, b, pods.Items)
}

// readPlan computes the plan and reads the priority. A mistake that the user must fix becomes s.refusal. Deleting a priority class does not
// affect JobSets that are already queued.
func (r *Reconciler) readPlan(ctx context.Context, s *jobsetstate.Snapshot, backend *gangobjects.Backend) error {
	spec, unpaid, err := r.withClusterDefaults(ctx, s.JobSet)
	if err != nil {
		return err
	}
	newPlan := stageplan.New
	if s.IsUnqueued {
		newPlan = stageplan.NewUnqueued
	}
	plan, err := newPlan(spec)
	if err != nil {
		s.Refusal = err.Error()
		return nil //nolint:nilerr // the user must fix the spec; a retry would not help
	}
	if plan, err = r.readTarget(ctx, s, plan); err != nil {
		return err
	}
	if plan, err = r.choosePlan(ctx, s, plan); err != nil {
		return err
	}
	if !s.IsUnqueued {
		r.config.Runner.Observe(observation(s.JobSet, plan))
		if s.Refusal = refusalOf(s, unpaid); s.Refusal != "" {
			return nil
		}
	}
	if s.Gangs, s.Refusal, err = backend.Read(ctx, s.JobSet, plan); err != nil || s.Refusal != "" {
		return err
	}
	if s.IsUnqueued {
		s.Plan = plan
		return nil
	}
	s.Priority, err = r.readPriority(ctx, s.JobSet)
	if apierrors.IsNotFound(err) && len(s.Owned.Workloads) > 0 {
		first := s.Owned.Workloads[0].Spec
		s.Priority = jobsetstate.Priority{Value: ptr.Deref(first.Priority, 0), Class: first.PriorityClassRef}
		s.UnknownPriority, err = s.Priority.InsteadOfMissing(s.JobSet), nil
	}
	if apierrors.IsNotFound(err) {
		s.Refusal = fmt.Sprintf("%v; create the class or submit the JobSet with another", err)
		return nil
	}
	if err != nil {
		return err
	}
	s.Plan = plan
	return nil
}

// hasUnknownRules reports whether a JobSet that has not been planned yet may have lost its startupPolicy.rules when it was created. Its quota Workloads
// show that it has been planned, and the annotation that it has had them.
func hasUnknownRules(ctx context.Context, fields Fields, s *jobsetstate.Snapshot) (bool, error) {
	if s.IsUnqueued || len(s.Owned.Workloads) > 0 || jobsetstate.IsStarted(s.JobSet) || !stageplan.MayLackRules(s.JobSet) {
		return false, nil
	}
	if jobsetstatus.HasUnknownRules(s.JobSet) {
		return true, nil
	}
	missing, err := fields.Missing(ctx)
	return len(missing) > 0, err
}

// refusalOf returns why a JobSet cannot be queued, or "". unpaid says which of its devices are charged to no quota.
func refusalOf(s *jobsetstate.Snapshot, unpaid string) string {
	misuse := jobsetstate.Misuse
	if s.Target != nil {
		misuse = jobsetstate.MisuseOfAdopted
	}
	problem := cmp.Or(misuse(s.JobSet), s.Refusal)
	if problem == "" && !jobsetstate.IsStarted(s.JobSet) {
		problem = unpaid
	}
	return problem
}

// readPriority determines the priority of a JobSet: the first PriorityClass among its pod templates counts.
func (r *Reconciler) readPriority(ctx context.Context, js *jobsetapi.JobSet) (jobsetstate.Priority, error) {
	podClass := ""
	for i := range js.Spec.ReplicatedJobs {
		podClass = cmp.Or(podClass, js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.PriorityClassName)
	}
	value, class, err := apply.Priority(ctx, r.config.Client, js.Labels[apis.PriorityClassLabel], podClass, r.config.MaxPodPriority)
	return jobsetstate.Priority{Value: value, Class: class}, err
}

// addPods adds the pods that use quota. If the Job of a pod exists and does not belong to a JobSet, the pod uses no quota, unless another
// Job created it: a foreign Job may have adopted it, and keeps it running when its stage is held. The pods of a deleted Job terminate with
// it. Pods that no Job ends are abandoned.
func addPods(ctx context.Context, reader client.Reader, b *jobsetstate.Objects, pods []corev1.Pod) error {
	jobs := map[types.UID]*batchv1.Job{}
	for _, job := range b.Jobs {
		jobs[job.UID] = job
	}
	strangers := map[types.UID]bool{}
	for i := range pods {
		pod, owner := &pods[i], metav1.GetControllerOf(&pods[i])
		if !jobsetstate.IsCharged(pod) {
			continue
		}
		if jobsetstate.IsJob(owner) && jobs[owner.UID] == nil {
			if _, known := strangers[owner.UID]; !known {
				stranger, err := isStranger(ctx, reader, pod.Namespace, owner)
				if err != nil {
					return err
				}
				strangers[owner.UID] = stranger
			}
		}
		switch {
		case jobsetstate.IsLoose(pod) || jobsetstate.IsMade(pod) && strangers[owner.UID]:
			b.Abandoned = append(b.Abandoned, jobsetstate.AbandonedPod{Pod: pod, Reason: "no Job of the JobSet controls it, and its Job has replaced it"})
		case strangers[owner.UID]:
			continue
		case jobs[owner.UID] != nil && childjob.IsStuck(jobs[owner.UID]):
			b.Abandoned = append(b.Abandoned, jobsetstate.AbandonedPod{Pod: pod, Reason: fmt.Sprintf("its Job %q is being deleted, and finalizers keep the Job", owner.Name)})
		}
		b.Pods = append(b.Pods, pod)
	}
	return nil
}

// isStranger reports whether the Job that controls a pod exists and belongs to no JobSet.
func isStranger(ctx context.Context, reader client.Reader, namespace string, owner *metav1.OwnerReference) (bool, error) {
	var job batchv1.Job
	err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, &job)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read Job %s/%s that controls pods of a JobSet: %w", namespace, owner.Name, err)
	}
	return err == nil && job.UID == owner.UID && jobsetstate.JobSetOfJob(&job) == "", nil
}

// chooseScheduler determines which scheduler places the gangs of a JobSet, and returns the backend of its objects.
func (r *Reconciler) chooseScheduler(ctx context.Context, s *jobsetstate.Snapshot) (*gangobjects.Backend, error) {
	backend := r.config.Gangs.Default
	s.Scheduler.API, s.Scheduler.Default = backend.API, backend.API.Name
	members := jobsetstate.GangMembers(s.JobSet)
	if len(members) == 0 {
		return backend, nil
	}
	name, field := s.Scheduler.Of(jobsetstate.PodTemplateOf(s.JobSet, members[0])), "the pod templates"
	if !jobsetstate.IsStarted(s.JobSet) && !s.IsUnqueued {
		var err error
		if name, field, err = r.annotatedScheduler(ctx, s); err != nil {
			return nil, err
		}
	}
	chosen, err := r.config.Gangs.Of(cmp.Or(name, s.Scheduler.Default))
	if err != nil {
		s.Scheduler.Problem = fmt.Sprintf("metadata.annotations[%s] of %s: %v; until then it is %s", apis.GangProviderAnnotation, field, err, backend.API.Name)
		return backend, nil
	}
	s.Scheduler.API, s.Scheduler.SchedulerName = chosen.API, chosen.SchedulerName
	return chosen, nil
}

// annotatedScheduler returns the scheduler that a flavor or the LocalQueue of a JobSet names, and the object that does.
func (r *Reconciler) annotatedScheduler(ctx context.Context, s *jobsetstate.Snapshot) (name, object string, err error) {
	for _, flavor := range slices.Sorted(maps.Keys(s.Flavors)) {
		if name := s.Flavors[flavor].Annotations[apis.GangProviderAnnotation]; name != "" {
			return name, fmt.Sprintf("ResourceFlavor %q", flavor), nil
		}
	}
	var queue kueue.LocalQueue
	key := types.NamespacedName{Namespace: s.Key.Namespace, Name: string(jobsetstate.QueueOf(s.JobSet))}
	if err := r.config.Client.Get(ctx, key, &queue); client.IgnoreNotFound(err) != nil {
		return "", "", fmt.Errorf("read LocalQueue %s: %w", key, err)
	}
	return queue.Annotations[apis.GangProviderAnnotation], fmt.Sprintf("LocalQueue %q", key.Name), nil
}

// refresh reads the objects of the JobSet, and of earlier JobSets of its name, past the cache. In the cache, a Job that was just released
// can still look held.
func (r *Reconciler) refresh(ctx context.Context, s *jobsetstate.Snapshot) (*jobsetstate.Snapshot, error) {
	live := *s
	live.Orphans = map[types.UID]jobsetstate.Objects{}
	for uid := range s.Orphans {
		b, err := r.readLive(ctx, s.Key, uid)
		if err != nil {
			return nil, err
		}
		live.Orphans[uid] = b
	}
	if s.JobSet == nil {
		return &live, nil
	}
	var err error
	live.Owned, err = r.readLive(ctx, s.Key, s.JobSet.UID)
	return &live, err
}

// readLive reads the objects of the JobSet past the cache. It reads quota Workloads first, so that the state of the Jobs and pods is newer
// than that of their quota Workloads.
func (r *Reconciler) readLive(ctx context.Context, key types.NamespacedName, jobSet types.UID) (jobsetstate.Objects, error) {
	var b jobsetstate.Objects
	options := func(label string) []client.ListOption {
		return []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{label: string(jobSet)}}
	}
	var workloads kueue.WorkloadList
	if err := r.reader.List(ctx, &workloads, options(apis.JobUIDLabel)...); err != nil {
		return b, fmt.Errorf("list quota Workloads of JobSet %s: %w", key, err)
	}
	var jobs batchv1.JobList
	if err := r.reader.List(ctx, &jobs, options(jobset.JobSetUIDKey)...); err != nil {
		return b, fmt.Errorf("list Jobs of JobSet %s: %w", key, err)
	}
	for i := range workloads.Items {
		b.Workloads = append(b.Workloads, &workloads.Items[i])
	}
	for i := range jobs.Items {
		if jobsetstate.JobSetOfJob(&jobs.Items[i]) == jobSet {
			b.Jobs = append(b.Jobs, &jobs.Items[i])
		}
	}
	return b, r.readLivePods(ctx, key, jobSet, &b)
}

// readLivePods finds the pods of a JobSet by its UID and by its name, so that it also finds a pod that has lost one of these labels.
func (r *Reconciler) readLivePods(ctx context.Context, key types.NamespacedName, jobSet types.UID, b *jobsetstate.Objects) error {
	found := map[types.UID]bool{}
	var all []corev1.Pod
	for _, by := range []client.MatchingLabels{{jobset.JobSetUIDKey: string(jobSet)}, {jobset.JobSetNameKey: key.Name}} {
		var pods corev1.PodList
		if err := r.reader.List(ctx, &pods, client.InNamespace(key.Namespace), by); err != nil {
			return fmt.Errorf("list pods of JobSet %s: %w", key, err)
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			_, watched := pod.Labels[jobset.JobSetUIDKey]
			pod.Labels = jobsetstate.OriginalLabels(pod)
			if found[pod.UID] || jobsetstate.JobSetOfPod(pod) != jobSet {
				continue
			}
			found[pod.UID] = true
			b.HasUnwatchedPods = b.HasUnwatchedPods || !watched && jobsetstate.IsCharged(pod)
			all = append(all, *pod)
		}
	}
	return addPods(ctx, r.reader, b, all)
}
