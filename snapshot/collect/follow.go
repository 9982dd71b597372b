package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/snapshot"
)

// A Source has the objects of one kind that are followed.
type Source struct {
	Kind *snapshot.Kind
	// Namespace is where the objects are. If it is empty, those of all namespaces are followed.
	Namespace string
	// Options select among the objects of the kind.
	Options []client.ListOption
}

// options returns the options of a request for the objects.
func (s *Source) options(raw *metav1.ListOptions) *client.ListOptions {
	o := &client.ListOptions{Namespace: s.Namespace, Raw: raw, Limit: raw.Limit, Continue: raw.Continue}
	return o.ApplyOptions(s.Options)
}

// A Target takes the objects of Sources. Those of one Source come from one goroutine.
type Target interface {
	// Reduce returns an object without what the target does not use. Each object is reduced while the others of a list arrive.
	Reduce(from *Source, object snapshot.Object) snapshot.Object
	// Observe takes an object that is new, or has changed, or has been listed again.
	Observe(from *Source, object snapshot.Object)
	// Forget takes the last state of an object that was deleted.
	Forget(from *Source, object snapshot.Object)
	// Retain takes the UIDs of all objects of a list, after all were observed: others were deleted while they were not watched.
	Retain(from *Source, uids map[types.NamespacedName]types.UID)
}

// A Follower lists and watches objects for a Target, with the rights of a user. Its methods may be called concurrently.
type Follower struct {
	// Client reads from the API server. Its scheme has the kinds.
	Client client.WithWatch
	Target Target
	// Role describes the ClusterRole that grants the right to list and watch every kind.
	Role string
	// Describe completes the Gap of a kind that the user may not read, or that the API server does not serve.
	Describe func(kind *snapshot.Kind, gap *snapshot.Gap)
	// Changed is called after the State has changed.
	Changed func()

	mu   sync.Mutex
	gaps map[*Source]snapshot.Gap
	// unanswered are those for which the API server did not answer, and unsynced those that have not been listed.
	unanswered, unsynced map[*Source]struct{}
}

// A State describes what a Follower has read.
type State struct {
	// Gaps are what cannot be read, sorted by their text.
	Gaps []snapshot.Gap
	// IsSynced is true if everything that can be read has been listed once, and IsStale if it may have changed because the API server does not answer.
	IsSynced, IsStale bool
}

// State returns what has been read until now.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := State{Gaps: []snapshot.Gap{}, IsSynced: f.unsynced != nil && len(f.unsynced) == 0, IsStale: len(f.unanswered) > 0}
	for _, gap := range f.gaps {
		state.Gaps = append(state.Gaps, gap)
	}
	slices.SortFunc(state.Gaps, func(a, b snapshot.Gap) int { return strings.Compare(a.String(), b.String()) })
	return state
}

// Readable returns those of some Sources that the user may list and watch. It returns an error if the API server does not answer.
func (f *Follower) Readable(ctx context.Context, sources []*Source) (readable []*Source, err error) {
	for _, s := range sources {
		switch err := f.try(ctx, s); {
		case err == nil:
			readable = append(readable, s)
		case isUnserved(err) || apierrors.IsForbidden(err):
			f.note(s, err)
		default:
			return nil, fmt.Errorf("list %s: %w", s.Kind.FullResource(), err)
		}
	}
	return readable, nil
}

// try lists an object and begins to watch.
func (f *Follower) try(ctx context.Context, s *Source) error {
	list, err := newList(f.Client.Scheme(), s.Kind)
	if err != nil {
		return err
	}
	if err := f.Client.List(ctx, list, s.options(&metav1.ListOptions{Limit: 1})); err != nil {
		return err
	}
	events, err := f.Client.Watch(ctx, list, s.options(&metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: new(int64(1))}))
	if err == nil {
		events.Stop()
	}
	return err
}

// Run follows Sources until the context is done. It is called once.
func (f *Follower) Run(ctx context.Context, sources []*Source) {
	f.mu.Lock()
	f.unsynced = map[*Source]struct{}{}
	for _, s := range sources {
		f.unsynced[s] = struct{}{}
	}
	f.mu.Unlock()
	f.Changed()
	var running sync.WaitGroup
	for _, s := range sources {
		running.Go(func() { f.follow(ctx, s) })
	}
	running.Wait()
}

func (f *Follower) follow(ctx context.Context, s *Source) {
	note := func(err error) {
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			f.note(s, err)
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list, err := newList(f.Client.Scheme(), s.Kind)
			if err == nil {
				err = f.Client.List(ctx, list, s.options(&raw))
			}
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			list, err := newList(f.Client.Scheme(), s.Kind)
			if err != nil {
				return nil, err
			}
			events, err := f.Client.Watch(ctx, list, s.options(&raw))
			note(err)
			return events, err
		},
	}
	cache.NewReflectorWithOptions(source, snapshot.NewObject(s.Kind), &store{f, s}, cache.ReflectorOptions{
		Name: "follow", TypeDescription: s.Kind.FullResource(),
	}).RunWithContext(ctx)
}

// note records that a Source cannot be read now, or that it can.
func (f *Follower) note(s *Source, err error) {
	var gap *snapshot.Gap
	isUnanswered := false
	if err != nil {
		if gap = gapOf(err, s.Kind, s.Namespace, "list and watch", f.Role); gap != nil {
			f.Describe(s.Kind, gap)
		} else {
			isUnanswered = true
			gap = &snapshot.Gap{Resource: s.Kind.FullResource(), Namespaces: in(s.Namespace), Reason: "out of date, because the API server does not answer: " + ReasonOf(err)}
		}
	}
	f.mu.Lock()
	before, was := f.gaps[s]
	if f.gaps == nil {
		f.gaps, f.unanswered = map[*Source]snapshot.Gap{}, map[*Source]struct{}{}
	}
	delete(f.gaps, s)
	delete(f.unanswered, s)
	if gap != nil {
		f.gaps[s] = *gap
	}
	if isUnanswered {
		f.unanswered[s] = struct{}{}
	}
	f.mu.Unlock()
	if was != (gap != nil) || was && before.String() != gap.String() {
		f.Changed()
	}
}

// listed records that a Source has been read.
func (f *Follower) listed(s *Source) {
	f.mu.Lock()
	_, isFirst := f.unsynced[s]
	delete(f.unsynced, s)
	f.mu.Unlock()
	if isFirst {
		f.Changed()
	}
}

// A store hands the objects of a Source to the Target. It keeps none.
type store struct {
	follower *Follower
	source   *Source
}

var _ cache.TransformingStore = (*store)(nil)

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.pass(object, s.follower.Target.Observe) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error { return s.pass(object, s.follower.Target.Forget) }

// Replace implements cache.ReflectorStore.
func (s *store) Replace(objects []any, _ string) error {
	uids := make(map[types.NamespacedName]types.UID, len(objects))
	for _, object := range objects {
		err := s.pass(object, func(from *Source, o snapshot.Object) {
			uids[client.ObjectKeyFromObject(o)] = o.GetUID()
			s.follower.Target.Observe(from, o)
		})
		if err != nil {
			return err
		}
	}
	s.follower.Target.Retain(s.source, uids)
	s.follower.listed(s.source)
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

// Transformer implements cache.TransformingStore.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if o, isObject := object.(snapshot.Object); isObject {
			return s.follower.Target.Reduce(s.source, o), nil
		}
		return object, nil
	}
}

func (s *store) pass(object any, to func(*Source, snapshot.Object)) error {
	o, isObject := object.(snapshot.Object)
	if !isObject {
		return fmt.Errorf("%T is no object", object)
	}
	to(s.source, o)
	return nil
}
