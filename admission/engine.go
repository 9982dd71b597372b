package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/cycle"
	"github.com/tranche-dev/tranche/admission/internal/model"
	"github.com/tranche-dev/tranche/admission/internal/observe"
	"github.com/tranche-dev/tranche/admission/internal/report"
	"github.com/tranche-dev/tranche/admission/internal/verdict"
)

// An Engine owns all queues and quota. It is not safe for concurrent use. Its Reporter answers all questions that change no decision.
type Engine struct {
	*reporter
	model    *model.Model
	observer *observe.Observer
	cycle    *cycle.Cycle
	judge    verdict.Judge
}

type reporter = report.Reporter

// New returns an Engine that has observed nothing.
func New(config Config) (*Engine, error) {
	m, err := model.New(config)
	if err != nil {
		return nil, err
	}
	checker := check.New(m)
	return &Engine{model: m, observer: observe.New(m), cycle: cycle.New(m, checker), judge: verdict.Judge{Checker: checker}, reporter: report.New(m, checker)}, nil
}

// Apply records one observed fact.
func (e *Engine) Apply(event Event) {
	e.observer.Apply(event)
	e.Verify()
}

// Decide returns the new decisions, in the order in which to write them. Each decision counts as done at once. The same events, decisions and
// times give the same result.
func (e *Engine) Decide(now time.Time) []Decision {
	decisions := e.cycle.Decide(now)
	e.Verify()
	return decisions
}

// Settle ends a decision: either it was written, and the answer applied, or the write failed. From then on the observed state counts: a stage
// whose reservation has not been observed is released and waits again, and a stage that has not been observed as evicted may be evicted again. It
// is a no-op if its stage no longer exists.
func (e *Engine) Settle(id DecisionID) {
	e.cycle.Settle(id)
	e.Verify()
}

// Checked returns how many stages Decide has checked so far: a measure of its work that is the same on every machine.
func (e *Engine) Checked() uint64 { return e.model.Checked }

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
