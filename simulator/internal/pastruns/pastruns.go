// Package pastruns reads how long the finished stages of a snapshot took, as estimates of how long others of their kind take.
package pastruns

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/snapshot"
)

// maxRuns is how many runs of a stage count: the last ones.
const maxRuns = 40

// PastRuns has how long the finished stages of a snapshot took, by the series to which their JobSets belong: those of one controller, or those in
// one namespace whose names differ only in a suffix behind the last hyphen, such as nightly-28711 and nightly-28712.
type PastRuns struct {
	seriesOf map[types.UID]series
	runs     map[seriesStage]runs
}

// A series is a number of JobSets that do the same.
type series struct{ namespace, name string }

type seriesStage struct {
	series
	stage string
}

// runs are the last runs of a stage.
type runs struct {
	// last are those that ended last, the last one first.
	last []run
	// took and ready are the medians.
	took, ready time.Duration
}

type run struct {
	finished    time.Time
	took, ready time.Duration
}

// A Basis is what an estimate comes from. It is zero for no history.
type Basis struct {
	// Runs is how many runs count.
	Runs int
	// Of names the stages that ran, which are in Namespace.
	Of, Namespace string
}

// Of reads the timelines of the JobSets of a snapshot.
func Of(s *snapshot.Snapshot) *PastRuns {
	h := &PastRuns{seriesOf: map[types.UID]series{}, runs: map[seriesStage]runs{}}
	for _, js := range s.JobSets {
		of := seriesOf(js)
		h.seriesOf[js.UID] = of
		if js.Annotations[apis.TimelineAnnotation] == "" {
			continue
		}
		timeline := jobsetstatus.TimelineOf(js)
		for i := range timeline.Stages {
			if r, isComplete := runOf(&timeline.Stages[i]); isComplete {
				key := seriesStage{of, timeline.Stages[i].Name}
				known := h.runs[key]
				known.last = append(known.last, r)
				h.runs[key] = known
			}
		}
	}
	for key, known := range h.runs {
		slices.SortFunc(known.last, func(a, b run) int { return b.finished.Compare(a.finished) })
		known.last = known.last[:min(len(known.last), maxRuns)]
		known.took = median(known.last, func(r run) time.Duration { return r.took })
		known.ready = median(known.last, func(r run) time.Duration { return r.ready })
		h.runs[key] = known
	}
	return h
}

// runOf returns the last run of a stage. isComplete is false if it did not run to its end.
func runOf(t *apis.StageTimes) (r run, isComplete bool) {
	if t.Finished == nil || !t.Finished.After(t.Admitted.Time) {
		return r, false
	}
	r = run{finished: t.Finished.Time, took: t.Finished.Sub(t.Admitted.Time)}
	if t.Ready != nil && t.Ready.After(t.Admitted.Time) {
		r.ready = t.Ready.Sub(t.Admitted.Time)
	}
	return r, true
}

// median returns the middle duration, the greater one of two.
func median(all []run, of func(run) time.Duration) time.Duration {
	durations := make([]time.Duration, len(all))
	for i := range all {
		durations[i] = of(all[i])
	}
	slices.Sort(durations)
	return durations[len(durations)/2]
}

// seriesOf returns the series to which a JobSet belongs.
func seriesOf(js *jobsetapi.JobSet) series {
	if owner := metav1.GetControllerOfNoCopy(js); owner != nil {
		return series{js.Namespace, owner.Kind + " " + owner.Name}
	}
	stem, suffix, hasSuffix := cutLast(js.Name, "-")
	if hasSuffix && isGenerated(suffix) {
		return series{js.Namespace, stem + "-*"}
	}
	return series{js.Namespace, js.Name}
}

// cutLast splits a text around the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i <= 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}

// isGenerated reports whether a suffix distinguishes objects: it has a digit, or it is one of those that the API server generates for generateName.
func isGenerated(suffix string) bool {
	const generated = "bcdfghjklmnpqrstvwxz2456789"
	return strings.ContainsAny(suffix, "0123456789") || len(suffix) == 5 && strings.Trim(suffix, generated) == ""
}

// of returns the runs of the stage of a quota Workload, if there are any.
func (h *PastRuns) of(w *kueue.Workload) (r runs, of seriesStage) {
	if h == nil || w.Labels[apis.JobSetLabel] == "" {
		return r, of
	}
	of = seriesStage{h.seriesOf[types.UID(w.Labels[apis.JobUIDLabel])], w.Labels[apis.StageLabel]}
	return h.runs[of], of
}

// Medians returns how long the stage of a quota Workload took in its last runs, and until its pods were ready. ok is false if there are none.
func (h *PastRuns) Medians(w *kueue.Workload) (took, ready time.Duration, ok bool) {
	r, _ := h.of(w)
	return r.took, r.ready, len(r.last) > 0
}

// IsEmpty reports whether no stage has run.
func (h *PastRuns) IsEmpty() bool { return h == nil || len(h.runs) == 0 }

// BasisOf returns what the estimate for a quota Workload comes from.
func (h *PastRuns) BasisOf(w *kueue.Workload) Basis {
	r, of := h.of(w)
	if len(r.last) == 0 {
		return Basis{}
	}
	return Basis{Runs: len(r.last), Of: fmt.Sprintf("stage %s of JobSet %s/%s", of.stage, of.namespace, of.name), Namespace: of.namespace}
}

// String returns the basis for users, or "".
func (b Basis) String() string {
	switch b.Runs {
	case 0:
		return ""
	case 1:
		return "from the last run of " + b.Of
	}
	return fmt.Sprintf("from the last %d runs of %s", b.Runs, b.Of)
}

// CompareBases orders bases: those on more runs come first.
func CompareBases(a, b Basis) int {
	return cmp.Or(cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Of, b.Of))
}
