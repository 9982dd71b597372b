// Package invariants watches a cluster from outside and checks the invariants that Tranche guarantees:
//
//   - I1: whenever a quota Workload reserves quota, what its ClusterQueue and the Cohorts above it have reserved stays within what
//     quota, borrowing and lending limits allow. What Kueue's manager reserves as it starts is judged by the ClusterQueues that it surely knows;
//   - I2 and section 4 of the design: every pod of a queued JobSet or Job, and every ungated pod of a gang of pods, lives only while a quota Workload
//     that pays for it holds quota, and only after that Workload was Admitted, which is after its AdmissionChecks were Ready;
//   - I9: the pods that live at a time are never more, and never ask for more accelerators, than is charged for them: counted by pods and their
//     ResourceClaims, for the stages of JobSets, queued Jobs and gangs of pods;
//   - I4: held quota is released for a reason that can be read, so that no stage is admitted twice, and a stage that has finished
//     never holds quota again;
//   - the stages of a JobSet, in a queue or in none, start in their order: the first pod of each Job comes after what its ReplicatedJob waits for in that attempt;
//   - a gang starts whole: no pod of a gang of a JobSet gets a node while the gang has fewer pods than the JobSet asks for, no pod of a gang
//     of pods is ungated while there are fewer pods than its quota was admitted for, and no main container of a group that starts together
//     runs before all pods of the group have started.
//
// It orders what it sees by resource version, which the API server hands out in one sequence for all kinds, so it does not depend
// on how fast its watches are. It outlives the API server: what happened while it could not watch counts in favor of Tranche.
package invariants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/test/testenv"
)

// retryEvery is how often the auditor retries to list a kind that it could not watch.
const retryEvery = 200 * time.Millisecond

// An Auditor follows a cluster until its context ends. Its methods may be called from any goroutine.
type Auditor struct {
	client client.WithWatch

	mu       sync.Mutex
	progress map[string]uint64
	worlds   []*world
	holders  map[types.UID]*holder
	pods     map[types.UID]*life
	members  map[types.UID]*member
	jobSets  map[types.UID]needs
	orders   map[types.UID]*order
	// placesGangs is true if the scheduler of Kubernetes places gangs whole, and userGroups are the PodGroups for it that belong to no JobSet.
	placesGangs bool
	userGroups  map[client.ObjectKey]bool
	// gaps are when quota Workloads were not watched.
	gaps []span
	// held has the Jobs that have been held, and may have pods only while quota is held for them.
	held map[types.UID]bool
	// ignored are the pods of Ignore.
	ignored map[types.UID]bool
	// rules are what the manager charges for pods, and claims and classes what they depend on: claims by namespace and name.
	rules   ledger.Rules
	claims  map[string]map[string]device.Claim
	classes map[string]*resourcev1.DeviceClass

	found    []string
	suspects []suspect
	// kueueStarts are the times at which Kueue's manager was started while it was audited.
	kueueStarts []time.Time
	advanced    chan struct{}
}

// A span is the range from the first resource version at which a fact was true to the first at which it was not. To is 0 while it lasts.
type span struct{ from, to uint64 }

func (s span) covers(other span) bool {
	return s.from <= other.from && (s.to == 0 || other.to != 0 && other.to <= s.to)
}

// A moment is the range of resource versions in which an event happened. They are equal unless the event was not watched.
type moment struct{ earliest, latest uint64 }

// Start begins to audit. The client's scheme must know the APIs of Kueue and JobSet.
func Start(ctx context.Context, c client.WithWatch) (*Auditor, error) {
	a := newAuditor()
	a.client = c
	config, err := testenv.Configuration()
	if err != nil {
		return nil, err
	}
	a.rules = ledger.Rules{Charges: admission.ConfigOf(config).Charges, Devices: admission.DevicesOf(&config.Resources)}
	_, err = c.RESTMapper().RESTMapping(schedulingv1alpha2.SchemeGroupVersion.WithKind("PodGroup").GroupKind(), schedulingv1alpha2.SchemeGroupVersion.Version)
	if err != nil && !apimeta.IsNoMatchError(err) {
		return nil, fmt.Errorf("look for the PodGroups of Kubernetes to audit them: %w", err)
	}
	a.placesGangs = err == nil
	for _, kind := range a.kinds() {
		from, err := a.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		go a.follow(ctx, kind, from)
	}
	return a, nil
}

func newAuditor() *Auditor {
	return &Auditor{
		progress: map[string]uint64{}, worlds: []*world{newWorld()}, advanced: make(chan struct{}, 1), holders: map[types.UID]*holder{},
		pods: map[types.UID]*life{}, members: map[types.UID]*member{}, jobSets: map[types.UID]needs{}, orders: map[types.UID]*order{},
		userGroups: map[client.ObjectKey]bool{}, held: map[types.UID]bool{}, ignored: map[types.UID]bool{},
		claims: map[string]map[string]device.Claim{}, classes: map[string]*resourcev1.DeviceClass{},
	}
}

// kinds are the kinds that the auditor follows. Queues come first, so that limits are known before quota is charged to them.
func (a *Auditor) kinds() []client.ObjectList {
	all := []client.ObjectList{
		&kueue.CohortList{}, &kueue.ClusterQueueList{}, &resourcev1.DeviceClassList{}, &jobsetapi.JobSetList{}, &batchv1.JobList{}, &kueue.WorkloadList{},
		&resourcev1.ResourceClaimList{}, &corev1.PodList{},
	}
	if a.placesGangs {
		all = append(all, &schedulingv1alpha2.PodGroupList{})
	}
	return all
}

// list reads the existing objects of one kind, and records those deleted since the auditor's last read. It returns the version to watch
// from.
func (a *Auditor) list(ctx context.Context, kind client.ObjectList) (string, error) {
	list := kind.DeepCopyObject().(client.ObjectList)
	if err := a.client.List(ctx, list); err != nil {
		return "", fmt.Errorf("list %T to audit it: %w", list, err)
	}
	var items []client.Object
	err := eachItem(list, func(object client.Object) { items = append(items, object) })
	if err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := fmt.Sprintf("%T", kind)
	now := moment{earliest: a.progress[name] + 1, latest: version(list.GetResourceVersion())}
	a.seeAll(kind, items, now)
	a.advance(name, now.latest)
	return list.GetResourceVersion(), nil
}

// seeAll processes all objects of one kind as they are after a time in which the kind was not watched.
func (a *Auditor) seeAll(kind client.ObjectList, items []client.Object, now moment) {
	if _, ok := kind.(*kueue.WorkloadList); ok {
		a.gaps = append(a.gaps, span{now.earliest, now.latest})
	}
	a.missing(kind, items, now)
	// Objects that have released quota come first: the order in which that happened is not known.
	slices.SortStableFunc(items, func(x, y client.Object) int { return rank(x) - rank(y) })
	for _, object := range items {
		a.see(object, now, watch.Modified)
	}
}

func rank(object client.Object) int {
	if w, ok := object.(*kueue.Workload); ok && quotaworkload.IsCharged(w) {
		return 1
	}
	return 0
}

// missing records the end of objects that were known and are no longer listed.
func (a *Auditor) missing(kind client.ObjectList, items []client.Object, now moment) {
	listed := map[types.UID]bool{}
	for _, object := range items {
		listed[object.GetUID()] = true
	}
	switch kind.(type) {
	case *kueue.WorkloadList:
		for uid, h := range a.holders {
			if !listed[uid] {
				h.release(now)
			}
		}
	case *corev1.PodList:
		for uid, l := range a.pods {
			if !listed[uid] && l.span.to == 0 {
				l.span.to = now.earliest
			}
		}
		for uid, m := range a.members {
			if !listed[uid] {
				m.end(now)
			}
		}
	}
}

// follow watches one kind until the context ends. When the API server no longer has the events since the last version, it lists again.
func (a *Auditor) follow(ctx context.Context, kind client.ObjectList, from string) {
	name := fmt.Sprintf("%T", kind)
	for ctx.Err() == nil {
		a.watch(ctx, kind, from)
		err := wait.PollUntilContextCancel(ctx, retryEvery, true, func(ctx context.Context) (bool, error) {
			var err error
			from, err = a.list(ctx, kind)
			return err == nil, nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			a.mu.Lock()
			a.found = append(a.found, fmt.Sprintf("the audit of %s ended: %v", name, err))
			a.mu.Unlock()
		}
	}
}

// watch processes the events of one kind, for as long as the API server can send them.
func (a *Auditor) watch(ctx context.Context, kind client.ObjectList, from string) {
	source := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		return a.client.Watch(ctx, kind.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &options})
	}}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, from, source)
	if err != nil {
		return // from is no version, so list again
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(client.Object)
		if !ok {
			continue // an error that ends the watch
		}
		at := version(object.GetResourceVersion())
		a.mu.Lock()
		a.see(object, moment{at, at}, event.Type)
		a.advance(fmt.Sprintf("%T", kind), at)
		a.mu.Unlock()
	}
}

func (a *Auditor) advance(kind string, at uint64) {
	a.progress[kind] = max(a.progress[kind], at)
	select {
	case a.advanced <- struct{}{}:
	default:
	}
}

// see processes one object in its current or last state.
func (a *Auditor) see(object client.Object, now moment, what watch.EventType) {
	switch o := object.(type) {
	case *kueue.Cohort:
		a.seeCohort(o, now)
	case *kueue.ClusterQueue:
		a.seeClusterQueue(o, now)
	case *kueue.Workload:
		a.seeWorkload(o, now, what)
	case *jobsetapi.JobSet:
		a.seeJobSet(o)
		a.seeOrder(o)
	case *schedulingv1alpha2.PodGroup:
		if owner := metav1.GetControllerOf(o); owner == nil || owner.Kind != "JobSet" {
			a.userGroups[client.ObjectKeyFromObject(o)] = true
		}
	case *batchv1.Job:
		a.held[o.UID] = a.held[o.UID] || isHeld(o.Labels)
		a.seeProgress(o, now)
	case *resourcev1.ResourceClaim:
		a.seeClaim(o)
	case *resourcev1.DeviceClass:
		a.seeDeviceClass(o)
	case *corev1.Pod:
		a.seePod(o, now, what)
	}
}

func isTrue(conditions []metav1.Condition, conditionType string) bool {
	return apimeta.IsStatusConditionTrue(conditions, conditionType)
}

// Violations waits until all events before the call have been observed, and returns the violations. Pods of JobSets and Jobs that
// have never been held and have no quota Workload are ignored.
func (a *Auditor) Violations(ctx context.Context) ([]string, error) {
	for _, list := range a.kinds() {
		if err := a.client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T to audit it: %w", list, err)
		}
		newest := uint64(0)
		err := eachItem(list, func(object client.Object) { newest = max(newest, version(object.GetResourceVersion())) })
		if err != nil {
			return nil, err
		}
		if err := a.waitFor(ctx, fmt.Sprintf("%T", list), newest); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Concat(a.found, a.breaches(), a.strays(), a.overdrawn(), a.partial(), a.misordered()), nil
}

func (a *Auditor) waitFor(ctx context.Context, kind string, at uint64) error {
	for {
		a.mu.Lock()
		reached := a.progress[kind] >= at
		a.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-a.advanced:
		case <-ctx.Done():
			return fmt.Errorf("wait for the audit of %s: %w", kind, ctx.Err())
		}
	}
}

func version(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return v
}

func eachItem(list client.ObjectList, f func(client.Object)) error {
	return apimeta.EachListItem(list, func(object runtime.Object) error {
		f(object.(client.Object))
		return nil
	})
}
