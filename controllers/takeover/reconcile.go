package takeover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/events"
)

const (
	// soon is when to look again at what changes by itself: a lock that is not in force yet, or a decision that is being written.
	soon = 100 * time.Millisecond
	// later is when to look whether the locks are still there.
	later = 10 * time.Second
)

// A reconciler moves all cohort trees a step further.
type reconciler struct {
	config Config
	lock   lock
	// users are the names of both managers, once they are known.
	users map[string]string
	// told is the last Event about each ClusterQueue.
	told map[string]string
	// waits are those of locked trees for their lock to be in force, by their first ClusterQueue.
	waits map[string]wait
	// settled renders the trees for which there was nothing to do at the time settledAt.
	settled   string
	settledAt time.Time
}

// Reconcile looks at all cohort trees in which someone asks for Tranche, or that are locked.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var trees []admission.Takeover
	if err := r.config.Runner.Ask(ctx, func(e *admission.Engine) { trees = e.Takeovers() }); err != nil {
		return ctrl.Result{}, err
	}
	// Most changes of ClusterQueues are about what they hold.
	if since := time.Since(r.settledAt); fmt.Sprint(trees) == r.settled && since < later {
		return ctrl.Result{RequeueAfter: later - since}, nil
	}
	v, err := r.view(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	step := r.next(v.held, v.trees, v.writing)
	for _, name := range step.lost {
		r.config.Runner.Observe(admission.QueueReturned{ClusterQueue: name})
	}
	// The lock goes last: a manager that starts after a crash finds it, and goes on here.
	if err := r.endWaiting(ctx, step.released); err != nil {
		return ctrl.Result{}, err
	}
	err = r.lock.write(ctx, v.held, step.data)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	err = r.take(ctx, step.take)
	r.tell(v.trees, step.released, v.version)
	if err != nil {
		return ctrl.Result{}, err
	}
	if step.isMoving {
		return ctrl.Result{RequeueAfter: soon}, nil
	}
	r.settled, r.settledAt = v.observed, time.Now()
	if len(v.trees) > 0 {
		return ctrl.Result{RequeueAfter: later}, nil
	}
	return ctrl.Result{}, nil
}

// A view is what the next step depends on.
type view struct {
	held  *corev1.ConfigMap
	trees []admission.Takeover
	// observed renders the trees as the Engine reports them.
	observed string
	// writing has the locked ClusterQueues about which a decision is being written.
	writing map[string]bool
	// version is that of Kueue's manager, if it is known.
	version string
}

func (r *reconciler) view(ctx context.Context) (*view, error) {
	held, err := r.lock.read(ctx)
	if err != nil {
		return nil, err
	}
	if r.users == nil {
		if r.users, err = r.lock.users(ctx); err != nil {
			return nil, err
		}
	}
	v := &view{held: held, writing: map[string]bool{}}
	if v.version, err = KueueVersion(ctx, r.config.Live, r.users["kueueManager"]); err != nil {
		return nil, err
	}
	names := locked(held)
	err = r.config.Runner.Ask(ctx, func(e *admission.Engine) {
		v.trees = e.Takeovers()
		for _, name := range names {
			v.writing[name] = e.IsWriting(name)
		}
	})
	if err != nil {
		return nil, err
	}
	v.observed = fmt.Sprint(v.trees)
	blockUnlocked(v.trees, names, VersionProblem(v.version))
	return v, nil
}

// A step is what to do next.
type step struct {
	// data are those of the ConfigMap. The ClusterQueues in released are no longer in them.
	data     map[string]string
	released []string
	// take has the trees that are locked and not taken, and lost the ClusterQueues that are taken and not locked.
	take []admission.Takeover
	lost []string
	// isMoving is true if there is more to do that no watch reports.
	isMoving bool
}

// next computes what to do.
func (r *reconciler) next(held *corev1.ConfigMap, trees []admission.Takeover, writing map[string]bool) step {
	s := step{data: maps.Clone(r.users)}
	taken := map[string]bool{}
	for i := range trees {
		for _, name := range trees[i].Taken {
			taken[name] = true
		}
		s.advance(held, &trees[i])
	}
	for _, name := range locked(held) {
		if s.data[queuePrefix+name] != "" {
			continue
		}
		if taken[name] {
			s.lost = append(s.lost, name)
		}
		if !taken[name] && !writing[name] {
			s.released = append(s.released, name)
			continue
		}
		s.isMoving, s.data[queuePrefix+name] = true, stateEnding
	}
	if s.isMoving {
		// The trees may have other Cohorts than when they were locked.
		for key, value := range held.Data {
			if strings.HasPrefix(key, cohortPrefix) {
				s.data[key] = value
			}
		}
	}
	return s
}

// advance computes what to do for a tree, unless Tranche must not admit in it.
func (s *step) advance(held *corev1.ConfigMap, tree *admission.Takeover) {
	isFree := func(name string) bool { return held.Data[queuePrefix+name] == "" }
	if len(tree.Obstacles) > 0 || slices.ContainsFunc(tree.ClusterQueues, isFree) && len(tree.Unconfirmed) > 0 {
		return
	}
	state, isLost := stateLocked, false
	if tree.IsLed() {
		state = stateLed
	}
	for _, name := range tree.ClusterQueues {
		s.data[queuePrefix+name] = state
		if isFree(name) && slices.Contains(tree.Taken, name) {
			s.lost, isLost = append(s.lost, name), true
		}
	}
	for _, name := range tree.Cohorts {
		s.data[cohortPrefix+name] = stateLocked
	}
	if !tree.IsLed() || isLost {
		s.take, s.isMoving = append(s.take, *tree), true
	}
}

// The values of the keys of ClusterQueues. All of them keep Kueue out.
const (
	// stateLocked is before Tranche admits, stateLed while it does, and stateEnding afterwards while its last decisions are written.
	stateLocked = "Locked"
	stateLed    = "Tranche"
	stateEnding = "Ending"
)

// take lets the engine admit in trees that are locked, if the lock is in force and their ClusterQueues are still held.
func (r *reconciler) take(ctx context.Context, trees []admission.Takeover) error {
	var ready []admission.Takeover
	var problems []error
	waits := map[string]wait{}
	for i := range trees {
		tree := &trees[i]
		isReady, err := r.isReady(ctx, tree)
		if isReady {
			ready = append(ready, *tree)
			continue
		}
		problems = append(problems, err)
		first := tree.ClusterQueues[0]
		waits[first] = r.waits[first].still(time.Now(), err)
	}
	r.waits = waits
	if len(ready) == 0 {
		return errors.Join(problems...)
	}
	// What Kueue has admitted before the lock was in force is in this list; what it writes later is rejected.
	var workloads kueue.WorkloadList
	if err := r.config.Live.List(ctx, &workloads); err != nil {
		return fmt.Errorf("list quota Workloads: %w", err)
	}
	for i := range workloads.Items {
		r.config.Runner.Observe(admission.WorkloadObserved{Workload: &workloads.Items[i]})
	}
	for i := range ready {
		r.config.Runner.Observe(admission.QueuesTaken{ClusterQueues: ready[i].ClusterQueues})
	}
	// The next step records that Tranche admits.
	return errors.Join(problems...)
}

// isReady reports whether the lock of a tree is in force, and its ClusterQueues are held.
func (r *reconciler) isReady(ctx context.Context, tree *admission.Takeover) (bool, error) {
	for _, name := range tree.ClusterQueues {
		if inForce, err := r.lock.isInForce(ctx, name); err != nil || !inForce {
			return false, err
		}
		// The API server lets no user end the hold from here on: this read finds whether a user has ended it before.
		var queue kueue.ClusterQueue
		if err := r.config.Live.Get(ctx, client.ObjectKey{Name: name}, &queue); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		if queue.Spec.StopPolicy == nil || *queue.Spec.StopPolicy != kueue.Hold {
			return false, nil
		}
	}
	return true, nil
}

// endWaiting removes from quota Workloads in ClusterQueues that were handed back why they waited for Tranche. It reads them past the cache, which may
// not have the last reason yet.
func (r *reconciler) endWaiting(ctx context.Context, clusterQueues []string) error {
	if len(clusterQueues) == 0 {
		return nil
	}
	if err := r.config.Runner.AwaitRefusals(ctx); err != nil {
		return err
	}
	var localQueues kueue.LocalQueueList
	if err := r.config.Client.List(ctx, &localQueues); err != nil {
		return fmt.Errorf("list LocalQueues: %w", err)
	}
	for i := range localQueues.Items {
		lq := &localQueues.Items[i]
		if !slices.Contains(clusterQueues, string(lq.Spec.ClusterQueue)) {
			continue
		}
		var workloads kueue.WorkloadList
		if err := r.config.Live.List(ctx, &workloads, client.InNamespace(lq.Namespace)); err != nil {
			return fmt.Errorf("list quota Workloads of namespace %s: %w", lq.Namespace, err)
		}
		for k := range workloads.Items {
			if w := &workloads.Items[k]; string(w.Spec.QueueName) == lq.Name {
				if err := engine.EndWaiting(ctx, r.config.Client, w); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// tell emits an Event for each ClusterQueue whose state has changed.
func (r *reconciler) tell(trees []admission.Takeover, released []string, version string) {
	told := map[string]string{}
	say := func(name, text string, event events.Event) {
		told[name] = text
		if r.told[name] != text {
			event.Emit(r.config.Recorder, clusterQueue(name))
		}
	}
	for _, name := range released {
		// A manager that has started since the takeover has told nothing about it yet.
		events.HandedBack().Emit(r.config.Recorder, clusterQueue(name))
	}
	for i := range trees {
		tree := &trees[i]
		problem := tree.Problem()
		if problem == "" && !tree.IsLed() {
			problem = r.waits[tree.ClusterQueues[0]].problem(time.Now())
		}
		for _, name := range tree.ClusterQueues {
			switch {
			case problem != "":
				say(name, problem, events.TakeoverBlocked(problem))
			case len(tree.Inactive[name]) > 0:
				why := strings.Join(tree.Inactive[name], "; ")
				say(name, why, events.TakenOverInactive(why))
			case tree.IsLed() && version == "":
				say(name, stateLed, events.TakenOverUnchecked(len(tree.ClusterQueues), Supported+"x"))
			case tree.IsLed():
				say(name, stateLed, events.TakenOver(len(tree.ClusterQueues)))
			}
		}
	}
	r.told = told
}

// clusterQueue returns a reference for Events.
func clusterQueue(name string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		TypeMeta: metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: "ClusterQueue"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}
