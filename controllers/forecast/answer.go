package forecast

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// maxBlockers is how many holders of quota an answer names.
const maxBlockers = 3

// Limits bound the work of a prediction.
type Limits struct {
	// Horizon is how far ahead it looks.
	Horizon time.Duration
	// First is how many stages of each ClusterQueue get a start.
	First int
	// Workloads is how many quota Workloads are simulated at once.
	Workloads int
	// Work is how long that may take.
	Work time.Duration
}

// An Answer is when the first waiting stage of a JobSet is expected to start.
type Answer struct {
	JobSet   types.NamespacedName
	UID      types.UID
	Expected *jobsetstatus.ExpectedStart
}

// Answers predicts when the first waiting stages start in a part of a snapshot, as simulator.Parts returns it. There is an answer for each JobSet
// that waits.
func Answers(ctx context.Context, part *snapshot.Snapshot, durations *simulator.Durations, limits Limits) ([]Answer, error) {
	waiting, gated := withoutGated(part, firstWaiting(part))
	if len(waiting) == 0 {
		return gated, nil
	}
	predicted, err := predict(ctx, part, waiting, durations, limits)
	return append(gated, predicted...), err
}

// withoutGated returns the quota Workloads that no gate keeps out of their queues, and answers for the others.
func withoutGated(part *snapshot.Snapshot, waiting []*kueue.Workload) (open []*kueue.Workload, gated []Answer) {
	for _, w := range waiting {
		gates := quotaworkload.Gates(w)
		if len(gates) == 0 || quotaworkload.HoldsQuota(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
			open = append(open, w)
			continue
		}
		gated = append(gated, notPredicted(part, []*kueue.Workload{w}, quotaworkload.GateOf(w).Text())...)
	}
	return open, gated
}

// predict returns the answers for quota Workloads that are not gated.
func predict(ctx context.Context, part *snapshot.Snapshot, waiting []*kueue.Workload, durations *simulator.Durations, limits Limits) ([]Answer, error) {
	if len(part.Workloads) > limits.Workloads {
		return notPredicted(part, waiting, fmt.Sprintf("more than %d quota Workloads are pending or hold quota in its Cohorts", limits.Workloads)), nil
	}
	keys := make([]admission.StageKey, len(waiting))
	for i, w := range waiting {
		keys[i] = keyOf(w)
	}
	ctx, cancel := context.WithTimeout(ctx, limits.Work)
	defer cancel()
	var p *simulator.Prediction
	err := recovered(func() (err error) {
		p, err = simulator.ForecastFirst(ctx, part, durations, simulator.First{Of: keys, Count: limits.First, Until: part.TakenAt.Add(limits.Horizon)})
		return err
	})
	if err != nil {
		return notPredicted(part, waiting, "the simulation has failed, the log of the manager says why"), err
	}
	starts := map[admission.StageKey]*simulator.Start{}
	for i := range p.Starts {
		starts[p.Starts[i].Workload] = &p.Starts[i]
	}
	all := make([]Answer, len(waiting))
	for i, w := range waiting {
		all[i] = newAnswer(part, w)
		if start := starts[keys[i]]; start != nil {
			all[i].take(start, p, limits)
		} else {
			all[i].Expected.Basis = whyLeftOut(p, all[i].JobSet)
		}
	}
	return all, nil
}

// recovered turns a panic into an error: what is simulated was written by users, and the manager has to go on.
func recovered(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the simulation has panicked: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

// firstWaiting returns the quota Workload of the first open stage of each JobSet that waits, unless its user has suspended it. Like lifecycle/jobsetstatus,
// which says whether the condition is kept, it counts stages that other gates keep out of their queues.
func firstWaiting(part *snapshot.Snapshot) []*kueue.Workload {
	candidates := map[admission.StageKey]*kueue.Workload{}
	for _, w := range part.Workloads {
		gates := quotaworkload.Gates(w)
		isAsked := !slices.Contains(gates, apis.StageGate) && !slices.Contains(gates, apis.SuspendedGate)
		if isAsked && w.Labels[apis.JobSetLabel] != "" && jobsetstate.GrowthNumber(w) == 0 {
			candidates[keyOf(w)] = w
		}
	}
	first := map[string]*kueue.Workload{}
	var order []string
	for _, key := range simulator.PendingStages(part, func(key admission.StageKey) bool { return candidates[key] != nil }) {
		w := candidates[key]
		uid := w.Labels[apis.JobUIDLabel]
		if first[uid] == nil {
			order = append(order, uid)
		}
		if first[uid] == nil || indexOf(w) < indexOf(first[uid]) {
			first[uid] = w
		}
	}
	all := make([]*kueue.Workload, len(order))
	for i, uid := range order {
		all[i] = first[uid]
	}
	return all
}

// indexOf returns the index of a stage. The admission policies reject labels that are no number.
func indexOf(w *kueue.Workload) int {
	i, _ := strconv.Atoi(w.Labels[apis.StageIndexLabel])
	return i
}

func keyOf(w *kueue.Workload) admission.StageKey {
	return admission.StageKey{Namespace: w.Namespace, Name: w.Name}
}

// newAnswer returns an answer without a start.
func newAnswer(part *snapshot.Snapshot, w *kueue.Workload) Answer {
	return Answer{
		JobSet: types.NamespacedName{Namespace: w.Namespace, Name: w.Labels[apis.JobSetLabel]}, UID: types.UID(w.Labels[apis.JobUIDLabel]),
		Expected: &jobsetstatus.ExpectedStart{Stage: w.Labels[apis.StageLabel], Certainty: jobsetstatus.StartNotPredicted, Computed: part.TakenAt},
	}
}

func notPredicted(part *snapshot.Snapshot, waiting []*kueue.Workload, why string) []Answer {
	all := make([]Answer, len(waiting))
	for i, w := range waiting {
		all[i] = newAnswer(part, w)
		all[i].Expected.Basis = why
	}
	return all
}

// whyLeftOut says why a JobSet is not simulated.
func whyLeftOut(p *simulator.Prediction, jobSet types.NamespacedName) string {
	i := slices.IndexFunc(p.LeftOut, func(l simulator.LeftOut) bool { return l.Kind == "JobSet" && l.Key == jobSet })
	if i < 0 {
		return "the JobSet is not simulated"
	}
	return "the JobSet is not simulated: " + p.LeftOut[i].Why
}

// take fills in the start of a prediction.
func (a *Answer) take(start *simulator.Start, p *simulator.Prediction, limits Limits) {
	e := a.Expected
	e.ClusterQueue, e.Position = start.ClusterQueue, start.Position
	certainty := start.Certainty()
	switch {
	case start.IsBeyond:
		e.Basis = fmt.Sprintf("only the first %d of each ClusterQueue are predicted", limits.First)
		return
	case certainty == simulator.Unknown && p.Interrupted != nil:
		e.Basis = fmt.Sprintf("its Cohorts take longer than %s to simulate", limits.Work)
		return
	case certainty == simulator.Unknown:
		e.Basis = a.whyUnknown(start, p)
	}
	e.Certainty = jobsetstatus.Certainty(certainty)
	e.By = start.By.UTC().Truncate(time.Second)
	if basis := a.redacted(&start.Basis); basis != "" || certainty == simulator.About {
		e.About, e.Basis = start.About.UTC().Truncate(time.Second), basis
	}
	if certainty == simulator.By && !e.About.Before(e.By) {
		e.About, e.Basis = time.Time{}, "" // no earlier than by the limits
	}
}

// redacted returns what an estimate is based on, without names of other namespaces.
func (a *Answer) redacted(b *simulator.Basis) string {
	if b.Runs > 0 && b.Namespace != a.JobSet.Namespace {
		return (&simulator.Basis{Runs: b.Runs, Of: "a stage of another namespace"}).String()
	}
	return b.String()
}

// whyUnknown says why a start is not known, without names of other namespaces.
func (a *Answer) whyUnknown(start *simulator.Start, p *simulator.Prediction) string {
	var names []string
	others := 0
	for _, b := range start.Blockers {
		if b.Namespace != a.JobSet.Namespace || len(names) == maxBlockers {
			others++
			continue
		}
		names = append(names, b.String())
	}
	switch {
	case others > 0 && len(names) == 0:
		names = append(names, fmt.Sprintf("%d of other namespaces", others))
	case others > 0:
		names = append(names, fmt.Sprintf("%d more", others))
	}
	switch {
	case len(names) > 0:
		return "no maximum execution time: " + strings.Join(names, ", ")
	case start.Waits != "":
		return start.Waits
	}
	return fmt.Sprintf("not within %s", duration.HumanDuration(p.Until.Sub(p.TakenAt)))
}

// startOf returns when an answer expects the start, or false if it expects none.
func startOf(e *jobsetstatus.ExpectedStart) (at time.Time, isKnown bool) {
	if !e.About.IsZero() {
		return e.About, true
	}
	return e.By, !e.By.IsZero()
}
