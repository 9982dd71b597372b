package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/cycle"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/observe"
	"github.com/tranche-dev/tranche/admission/internal/report"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/apis/visibility"
)

// An Engine owns all queues and quota. It is not safe for concurrent use.
type Engine struct {
	model    *model.Model
	observer *observe.Observer
	cycle    *cycle.Cycle
	reporter *report.Reporter
}

// New returns an Engine that has observed nothing.
func New(config Config) (*Engine, error) {
	m, err := model.New(config)
	if err != nil {
		return nil, err
	}
	checker := check.New(m)
	return &Engine{model: m, observer: observe.New(m), cycle: cycle.New(m, checker), reporter: report.New(m, checker)}, nil
}

// Apply records one observed fact.
func (e *Engine) Apply(event Event) {
	e.observer.Apply(event)
	e.reporter.Verify()
}

// Decide returns the new decisions, in the order in which to write them. Each decision counts as done at once. The same events, decisions and
// times give the same result.
func (e *Engine) Decide(now time.Time) []Decision {
	decisions := e.cycle.Decide(now)
	e.reporter.Verify()
	return decisions
}

// Settle ends a decision: either it was written, and the answer applied, or the write failed. From then on the observed state counts: a stage
// whose reservation has not been observed is released and waits again, and a stage that has not been observed as evicted may be evicted again. It
// is a no-op if its stage no longer exists.
func (e *Engine) Settle(id DecisionID) {
	e.cycle.Settle(id)
	e.reporter.Verify()
}

// InFlight reports whether a decision has been neither settled nor superseded by an observation. A superseded decision must no longer be written.
func (e *Engine) InFlight(id DecisionID) bool { return e.cycle.InFlight(id) }

// Advance sets the time of the Engine without a decision: stages whose back-off has expired by now wait again.
func (e *Engine) Advance(now time.Time) { e.cycle.Advance(now) }

// NextTime returns the time at which Decide has to be called again even if nothing is observed before.
func (e *Engine) NextTime() (at time.Time, ok bool) { return e.cycle.NextTime() }

// Changed returns the queues that exist and whose views may have changed since the last call.
func (e *Engine) Changed() (clusterQueues []string, localQueues []types.NamespacedName) {
	return e.model.Changes.Changed()
}

// ChangedCohorts returns the Cohorts that exist and whose views may have changed since the last call: those that were observed since, and those
// above the ClusterQueues that Changed is about to return. Without fair sharing there are none.
func (e *Engine) ChangedCohorts() []string { return e.reporter.ChangedCohorts() }

// Charged reports whether a stage is charged for an admission that has been observed, and not revoked by a later observation. It is false while
// the write is in flight, and for another object of the same name.
func (e *Engine) Charged(key StageKey, uid types.UID) bool { return e.reporter.Charged(key, uid) }

// Holding returns the sum of what the stages of a JobSet are charged.
func (e *Engine) Holding(jobSet types.UID) quota.Usage { return e.reporter.Holding(jobSet) }

// Explain returns why a stage is not admitted, as of now. It is empty for a stage that is charged or finished, that does not exist, or that only
// waits for the next call of Decide.
func (e *Engine) Explain(key StageKey) []Refusal { return e.reporter.Explain(key) }

// Explanation returns the same as Explain, and the details: which limit of which node fails, and the holders of the missing quota. It reads all
// holders in the Cohort, so it is meant for queries of users, not for every refusal. ok is false for a stage that does not exist, that is
// charged, or that has finished.
func (e *Engine) Explanation(key StageKey) (x visibility.Explanation, ok bool) {
	return e.reporter.Explanation(key)
}

// ClusterQueue returns the view of a ClusterQueue, if it exists.
func (e *Engine) ClusterQueue(name string) (ClusterQueueView, bool) {
	return e.reporter.ClusterQueue(name)
}

// LocalQueue returns the view of a LocalQueue, if it exists.
func (e *Engine) LocalQueue(key types.NamespacedName) (LocalQueueView, bool) {
	return e.reporter.LocalQueue(key)
}

// Cohort returns the view of a Cohort, if it exists.
func (e *Engine) Cohort(name string) (CohortView, bool) { return e.reporter.Cohort(name) }

// PendingInClusterQueue returns the pending stages of a ClusterQueue, if it exists, in the order in which they would be admitted if all fitted.
// It takes time for the stages up to the end of the page, and for each kind of pending stage.
func (e *Engine) PendingInClusterQueue(name string, page Page) ([]Pending, bool) {
	return e.reporter.PendingInClusterQueue(name, page)
}

// PendingInLocalQueue returns the pending stages of a LocalQueue, if it exists, in the same order.
func (e *Engine) PendingInLocalQueue(key types.NamespacedName, page Page) ([]Pending, bool) {
	return e.reporter.PendingInLocalQueue(key, page)
}

// PendingStage returns the position of one stage, if it is pending.
func (e *Engine) PendingStage(key StageKey) (Pending, bool) { return e.reporter.PendingStage(key) }

// Stats counts everything on each call, so that no decision pays for it. It takes time in proportion to the number of stages.
func (e *Engine) Stats() Stats { return e.reporter.Stats() }

// ChargeSnapshot copies all charges. It takes time in proportion to the number of stages.
func (e *Engine) ChargeSnapshot() ChargeSnapshot { return e.reporter.ChargeSnapshot() }

// Violations compares all totals with the state that they are derived from, and describes the differences. There are none unless the Engine has a
// bug. Each call reads every stage.
func (e *Engine) Violations() []string { return e.reporter.Violations() }
