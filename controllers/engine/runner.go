// Package engine runs the admission.Engine: one goroutine owns it, feeds it with the observations of the other controllers, and passes its
// decisions to a bounded pool of writers. All other parts of the manager reach the engine through a Runner.
//
// Order: the observations of one kind of object are applied in the order in which they were made; nothing is decided before all sources
// have delivered their initial state and this process leads; the decisions about one stage are written one after the other; a decision that
// could not be written is rolled back in the engine, which then decides again.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
	// firstTries is how long to wait between tries to prepare for the first decision.
	firstTries = time.Second
	// shortestWait limits how often the engine is asked whether a timer has expired.
	shortestWait = 10 * time.Millisecond
)

// A Config configures a Runner.
type Config struct {
	// Engine is owned by the Runner from now on.
	Engine *admission.Engine
	// Client writes decisions, and reads quota Workloads from the cache.
	Client client.Client
	// Reader reads past the cache.
	Reader client.Reader
	// Recorder emits the Events about decisions.
	Recorder k8sevents.EventRecorder
	// Metrics counts decisions and their writes.
	Metrics *metrics.Metrics
	// Elected is closed when this process leads. Until then the Runner applies observations and decides nothing.
	Elected <-chan struct{}
	// Writers is how many decisions are written at the same time.
	Writers int
	// SettleAfter is how long a stage has waited for the same reason before that is written.
	SettleAfter time.Duration
	// Beside is true if Kueue's manager also writes the status of quota Workloads.
	Beside bool
	// Gates are the feature gates of Kueue that are on.
	Gates configapi.FeatureGates
}

// Shown returns a status of a quota Workload as it is written: with other reasons under some feature gates.
func (r *Runner) Shown(status kueue.WorkloadStatus) kueue.WorkloadStatus {
	if !r.writer.config.Gates.Observability() {
		return status
	}
	return workloadstatus.Observable(status)
}

func (c *Config) validate() error {
	if c.Engine == nil || c.Client == nil || c.Reader == nil || c.Recorder == nil || c.Metrics == nil || c.Elected == nil {
		return errors.New("engine.Config: Engine, Client, Reader, Recorder, Metrics and Elected are required")
	}
	if c.Writers <= 0 {
		return fmt.Errorf("engine.Config: Writers is %d, must be positive", c.Writers)
	}
	return nil
}

// A Runner owns an admission.Engine. Its methods may be called from any goroutine.
type Runner struct {
	config Config
	writer *writer

	// sources and first do not change after Start.
	sources []cache.InformerSynced
	first   []func(context.Context) error

	mu    sync.Mutex
	inbox []func(*admission.Engine)
	// afterDecision is called on the engine's goroutine, which owns it, after the decisions that follow from the inbox.
	afterDecision []func(*admission.Engine)
	// changed are called for objects whose status may differ, on the engine's goroutine, which also owns the array.
	changed [kinds]func(types.NamespacedName)
	// unreported has the objects that have changed before there was a function to call. It belongs to the engine's goroutine as well.
	unreported [kinds]sets.Set[types.NamespacedName]
	// woken is called for owners of stages about which the engine may be asked again, and belongs to the engine's goroutine, too.
	woken func(admission.Owner)
	// revoked is called for stages whose reservation has to be released, and belongs to the engine's goroutine, too.
	revoked func(admission.StageKey)

	wake chan struct{}

	// isComplete is that of IsComplete, and belongs to the engine's goroutine. complete is closed when it becomes true.
	isComplete bool
	complete   chan struct{}
	// decided is closed after the first scheduling cycle.
	decided chan struct{}
}

// NewRunner returns a Runner that does nothing before Start.
func NewRunner(config Config) (*Runner, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	r := &Runner{config: config, wake: make(chan struct{}, 1), complete: make(chan struct{}), decided: make(chan struct{})}
	r.writer = newWriter(config, r)
	return r, nil
}

// NeedLeaderElection returns false: a Runner also applies observations where it does not lead, so that it is up to date when it does.
func (r *Runner) NeedLeaderElection() bool { return false }

// AddSource makes the Runner wait for a source of observations before it decides anything. Call it before Start.
func (r *Runner) AddSource(synced cache.InformerSynced) { r.sources = append(r.sources, synced) }

// BeforeFirst makes the Runner call f once, when all sources have delivered their initial state and this process leads, and decide nothing
// before f has succeeded. The first decision takes into account what f observes. Call it before Start.
func (r *Runner) BeforeFirst(f func(context.Context) error) { r.first = append(r.first, f) }

// A Kind is a kind of objects whose status the engine determines.
type Kind int

// The Kinds.
const (
	ClusterQueues Kind = iota
	LocalQueues
	Cohorts
	kinds
)

// onChange sets the function that is called for each object of a kind whose status may differ, also for those that have changed before. It must not block.
func (r *Runner) onChange(kind Kind, f func(types.NamespacedName)) {
	r.post(func(*admission.Engine) {
		r.changed[kind] = f
		for key := range r.unreported[kind] {
			f(key)
		}
		r.unreported[kind] = nil
	})
}

func (r *Runner) report(kind Kind, key types.NamespacedName) {
	if f := r.changed[kind]; f != nil {
		f(key)
		return
	}
	if r.unreported[kind] == nil {
		r.unreported[kind] = sets.New[types.NamespacedName]()
	}
	r.unreported[kind].Insert(key)
}

// Observe passes an observation to the engine, unless it is nil. It does not block.
func (r *Runner) Observe(event admission.Event) {
	if event != nil {
		r.post(func(e *admission.Engine) { e.Apply(event) })
	}
}

// View runs f on the engine after all earlier observations, and waits for it. f must only read, and keep no reference to what it reads.
func (r *Runner) View(ctx context.Context, f func(*admission.Engine)) error {
	return r.view(ctx, f, r.post)
}

func (r *Runner) view(ctx context.Context, f func(*admission.Engine), post func(func(*admission.Engine))) error {
	done := make(chan struct{})
	post(func(e *admission.Engine) {
		f(e)
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the admission engine: %w", ctx.Err())
	}
}

// ViewDecided is View after the decisions that follow from all earlier observations, if this process leads.
func (r *Runner) ViewDecided(ctx context.Context, f func(*admission.Engine)) error {
	return r.view(ctx, f, func(f func(*admission.Engine)) {
		r.post(func(*admission.Engine) { r.afterDecision = append(r.afterDecision, f) })
	})
}

// Ask runs f on the engine after all earlier observations, once the engine has observed all objects that there were when this process started, and
// decides. f may record what the engine is asked for, and must keep no reference to what it reads.
func (r *Runner) Ask(ctx context.Context, f func(*admission.Engine)) error {
	select {
	case <-r.complete:
	case <-ctx.Done():
		return fmt.Errorf("wait for the first observations of the admission engine: %w", ctx.Err())
	}
	return r.View(ctx, f)
}

// OnWoken sets the function that is called for each owner of stages about which the engine may be asked again. It must not block.
func (r *Runner) OnWoken(f func(admission.Owner)) {
	r.post(func(*admission.Engine) { r.woken = f })
}

// OnRevoked sets the function that is called for each stage about which the engine has a Revocation. It must not block.
func (r *Runner) OnRevoked(f func(admission.StageKey)) {
	r.post(func(*admission.Engine) { r.revoked = f })
}

// IsComplete reports, within View, whether the engine has observed all objects that there were when this process started, and decides. Before that
// its numbers are too low.
func (r *Runner) IsComplete() bool { return r.isComplete }

// Decided returns a channel that is closed after the first scheduling cycle, whose decisions are being written then.
func (r *Runner) Decided() <-chan struct{} { return r.decided }

// Start runs the engine until the context ends.
func (r *Runner) Start(ctx context.Context) error {
	ready := make(chan struct{})
	go r.waitUntilReady(ctx, ready)
	var writers sync.WaitGroup
	writers.Go(func() { r.writer.run(ctx) })
	defer writers.Wait()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-alarm.C:
		}
		r.turn(ready)
		if at, ok := r.config.Engine.NextTime(); ok {
			alarm.Reset(max(time.Until(at), shortestWait))
		}
	}
}

// waitUntilReady closes ready when this process leads and every source has delivered its initial state to the inbox.
func (r *Runner) waitUntilReady(ctx context.Context, ready chan<- struct{}) {
	select {
	case <-r.config.Elected:
	case <-ctx.Done():
		return
	}
	if !cache.WaitForCacheSync(ctx.Done(), r.sources...) {
		return
	}
	for _, f := range r.first {
		if !succeed(ctx, f) {
			return
		}
	}
	close(ready)
	r.signal()
}

// succeed calls f until it succeeds. It returns false if the context ends before.
func succeed(ctx context.Context, f func(context.Context) error) bool {
	err := wait.PollUntilContextCancel(ctx, firstTries, true, func(ctx context.Context) (bool, error) {
		err := f(ctx)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Preparing the first scheduling cycle failed, retrying")
		}
		return err == nil, nil
	})
	return err == nil
}

// turn applies the posted observations, and decides.
func (r *Runner) turn(ready <-chan struct{}) {
	defer r.answer()
	select {
	case <-ready:
	default:
		r.drain()
		return
	}
	r.drain()
	if !r.isComplete { // what was posted before may be older than the last observations
		r.isComplete = true
		close(r.complete)
		defer close(r.decided)
	}
	started := time.Now()
	decisions := r.config.Engine.Decide(started)
	r.config.Metrics.Decided(decisions, time.Since(started))
	for _, decision := range decisions {
		r.Write(decision)
	}
	for _, owner := range r.config.Engine.Woken() {
		if r.woken != nil {
			r.woken(owner)
		}
	}
	for _, key := range r.config.Engine.Revoked() {
		if r.revoked != nil {
			r.revoked(key)
		}
	}
	for _, name := range r.config.Engine.ChangedCohorts() {
		r.report(Cohorts, types.NamespacedName{Name: name})
	}
	clusterQueues, localQueues := r.config.Engine.Changed()
	for _, name := range clusterQueues {
		r.report(ClusterQueues, types.NamespacedName{Name: name})
	}
	for _, key := range localQueues {
		r.report(LocalQueues, key)
	}
}

// answer calls what waits for decisions.
func (r *Runner) answer() {
	for _, f := range r.afterDecision {
		f(r.config.Engine)
	}
	r.afterDecision = nil
}

// drain applies everything that has been posted so far.
func (r *Runner) drain() {
	r.mu.Lock()
	inbox := r.inbox
	r.inbox = nil
	r.mu.Unlock()
	for _, f := range inbox {
		f(r.config.Engine)
	}
}

func (r *Runner) post(f func(*admission.Engine)) {
	r.mu.Lock()
	r.inbox = append(r.inbox, f)
	r.mu.Unlock()
	r.signal()
}

func (r *Runner) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Watch feeds the objects of one kind to the runner, in the order in which the API server reports them. It calls observed for each object
// that exists or has changed, and gone for each object that no longer exists. It goes straight from the informer to the engine: a work queue
// would let an older observation overtake a newer one.
func Watch[T any, P interface {
	*T
	client.Object
}](ctx context.Context, mgr ctrl.Manager, r *Runner, observed, gone func(P) admission.Event) error {
	synced, err := informer.Watch(ctx, mgr.GetCache(), P(new(T)), informer.Handler[P]{
		Added:   func(object P) { r.Observe(observed(object)) },
		Changed: func(_, after P) { r.Observe(observed(after)) },
		Deleted: func(object P) { r.Observe(gone(object)) },
	})
	if err != nil {
		return err
	}
	r.AddSource(synced)
	return nil
}
