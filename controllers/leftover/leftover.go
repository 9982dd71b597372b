// Package leftover cleans up what Kueue has left in a cluster on which Tranche takes its place: its finalizers, its scheduling gates on pods, and its
// Workloads. lifecycle/leftover decides.
package leftover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/leftover"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

const (
	// sweepEvery is how often the cluster is searched while Kueue's objects are left.
	sweepEvery = 5 * time.Second
	// stepEvery is how soon a step follows the last one.
	stepEvery = time.Second
	// pageSize is how many Workloads are read at once.
	pageSize = 500
	// graceOfKueue is how long after the installation of the admission policies objects of Kueue are expected to appear.
	graceOfKueue = 2 * time.Minute
)

// A Config configures the sweeper.
type Config struct {
	// Runner owns the admission engine.
	Runner *engine.Runner
	// Client reads from the cache and writes. Cache is the same one. Live reads past the cache.
	Client client.Client
	Cache  cache.Informers
	Live   client.Reader
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// Namespaces selects the namespaces that are managed, by their labels.
	Namespaces labels.Selector
}

// SetupWithManager starts the sweeper.
func SetupWithManager(mgr ctrl.Manager, config Config) error {
	if config.Runner == nil || config.Client == nil || config.Cache == nil || config.Live == nil || config.Recorder == nil || config.Namespaces == nil {
		return errors.New("leftover.Config: all fields are required")
	}
	s := &sweeper{config: config, writer: apply.Writer{Client: config.Client, Runner: config.Runner, Recorder: config.Recorder}}
	return mgr.Add(manager.RunnableFunc(s.run))
}

type sweeper struct {
	config Config
	writer apply.Writer
}

// run sweeps until nothing is left that Kueue has made before the admission policies. Objects of Kueue that appear later are not cleaned up.
func (s *sweeper) run(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("leftover")
	for {
		wait := sweepEvery
		left, wrote, err := s.sweep(ctx)
		switch {
		case err != nil:
			log.Info("Cleaning up what Kueue has left failed and is repeated", "cause", err.Error())
		case wrote:
			wait = stepEvery
		case !left:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// sweep takes a step for everything that Kueue has left. left is false if nothing is.
func (s *sweeper) sweep(ctx context.Context) (left, wrote bool, err error) {
	since, err := apply.PoliciesSince(ctx, s.config.Live, apis.QueueJobsBinding)
	if err != nil {
		return true, false, err
	}
	groups, finished, err := s.read(ctx, since)
	if err != nil {
		return true, false, err
	}
	var failed error
	for _, workload := range finished {
		failed = errors.Join(failed, s.writer.Delete(ctx, workload))
	}
	left, wrote = time.Since(since) < graceOfKueue, len(finished) > 0
	for _, group := range groups {
		step := leftover.Next(group)
		left = left || !step.IsDone
		wrote = wrote || !step.IsEmpty()
		failed = errors.Join(failed, s.write(ctx, &step))
	}
	return left || failed != nil, wrote, failed
}

// read finds the groups of pods that Kueue manages, and the Workloads of Kueue whose owner has finished or is gone.
func (s *sweeper) read(ctx context.Context, since time.Time) (groups []*leftover.Group, finished []*kueue.Workload, err error) {
	err = s.eachOfKueue(ctx, since, func(workload *kueue.Workload, kind leftover.Kind) error {
		if managed, err := s.manages(ctx, workload.Namespace); err != nil || !managed {
			return err
		}
		workload = workload.DeepCopy() // the rest of its page is not kept
		if kind == leftover.Pod {
			groups = append(groups, &leftover.Group{Workload: workload})
			return nil
		}
		over, err := s.isOver(ctx, workload, kind)
		if err == nil && over && len(workload.Finalizers) > 0 {
			finished = append(finished, workload)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	groups, err = s.addPods(ctx, groups)
	return groups, finished, err
}

// eachOfKueue calls a function for each Workload that Kueue has made before the admission policies, until it fails. It reads all Workloads past the cache, in
// pages, but only if the cache has one of these: there may be very many others.
func (s *sweeper) eachOfKueue(ctx context.Context, since time.Time, visit func(*kueue.Workload, leftover.Kind) error) error {
	kindOf := func(workload *kueue.Workload) (leftover.Kind, bool) {
		kind, ok := leftover.Of(workload)
		return kind, ok && adoption.IsOlder(workload, since)
	}
	cached, err := informer.All(ctx, s.config.Cache, &kueue.Workload{})
	if err != nil {
		return err
	}
	isOfKueue := func(workload *kueue.Workload) bool {
		_, ok := kindOf(workload)
		return ok
	}
	if !slices.ContainsFunc(cached, isOfKueue) {
		return nil
	}
	for next := ""; ; {
		var page kueue.WorkloadList
		if err := s.config.Live.List(ctx, &page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return fmt.Errorf("list Workloads of Kueue: %w", err)
		}
		for i := range page.Items {
			kind, ok := kindOf(&page.Items[i])
			if !ok {
				continue
			}
			if err := visit(&page.Items[i], kind); err != nil {
				return err
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// addPods adds pods to the groups that they belong to, and groups of pods without a Workload.
func (s *sweeper) addPods(ctx context.Context, groups []*leftover.Group) ([]*leftover.Group, error) {
	var pods corev1.PodList
	if err := s.config.Live.List(ctx, &pods, client.HasLabels{apis.KueueManagedKey}); err != nil {
		return nil, fmt.Errorf("list pods of Kueue: %w", err)
	}
	byKey := map[string]*leftover.Group{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		managed, err := s.manages(ctx, pod.Namespace)
		if err != nil {
			return nil, err
		}
		if !managed {
			continue
		}
		key := pod.Namespace + "/" + leftover.KeyOf(pod)
		group := byKey[key]
		for _, g := range groups {
			if group == nil && g.Workload != nil && g.Workload.Namespace == pod.Namespace && leftover.Owns(g.Workload, pod.UID) {
				group = g
			}
		}
		if group == nil {
			group = &leftover.Group{}
			groups = append(groups, group)
		}
		byKey[key] = group
		group.Pods = append(group.Pods, pod)
	}
	return groups, nil
}

// isOver reports whether the Job or the JobSet that owns a Workload has finished or is gone.
func (s *sweeper) isOver(ctx context.Context, workload *kueue.Workload, kind leftover.Kind) (bool, error) {
	owner := metav1.GetControllerOf(workload)
	if owner == nil {
		return false, nil
	}
	key := client.ObjectKey{Namespace: workload.Namespace, Name: owner.Name}
	if kind == leftover.JobSet {
		var js jobsetapi.JobSet
		if err := s.config.Live.Get(ctx, key, &js); err != nil {
			return apierrors.IsNotFound(err), apply.IgnoreNotFound(err, "read JobSet %s", key)
		}
		return js.UID != owner.UID || js.Status.TerminalState != "", nil
	}
	var job batchv1.Job
	if err := s.config.Live.Get(ctx, key, &job); err != nil {
		return apierrors.IsNotFound(err), apply.IgnoreNotFound(err, "read Job %s", key)
	}
	return job.UID != owner.UID || childjob.IsFinished(&job, batchv1.JobComplete) || childjob.IsFinished(&job, batchv1.JobFailed), nil
}

func (s *sweeper) manages(ctx context.Context, namespace string) (bool, error) {
	var object corev1.Namespace
	if err := s.config.Client.Get(ctx, client.ObjectKey{Name: namespace}, &object); err != nil {
		return false, apply.IgnoreNotFound(err, "read Namespace %s", namespace)
	}
	return s.config.Namespaces.Matches(labels.Set(object.Labels)), nil
}

// write writes the step of one group.
func (s *sweeper) write(ctx context.Context, step *leftover.Step) error {
	unpinned := func(pod *corev1.Pod) *corev1.Pod {
		after := pod.DeepCopy()
		controllerutil.RemoveFinalizer(after, apis.KueueManagedKey)
		return after
	}
	if err := s.changePods(ctx, step.Unpin, "remove Kueue's finalizer of", unpinned); err != nil {
		return err
	}
	if step.Mark != nil {
		if err := s.writer.Change(ctx, step.Mark, adoption.Marked(step.Mark)); err != nil {
			return err
		}
	}
	if err := s.changePods(ctx, step.Adopt, "adopt", func(pod *corev1.Pod) *corev1.Pod { return podgang.AdoptedPod(pod, step.Payer) }); err != nil {
		return err
	}
	if step.Take != nil {
		if err := s.writer.Change(ctx, step.Take, podgang.AdoptedWorkload(step.Take, step.Gang)); err != nil {
			return err
		}
	}
	if step.Delete != nil {
		return s.writer.Delete(ctx, step.Delete)
	}
	if err := s.changePods(ctx, step.Forget, "remove Kueue's label of", leftover.Forgotten); err != nil {
		return err
	}
	for _, pod := range step.Queue {
		if err := s.queue(ctx, pod); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("queue pod %s, which waited for Kueue: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	for _, pod := range step.Stuck {
		events.Misconfigured(leftover.CannotAdopt).Emit(s.config.Recorder, pod)
	}
	return nil
}

// changePods writes pods that must not have changed since they were read.
func (s *sweeper) changePods(ctx context.Context, pods []*corev1.Pod, attempt string, change func(*corev1.Pod) *corev1.Pod) error {
	for _, pod := range pods {
		if err := s.config.Client.Patch(ctx, change(pod), patch.Locked(pod, pod.ResourceVersion)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%s pod %s: %w", attempt, client.ObjectKeyFromObject(pod), err)
		}
	}
	return nil
}

// queue makes a pod a member of a gang. The admission policies let no pod join a group that is not a member, so that takes two writes.
func (s *sweeper) queue(ctx context.Context, pod *corev1.Pod) error {
	member := pod
	if !podgroup.IsMember(pod) {
		member = pod.DeepCopy()
		metav1.SetMetaDataLabel(&member.ObjectMeta, apis.PodGroupMemberLabel, apis.PodGroupMemberValue)
		if err := s.config.Client.Patch(ctx, member, patch.Locked(pod, pod.ResourceVersion)); err != nil {
			return err
		}
	}
	return s.config.Client.Patch(ctx, leftover.Queued(member), patch.Locked(member, member.ResourceVersion))
}
