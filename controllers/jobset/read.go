package jobset

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/childjob"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
)

// snapshot is the snapshot that one reconcile works on. It is not changed after read has returned it, and its objects belong to the cache.
type snapshot struct {
	key types.NamespacedName
	// jobSet is nil if the JobSet does not exist, or is not managed by Tranche.
	jobSet *jobsetapi.JobSet
	// isUnqueued is true if the JobSet has no queue, and Tranche runs its stages without quota.
	isUnqueued bool
	// leaving is a JobSet that is being deleted and has finalizers, or nil. Tranche no longer manages it.
	leaving *jobsetapi.JobSet
	// plan is nil if refusal says why there is none.
	plan    *stageplan.Plan
	refusal string

	// backend is nil if no scheduler places gangs, and gangs is nil if the JobSet asks for none. scheduler names the scheduler.
	scheduler scheduler
	backend   *gangobjects.Backend
	gangs     *gangobjects.State
	// now and patience determine which pods have waited long for a node.
	now      time.Time
	patience time.Duration
	// retention configures how long finished quota Workloads and deactivated JobSets are kept.
	retention configapi.WorkloadRetentionPolicy

	priority priority
	// unknownPriority reports that the JobSet names a priority class which does not exist, or is empty.
	unknownPriority string
	// mine belong to jobSet; orphans belong to JobSets of the same name that were or are being deleted.
	mine    ownedObjects
	orphans map[types.UID]ownedObjects

	flavors map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor
	// charged has the quota Workloads that the engine counts as admitted now, regardless of the cache.
	charged map[types.UID]bool
}

// ownedObjects has the objects of one JobSet.
type ownedObjects struct {
	workloads []*kueue.Workload
	jobs      []*batchv1.Job
	// pods has only pods that use quota: a Job of the JobSet controls or has created them, and they are not terminal.
	pods []*corev1.Pod
	// abandoned has those of the pods that no Job ends.
	abandoned []abandoned
	// unwatched is true if the cache lacks some of the pods.
	unwatched bool
}

// priority is the priority of the quota Workloads of a JobSet.
type priority struct {
	value int32
	class *kueue.PriorityClassRef
}

func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*snapshot, error) {
	s := &snapshot{key: key, orphans: map[types.UID]ownedObjects{}, now: time.Now(), patience: r.config.Gangs.Patience(), retention: r.config.Retention}
	var js jobsetapi.JobSet
	err := r.config.Client.Get(ctx, key, &js)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	switch {
	case err != nil:
	case !js.DeletionTimestamp.IsZero():
		if !slices.Contains(js.Finalizers, metav1.FinalizerDeleteDependents) {
			s.leaving = &js
		}
	default:
		managed, err := r.manages(ctx, &js)
		if err != nil {
			return nil, err
		}
		if managed {
			s.jobSet, s.isUnqueued = &js, childjob.AreUnqueued(&js)
		}
	}
	if err := r.readOwnedObjects(ctx, s); err != nil {
		return nil, err
	}
	if s.jobSet == nil {
		return s, nil
	}
	if err := r.readFlavors(ctx, s); err != nil {
		return nil, err
	}
	if err := r.chooseScheduler(ctx, s); err != nil {
		return nil, err
	}
	if err := r.readPlan(ctx, s); err != nil {
		return nil, err
	}
	return s, r.readCharges(ctx, s)
}

// manages reports whether Tranche manages a JobSet: the JobSet is held, and its namespace is selected.
func (r *Reconciler) manages(ctx context.Context, js *jobsetapi.JobSet) (bool, error) {
	if js.Labels[apis.QueueLabel] == "" && !r.config.WithoutQueueName && !childjob.AreUnqueued(js) {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := r.config.Client.Get(ctx, types.NamespacedName{Name: js.Namespace}, &namespace); err != nil {
		return false, fmt.Errorf("read Namespace %s: %w", js.Namespace, err)
	}
	return r.config.Namespaces.Matches(labels.Set(namespace.Labels)), nil
}

func (r *Reconciler) readOwnedObjects(ctx context.Context, s *snapshot) error {
	var workloads kueue.WorkloadList
	if err := r.config.Client.List(ctx, &workloads, client.InNamespace(s.key.Namespace), client.MatchingLabels{apis.JobSetLabel: s.key.Name}); err != nil {
		return fmt.Errorf("list quota Workloads of JobSet %s: %w", s.key, err)
	}
	byUID := map[types.UID]ownedObjects{}
	if s.jobSet != nil {
		byUID[s.jobSet.UID] = ownedObjects{}
	}
	for i := range workloads.Items {
		uid := types.UID(workloads.Items[i].Labels[apis.JobUIDLabel])
		o := byUID[uid]
		o.workloads = append(o.workloads, &workloads.Items[i])
		byUID[uid] = o
	}
	for uid, o := range byUID {
		if err := r.readJobs(ctx, s.key.Namespace, uid, &o); err != nil {
			return err
		}
		if s.jobSet != nil && uid == s.jobSet.UID {
			s.mine = o
		} else {
			s.orphans[uid] = o
		}
	}
	return nil
}

func (r *Reconciler) readJobs(ctx context.Context, namespace string, uid types.UID, o *ownedObjects) error {
	options := []client.ListOption{client.InNamespace(namespace), client.MatchingFields{indexJobSetUID: string(uid)}}
	var jobs batchv1.JobList
	if err := r.config.Client.List(ctx, &jobs, options...); err != nil {
		return fmt.Errorf("list Jobs of JobSet %s: %w", uid, err)
	}
	for i := range jobs.Items {
		o.jobs = append(o.jobs, &jobs.Items[i])
	}
	var pods corev1.PodList
	if err := r.config.Client.List(ctx, &pods, options...); err != nil {
		return fmt.Errorf("list pods of JobSet %s: %w", uid, err)
	}
	return o.addPods(ctx, r.config.Client, pods.Items)
}

// readPlan computes the plan and reads the priority. A mistake that the user must fix becomes s.refusal. Deleting a priority class does not
// affect JobSets that are already queued.
func (r *Reconciler) readPlan(ctx context.Context, s *snapshot) error {
	spec, unpaid, err := r.withClusterDefaults(ctx, s.jobSet)
	if err != nil {
		return err
	}
	newPlan := stageplan.New
	if s.isUnqueued {
		newPlan = stageplan.NewUnqueued
	}
	plan, err := newPlan(spec)
	if err != nil {
		s.refusal = err.Error()
		return nil //nolint:nilerr // the user must fix the spec; a retry would not help
	}
	if !s.isUnqueued {
		r.config.Runner.Observe(observation(s.jobSet, plan))
		if s.refusal = misuse(s.jobSet); s.refusal == "" && !isStarted(s.jobSet) {
			s.refusal = unpaid
		}
		if s.refusal != "" {
			return nil
		}
	}
	if s.gangs, s.refusal, err = s.backend.Read(ctx, s.jobSet, plan); err != nil || s.refusal != "" {
		return err
	}
	if s.isUnqueued {
		s.plan = plan
		return nil
	}
	s.priority, err = r.readPriority(ctx, s.jobSet)
	if apierrors.IsNotFound(err) && len(s.mine.workloads) > 0 {
		first := s.mine.workloads[0].Spec
		s.priority = priority{ptr.Deref(first.Priority, 0), first.PriorityClassRef}
		s.unknownPriority, err = s.priority.instead(s.jobSet), nil
	}
	if apierrors.IsNotFound(err) {
		s.refusal = fmt.Sprintf("%v; create the class or submit the JobSet with another", err)
		return nil
	}
	if err != nil {
		return err
	}
	s.plan = plan
	return nil
}

// instead returns a message that a JobSet keeps its priority because the class that it names now does not exist, or "" if the JobSet got
// its priority from that class.
func (p priority) instead(js *jobsetapi.JobSet) string {
	name := js.Labels[apis.PriorityClassLabel]
	if name == "" || p.class != nil && p.class.Kind == kueue.WorkloadPriorityClassKind && p.class.Name == name {
		return ""
	}
	return fmt.Sprintf("Label %s names WorkloadPriorityClass %q, which does not exist: the JobSet keeps priority %d; create the class or name another",
		apis.PriorityClassLabel, name, p.value)
}

// readPriority determines the priority as Kueue does: from the class that the JobSet's label names, else from the first PriorityClass among
// its pod templates, else from the default of the cluster.
func (r *Reconciler) readPriority(ctx context.Context, js *jobsetapi.JobSet) (priority, error) {
	if name := js.Labels[apis.PriorityClassLabel]; name != "" {
		var class kueue.WorkloadPriorityClass
		if err := r.config.Client.Get(ctx, types.NamespacedName{Name: name}, &class); err != nil {
			return priority{}, fmt.Errorf("read WorkloadPriorityClass %q named by label %s: %w", name, apis.PriorityClassLabel, err)
		}
		return priority{class.Value, kueue.NewWorkloadPriorityClassRef(name)}, nil
	}
	for i := range js.Spec.ReplicatedJobs {
		name := js.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.PriorityClassName
		if name == "" {
			continue
		}
		var class schedulingv1.PriorityClass
		if err := r.config.Client.Get(ctx, types.NamespacedName{Name: name}, &class); err != nil {
			return priority{}, fmt.Errorf("read PriorityClass %q of ReplicatedJob %q: %w", name, js.Spec.ReplicatedJobs[i].Name, err)
		}
		return priority{class.Value, kueue.NewPodPriorityClassRef(name)}, nil
	}
	var classes schedulingv1.PriorityClassList
	if err := r.config.Client.List(ctx, &classes); err != nil {
		return priority{}, fmt.Errorf("list PriorityClasses: %w", err)
	}
	for i := range classes.Items {
		if classes.Items[i].GlobalDefault {
			return priority{classes.Items[i].Value, kueue.NewPodPriorityClassRef(classes.Items[i].Name)}, nil
		}
	}
	return priority{}, nil
}

func (r *Reconciler) readFlavors(ctx context.Context, s *snapshot) error {
	s.flavors = map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{}
	for _, workload := range s.mine.workloads {
		if workload.Status.Admission == nil {
			continue
		}
		for _, assignment := range workload.Status.Admission.PodSetAssignments {
			for _, name := range assignment.Flavors {
				if s.flavors[name] != nil {
					continue
				}
				var flavor kueue.ResourceFlavor
				err := r.config.Client.Get(ctx, types.NamespacedName{Name: string(name)}, &flavor)
				if apierrors.IsNotFound(err) {
					continue
				}
				if err != nil {
					return fmt.Errorf("read ResourceFlavor %q of quota Workload %s: %w", name, client.ObjectKeyFromObject(workload), err)
				}
				s.flavors[name] = &flavor
			}
		}
	}
	return nil
}

// readCharges asks the engine, because the cache may still show an admission whose quota was released. Only stages that the engine charges
// may be released.
func (r *Reconciler) readCharges(ctx context.Context, s *snapshot) error {
	s.charged = map[types.UID]bool{}
	return r.config.Runner.View(ctx, func(e *admission.Engine) {
		for _, workload := range s.mine.workloads {
			s.charged[workload.UID] = e.Charged(client.ObjectKeyFromObject(workload), workload.UID)
		}
	})
}
