package forecast

import (
	"context"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Predictor predicts when the waiting stages of all JobSets start, again and again.
type Predictor struct {
	config   Config
	board    *Board
	interval time.Duration
	limits   Limits
	// predicted has the time of the objects from which each part was last predicted, by its name.
	predicted map[string]time.Time
}

// A part is one of those that simulator.Parts returns.
type part struct {
	*snapshot.Snapshot
	// name is that of the first ClusterQueue. It is empty for the part with the objects whose queues do not exist, which has all ClusterQueues.
	name string
}

// NeedLeaderElection returns true: only the leader writes answers.
func (p *Predictor) NeedLeaderElection() bool { return true }

// Start predicts until the context ends. The first prediction comes after one interval: a manager that was restarted does not know when its predecessor
// has last written an answer.
func (p *Predictor) Start(ctx context.Context) error {
	for next := p.interval; sleep(ctx, next); {
		began := time.Now()
		if err := p.round(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Predicting the starts of stages failed, retrying")
		}
		next = p.interval - time.Since(began)
	}
	return nil
}

// sleep reports whether the context has not ended when some time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// round reads the cache, and predicts the parts, first the one whose prediction is the oldest. When the objects were read an interval ago, the other
// parts are left to the next round.
func (p *Predictor) round(ctx context.Context) error {
	var worked time.Duration
	do := func(work func()) bool {
		began := time.Now()
		work()
		took := time.Since(began)
		worked += took
		return sleep(ctx, pause*took)
	}
	var (
		parts     []part
		durations *simulator.Durations
		err       error
	)
	read := time.Now()
	goesOn := do(func() {
		err = recovered(func() (err error) {
			parts, durations, err = p.read(ctx, read)
			return err
		})
	})
	for i := 0; i < len(parts) && goesOn && (i == 0 || time.Since(read) < p.interval); i++ {
		goesOn = do(func() { p.predict(ctx, parts[i], durations) })
	}
	p.config.Metrics.StartsPredicted(worked)
	return err
}

// read returns the parts of the queues, in the order in which they are to be predicted, and how long earlier runs took.
func (p *Predictor) read(ctx context.Context, now time.Time) ([]part, *simulator.Durations, error) {
	all, err := Read(ctx, p.config.Cache, p.config.Configuration, now)
	if err != nil {
		return nil, nil, err
	}
	durations := &simulator.Durations{PastRuns: simulator.PastRunsOf(all)}
	parts := named(simulator.Parts(WithoutFinished(all)))
	predicted := make(map[string]time.Time, len(parts))
	oldest, isComplete := all.TakenAt, true
	for _, part := range parts {
		at, isKnown := p.predicted[part.name]
		isComplete = isComplete && isKnown
		if isKnown {
			predicted[part.name] = at
			oldest = earlier(oldest, at)
		}
	}
	p.predicted = predicted
	p.board.forget(now, oldest)
	if !isComplete {
		oldest = time.Time{}
	}
	p.board.setCompleteSince(oldest)
	slices.SortStableFunc(parts, func(a, b part) int { return predicted[a.name].Compare(predicted[b.name]) })
	return parts, durations, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// named returns the parts that have quota Workloads, with their names. The last one of all has the objects whose queues do not exist.
func named(all []*snapshot.Snapshot) []part {
	var parts []part
	for i, s := range all {
		switch {
		case len(s.Workloads) == 0:
		case i == len(all)-1 || len(s.ClusterQueues) == 0:
			parts = append(parts, part{Snapshot: s})
		default:
			parts = append(parts, part{Snapshot: s, name: s.ClusterQueues[0].Name})
		}
	}
	return parts
}

// predict proposes the answers for one part.
func (p *Predictor) predict(ctx context.Context, of part, durations *simulator.Durations) {
	answers, err := Answers(ctx, of.Snapshot, durations, p.limits)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Predicting the starts of stages failed, retrying", "clusterQueue", of.name)
	}
	p.predicted[of.name] = of.TakenAt
	for i := range answers {
		p.config.Metrics.StartPredicted(string(answers[i].Expected.Certainty))
	}
	p.board.propose(ctx, answers, time.Now())
}
