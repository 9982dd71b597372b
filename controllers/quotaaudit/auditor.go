// Package quotaaudit audits the admission engine while it runs. The engine keeps a total of the charges of each queue, and updates it with
// every observation and decision. Every minute, and at its start, the Auditor recomputes the charges from the quota Workloads, and
// compares.
//
// A difference in transit is no error: the cache may lag behind the engine, which knows the responses to its writes, or be ahead of it by
// an observation that waits in its inbox. So a difference counts only if neither the object nor the charges have changed between two
// checks, no decision about the stage is in flight, and the API server confirms that the cache is up to date about the object. Then the
// engine has missed or misread an observation. The Auditor sends the engine the current state again, and reports the mismatch as an Event
// on the ClusterQueue and in tranche_ledger_mismatch_total: it is a bug, and must not be tuned away.
//
// Every few seconds it also compares the accelerators that live pods ask for with the charges of the quota Workloads that pay for them, and reports an
// excess as an Event on their JobSet, Job or pod and in tranche_uncharged_accelerators.
package quotaaudit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/internal/informer"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

const (
	defaultPeriod = time.Minute
	// confirmAfter is the time to the second check of a difference.
	confirmAfter = 10 * time.Second
	// maxConfirmations limits how many objects one check reads past the cache. The next check reads the others.
	maxConfirmations = 100
	// podPeriod is the time between two checks of live pods, and suspectAfter that to the second check of a suspect.
	podPeriod    = 5 * time.Second
	suspectAfter = time.Second
	// restlessChecks is after how many checks a suspect is judged that changes between all of them: a user can change a Job without end.
	restlessChecks = 6
)

// An Engine is the admission engine to audit.
type Engine interface {
	// View runs f on the engine and waits for it, or until the context ends.
	View(ctx context.Context, f func(*admission.Engine)) error
	// Observe passes an observation to the engine.
	Observe(event admission.Event)
}

// A Config configures an Auditor.
type Config struct {
	// Engine is the engine to audit.
	Engine Engine
	// Cache reads quota Workloads and ClusterQueues from the same cache as the engine's observations.
	Cache cache.Cache
	// GangPods has the pods of gangs.
	GangPods cache.Cache
	// Live reads past the cache.
	Live client.Reader
	// Recorder emits Events.
	Recorder k8sevents.EventRecorder
	// Metrics counts checks and differences.
	Metrics *metrics.Metrics
	// Namespaces selects the namespaces whose objects are managed, by their labels.
	Namespaces labels.Selector
	// Charges and Devices determine what is charged for pods.
	Charges charge.Rules
	Devices device.Mapping
	// Period is the time between two checks of the charges. Zero means a minute.
	Period time.Duration
}

func (c *Config) validate() error {
	if c.Engine == nil || c.Cache == nil || c.GangPods == nil || c.Live == nil || c.Recorder == nil || c.Metrics == nil || c.Namespaces == nil {
		return errors.New("quotaaudit.Config: Engine, Cache, GangPods, Live, Recorder, Metrics and Namespaces are required")
	}
	c.Period = cmp.Or(c.Period, defaultPeriod)
	return nil
}

// An Auditor compares the charges of an engine with the objects.
type Auditor struct {
	config Config
	// suspects has the fingerprints of the differences at the last check.
	suspects map[types.NamespacedName]string
}

// SetupWithManager adds an Auditor and the audit of live pods to the manager. They run where this process leads, once the caches are filled.
func SetupWithManager(mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	pods := &podAuditor{config: config, suspects: map[ledger.Account]suspect{}, judged: map[ledger.Account]judgment{}}
	return errors.Join(mgr.Add(&Auditor{config: config}), mgr.Add(pods))
}

// NeedLeaderElection returns true: only the leader audits, because other replicas decide nothing.
func (a *Auditor) NeedLeaderElection() bool { return true }

// Start audits until the context ends. The first check is not at once: a manager that begins to lead has to decide first.
func (a *Auditor) Start(ctx context.Context) error {
	for next := min(a.config.Period, confirmAfter); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
		next = a.config.Period
		if err := a.compare(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Auditing the charges of the engine failed, retrying")
		}
		if len(a.suspects) > 0 {
			next = min(next, confirmAfter)
		}
	}
}

// compare runs one check.
func (a *Auditor) compare(ctx context.Context) error {
	workloads, err := informer.All(ctx, a.config.Cache, &kueue.Workload{})
	if err != nil {
		return err
	}
	objects := make([]Holding, len(workloads))
	for i, w := range workloads {
		objects[i] = HoldingOf(w)
	}
	var chargeSnapshot admission.ChargeSnapshot
	if err := a.config.Engine.View(ctx, func(e *admission.Engine) { chargeSnapshot = e.ChargeSnapshot() }); err != nil {
		return fmt.Errorf("read the charges of the engine: %w", err)
	}
	for _, l := range Imbalances(&chargeSnapshot) {
		// No observation changes a total. A restarted manager recomputes it.
		a.report(ctx, l, "the charges of its quota Workloads add up to", "restart the manager, which then computes the total again")
	}
	confirmed := a.confirmed(Differences(objects, &chargeSnapshot))
	for i := range confirmed[:min(len(confirmed), maxConfirmations)] {
		if err := a.settle(ctx, &confirmed[i]); err != nil {
			return err
		}
	}
	a.config.Metrics.Audited()
	return nil
}

// confirmed returns the differences that were the same at the last check, and remembers all for the next.
func (a *Auditor) confirmed(all []Difference) []Difference {
	before := a.suspects
	a.suspects = make(map[types.NamespacedName]string, len(all))
	var confirmed []Difference
	for i := range all {
		fingerprint := all[i].fingerprint()
		a.suspects[all[i].Key] = fingerprint
		if before[all[i].Key] == fingerprint {
			confirmed = append(confirmed, all[i])
		}
	}
	return confirmed
}

// settle asks the API server. If the cache is up to date, the engine is wrong, and settle sends it the object again.
func (a *Auditor) settle(ctx context.Context, d *Difference) error {
	// The engine may believe that the object was deleted. If it is deleted during this read, the engine observes that after this.
	a.config.Engine.Observe(admission.TombstoneCleared{UID: d.Object.UID})
	var live kueue.Workload
	err := a.config.Live.Get(ctx, d.Key, &live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read quota Workload %s: %w", d.Key, err)
	}
	if d.Object.UID != "" && live.UID != d.Object.UID {
		// It was deleted after all, and the engine may have observed that before it observed the doubt.
		a.config.Engine.Observe(admission.WorkloadGone{Key: d.Key, UID: d.Object.UID})
	}
	if live.UID != d.Object.UID || live.ResourceVersion != d.Object.ResourceVersion {
		return nil // the cache lags behind
	}
	delete(a.suspects, d.Key)
	for _, l := range d.Lines() {
		a.report(ctx, l, fmt.Sprintf("quota Workload %s holds", d.Key), "the charges have been corrected")
	}
	if apierrors.IsNotFound(err) {
		a.config.Engine.Observe(admission.WorkloadGone{Key: d.Key, UID: d.Booked.UID})
	} else {
		a.config.Engine.Observe(admission.WorkloadObserved{Workload: &live})
	}
	return nil
}

// report counts a mismatch and emits an Event on the ClusterQueue.
func (a *Auditor) report(ctx context.Context, l Line, truth, remedy string) {
	ctrl.LoggerFrom(ctx).Error(nil, "The engine charged a wrong amount", "clusterQueue", l.ClusterQueue, "localQueue", l.LocalQueue, "flavor", l.Flavor,
		"resource", l.Resource, "booked", l.Booked, "counted", l.Counted, "truth", truth, "remedy", remedy)
	if l.ClusterQueue == "" {
		return // its ClusterQueue has a line of its own
	}
	a.config.Metrics.LedgerMismatch(l.ClusterQueue, string(l.Flavor), string(l.Resource))
	var queue kueue.ClusterQueue
	if err := a.config.Cache.Get(ctx, types.NamespacedName{Name: l.ClusterQueue}, &queue); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Reading the ClusterQueue failed, so it gets no Event about the wrong amount", "clusterQueue", klog.KRef("", l.ClusterQueue), "cause", err.Error())
		return
	}
	booked := fmt.Sprintf("%s %s of flavor %s", l.Booked.Format(l.Resource), l.Resource, l.Flavor)
	events.LedgerMismatch(booked, truth+" "+l.Counted.Format(l.Resource), remedy).Emit(a.config.Recorder, &queue)
}
