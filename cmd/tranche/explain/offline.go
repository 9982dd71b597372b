package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
	"github.com/tranche-dev/tranche/snapshot"
)

// An offline source explains from a snapshot.
type offline struct {
	*snapshot.Snapshot
	horizon time.Duration
	// startOf describes an expected start.
	startOf  func(*simulator.Start, *simulator.Prediction) *expected.Start
	warnings io.Writer
	bound    simulator.Bound
	// lacks says what the snapshot does not have without which only the states of objects are known. It is empty if it has all that.
	lacks string

	about *subject
	// The inspection, the prediction and the sets are about all quota Workloads of the subject, and missing says why there are neither starts nor sets.
	asked      []*kueue.Workload
	inspection *simulator.Inspection
	missing    string
	prediction *simulator.Prediction
	letIn      map[admission.StageKey]*LetIn
}

// newOffline returns a source about a snapshot of a file.
func newOffline(s *snapshot.Snapshot, horizon time.Duration, bound simulator.Bound, warnings io.Writer) *offline {
	return &offline{Snapshot: s, horizon: horizon, bound: bound, startOf: expected.Of, warnings: warnings, lacks: snapshotfile.LacksFoundation(s)}
}

// find implements source. Without a namespace it looks in all of them.
func (o *offline) find(_ context.Context, name subjectName) (*subject, error) {
	found := o.named(name)
	switch len(found) {
	case 0:
		var others []string
		for _, s := range o.named(subjectName{NamespacedName: types.NamespacedName{Name: name.Name}, Kind: name.Kind}) {
			others = append(others, s.key.Namespace)
		}
		err := errNotFound(name, others...)
		if o.lacks != "" {
			err = fmt.Errorf("%w; %s", err, o.lacks)
		}
		return nil, exitcode.AsBadInput(err)
	case 1:
		if o.about = found[0]; o.lacks != "" {
			return found[0], nil
		}
		return found[0], o.ask(found[0].workloads)
	}
	namespaces := make([]string, len(found))
	for i := range found {
		namespaces[i] = found[i].key.Namespace
	}
	slices.Sort(namespaces)
	return nil, exitcode.AsBadInput(fmt.Errorf("%q exists in the namespaces %s: choose one with -n", name.Name, strings.Join(namespaces, ", ")))
}

// named returns what has a name, in its namespace or in all of them.
func (o *offline) named(name subjectName) (found []*subject) {
	isIn := func(namespace string) bool { return name.Namespace == "" || name.Namespace == namespace }
	mayBe := func(kind string) bool { return len(found) == 0 && (name.Kind == "" || name.Kind == kind) }
	if mayBe(workloadKind) {
		for _, w := range o.Workloads {
			if w.Name == name.Name && isIn(w.Namespace) {
				found = append(found, &subject{key: keyOf(w), jobSet: o.jobSetOf(w), workloads: []*kueue.Workload{w}})
			}
		}
	}
	if mayBe(jobSetKind) {
		found = o.findJobSets(name.Name, isIn)
	}
	if mayBe(jobKind) {
		found = o.findJobs(name.Name, isIn)
	}
	return found
}

// jobSetOf returns the JobSet of a quota Workload, or an empty one.
func (o *offline) jobSetOf(w *kueue.Workload) *jobsetapi.JobSet {
	for _, js := range o.JobSets {
		if js.Namespace == w.Namespace && js.Name == w.Labels[apis.JobSetLabel] {
			return js
		}
	}
	return &jobsetapi.JobSet{}
}

// findJobs returns the queued Jobs of a name with their quota Workloads. A snapshot has no other Jobs of users.
func (o *offline) findJobs(name string, isIn func(namespace string) bool) []*subject {
	byNamespace := map[string]*subject{}
	var all []*subject
	for _, w := range o.Workloads {
		if !isOf(w, "Job", apis.JobLabel, name) || !isIn(w.Namespace) {
			continue
		}
		s := byNamespace[w.Namespace]
		if s == nil {
			s = &subject{key: types.NamespacedName{Namespace: w.Namespace, Name: name}, jobSet: &jobsetapi.JobSet{}, job: &batchv1.Job{}}
			byNamespace[w.Namespace], all = s, append(all, s)
		}
		s.workloads = append(s.workloads, w)
	}
	return all
}

// isOf reports whether a quota Workload is that of an object: it names the object in a label, or as its owner if Kueue has made it.
func isOf(w *kueue.Workload, kind, label, name string) bool {
	owner := metav1.GetControllerOf(w)
	return w.Labels[label] == name || owner != nil && owner.Kind == kind && owner.Name == name
}

// findJobSets returns the JobSets of a name with their quota Workloads, also those that have been deleted since.
func (o *offline) findJobSets(name string, isIn func(namespace string) bool) []*subject {
	byNamespace := map[string]*subject{}
	of := func(namespace string) *subject {
		if byNamespace[namespace] == nil {
			byNamespace[namespace] = &subject{key: types.NamespacedName{Namespace: namespace, Name: name}, isJobSet: true, jobSet: &jobsetapi.JobSet{}}
		}
		return byNamespace[namespace]
	}
	for _, js := range o.JobSets {
		if js.Name == name && isIn(js.Namespace) {
			of(js.Namespace).jobSet = js
		}
	}
	for _, w := range o.Workloads {
		if isOf(w, "JobSet", apis.JobSetLabel, name) && isIn(w.Namespace) {
			s := of(w.Namespace)
			s.workloads = append(s.workloads, w)
		}
	}
	var all []*subject
	for _, s := range byNamespace {
		all = append(all, s)
	}
	return all
}

// ask reads the queues around some quota Workloads into an engine, predicts when they start, and searches what would let them in.
func (o *offline) ask(workloads []*kueue.Workload) (err error) {
	o.asked = workloads
	keys := make([]admission.StageKey, len(workloads))
	for i, w := range workloads {
		keys[i] = keyOf(w)
	}
	part := simulator.Around(o.Snapshot, keys...)
	if o.inspection, err = simulator.Inspect(part, keys...); err != nil {
		return exitcode.AsBadInput(err)
	}
	o.prediction, o.letIn = &simulator.Prediction{LeftOut: o.inspection.LeftOut()}, map[admission.StageKey]*LetIn{}
	if err := o.bound.Check(part); err != nil {
		o.missing = err.Error()
	} else {
		o.simulate(part, keys)
	}
	return expected.WriteLeftOut(o.warnings, o.prediction)
}

// simulate predicts when quota Workloads start, and searches what would let them in. The answers do not depend on each other, and each takes seconds
// where many wait.
func (o *offline) simulate(part *snapshot.Snapshot, keys []admission.StageKey) {
	durations := &simulator.Durations{PastRuns: simulator.PastRunsOf(o.Snapshot)}
	var answers errgroup.Group
	answers.SetLimit(runtime.GOMAXPROCS(0))
	answers.Go(func() error {
		o.predict(part, durations, keys)
		return nil
	})
	found := make([]*LetIn, len(keys))
	for i, key := range keys {
		if _, isQueued := o.inspection.Why(key); isQueued {
			answers.Go(func() error {
				found[i] = letIn(simulator.NewLaboratory(part, durations, key))
				return nil
			})
		}
	}
	_ = answers.Wait() // each answer has its own error
	for i, key := range keys {
		o.letIn[key] = found[i]
	}
}

// predict predicts when quota Workloads start.
func (o *offline) predict(part *snapshot.Snapshot, durations *simulator.Durations, keys []admission.StageKey) {
	until := o.TakenAt.Add(o.horizon)
	p, err := simulator.ForecastOf(part, durations, until, keys...)
	if err == nil {
		o.prediction = p
		return
	}
	// Why a stage waits is known all the same.
	o.prediction.TakenAt, o.prediction.Until, o.prediction.Interrupted = o.TakenAt, until, err
	for _, key := range simulator.PendingStages(part, func(key admission.StageKey) bool { return slices.Contains(keys, key) }) {
		o.prediction.Starts = append(o.prediction.Starts, simulator.Start{Workload: key})
	}
}

// why implements source.
func (o *offline) why(_ context.Context, w *kueue.Workload) (x *Workload, limits, err error) {
	if o.lacks != "" {
		return nil, errors.New(o.lacks), nil
	}
	key := keyOf(w)
	x = newWorkload(w)
	x.ExpectedStart = o.expectedStart(w)
	reason, isQueued := o.inspection.Why(key)
	if !isQueued {
		return x, nil, nil
	}
	x.Position = &Position{
		InClusterQueue: reason.InClusterQueue, InLocalQueue: reason.InLocalQueue, LocalQueue: reason.LocalQueue.Name, Priority: reason.Priority,
	}
	x.Explanation, x.Note = &reason.Explanation, simulator.Unshown(o.Snapshot, key)
	x.LetIn = o.letIn[key]
	return x, nil, nil
}

// letIn searches what would let a pending quota Workload in.
func letIn(l *simulator.Laboratory) *LetIn {
	found, err := unblock.Find(l)
	if err != nil {
		found = &unblock.Answer{Why: fmt.Sprintf("the search failed: %v", err)}
	}
	return letInOf(found)
}

// hasAll reports whether the answers are about quota Workloads as they are now.
func (o *offline) hasAll(workloads []*kueue.Workload) bool {
	return !slices.ContainsFunc(workloads, func(now *kueue.Workload) bool {
		return !slices.ContainsFunc(o.asked, func(known *kueue.Workload) bool {
			return known.UID == now.UID && known.ResourceVersion == now.ResourceVersion
		})
	})
}

// expectedStart implements source. It returns when a quota Workload is expected to start, or nil for one that is admitted.
func (o *offline) expectedStart(w *kueue.Workload) *expected.Start {
	if o.lacks != "" {
		if e := o.about.writtenStart(w); e != nil {
			return expected.Written(e)
		}
		return nil
	}
	for i := range o.prediction.Starts {
		if start := &o.prediction.Starts[i]; start.Workload == keyOf(w) {
			return o.startOf(start, o.prediction)
		}
	}
	return nil
}

func keyOf(w *kueue.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
}
