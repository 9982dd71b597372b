package shadow

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/simulator/replay"
)

// arrivals returns the jobs of a Record as they are replayed. A job that started before the record begins is submitted when it really started, and one
// that waited then is submitted at the begin: what happened before is not known.
func (r *Recorder) arrivals(from, to time.Time) map[types.NamespacedName]*arrival {
	all := map[types.NamespacedName]*arrival{}
	put := func(a *arrival) {
		a.At = arrivesAt(a.created, a.started, from)
		if a.At.After(to) {
			return
		}
		// Jobs can have the same name one after the other: the last one keeps it.
		if other := all[a.Key()]; other != nil && other.created.After(a.created) {
			a.rename()
		} else if other != nil {
			other.rename()
			all[other.Key()] = other
		}
		all[a.Key()] = a
	}
	for _, js := range r.jobSets {
		if js.object == nil || !js.endedAt().IsZero() && !js.endedAt().After(from) {
			continue
		}
		a := &arrival{jobSet: js, created: js.object.CreationTimestamp.Time, started: js.startedAt(), Arrival: replay.Arrival{JobSet: js.object, Deleted: js.deleted}}
		js.addCourses(&a.Arrival)
		put(a)
	}
	for _, o := range r.others {
		if !o.endedAt().IsZero() && !o.endedAt().After(from) {
			continue
		}
		a := &arrival{created: o.object.CreationTimestamp.Time, started: o.admitted, Arrival: replay.Arrival{Workload: o.object}}
		if !o.finished.IsZero() && !o.admitted.IsZero() {
			a.Run = max(time.Second, o.finished.Sub(o.lastFrom()))
		} else {
			a.Deleted = o.endedAt()
		}
		put(a)
	}
	return all
}

// An arrival is a job that is replayed, and what really happened to it.
type arrival struct {
	replay.Arrival

	// jobSet is nil for a job of another kind.
	jobSet           *jobSet
	created, started time.Time
}

// rename gives a job a name that no other job has.
func (a *arrival) rename() {
	if a.JobSet != nil {
		js := *a.JobSet
		js.Name += "." + string(js.UID)
		a.JobSet = &js
		return
	}
	w := *a.Workload
	w.Name += "." + string(w.UID)
	a.Workload = &w
}

// arrivesAt returns when a job is submitted.
func arrivesAt(created, started, from time.Time) time.Time {
	switch {
	case !created.Before(from):
		return created
	case !started.IsZero() && started.Before(from):
		return started
	}
	return from
}

// isObserved reports whether a job was observed from its creation on, so that its start can be compared.
func (a *arrival) isObserved(from time.Time) bool {
	return a.started.IsZero() || !a.started.Before(from)
}

// lastFrom returns when the last reservation began.
func (h *reservations) lastFrom() time.Time {
	if len(h.all) == 0 {
		return h.admitted
	}
	return h.all[len(h.all)-1].from
}

// addCourses adds how long the Jobs took. Attempts of which no Job is known do not count: the others are numbered from 0.
func (js *jobSet) addCourses(a *replay.Arrival) {
	a.Jobs = map[replay.Job]replay.Course{}
	keys := slices.SortedFunc(maps.Keys(js.jobs), compareJobs)
	attempts := make([]int, len(keys))
	for i := range keys {
		attempts[i] = keys[i].Attempt
	}
	slices.Sort(attempts)
	attempts = slices.Compact(attempts)
	for _, key := range keys {
		if runs := js.jobs[key].runs; len(runs) > 0 {
			last := &runs[len(runs)-1]
			c := js.courseOf(last)
			js.deriveReadiness(key, last, &c)
			key.Attempt, _ = slices.BinarySearch(attempts, key.Attempt)
			a.Jobs[key] = c
		}
	}
	if policy := js.object.Spec.FailurePolicy; policy != nil {
		spec := *js.object
		restarts := *policy
		restarts.MaxRestarts = int32(max(0, len(attempts)-1)) //nolint:gosec // status.restarts of a JobSet is an int32
		spec.Spec.FailurePolicy = &restarts
		a.JobSet = &spec
	}
	if js.hasFailed && !slices.ContainsFunc(slices.Collect(maps.Values(a.Jobs)), func(c replay.Course) bool { return c.Fails }) {
		a.Deleted = js.finished // its Jobs no longer show why
	}
}

// courseOf returns how long a run took. Jobs that have not ended when the JobSet succeeded ended then.
func (js *jobSet) courseOf(run *jobRun) replay.Course {
	c := replay.Course{GetsReady: run.isReady || run.hasSucceeded || !run.ready.IsZero()}
	if !run.ready.IsZero() {
		c.Ready = max(0, run.ready.Sub(run.started))
	}
	ended := run.ended
	if !run.hasSucceeded && !run.hasFailed {
		ended = time.Time{}
		if !js.hasFailed {
			ended = js.finished
		}
	}
	if !ended.IsZero() {
		c.Run, c.Ends, c.Fails = max(0, ended.Sub(run.started)), true, run.hasFailed
	}
	return c
}

// deriveReadiness corrects when a Job was ready: before the Jobs of the next stages started that waited for it. It may not be known, or have been
// observed late.
func (js *jobSet) deriveReadiness(key replay.Job, run *jobRun, c *replay.Course) {
	plan, err := stageplan.New(&js.object.Spec)
	if err != nil {
		return
	}
	for i := range plan.Stages {
		waits := slices.ContainsFunc(plan.Stages[i].After, func(w stageplan.Condition) bool {
			return w.Status == stageplan.Ready && slices.Contains(w.Targets, key.ReplicatedJob)
		})
		next := js.firstStart(plan.Stages[i].ReplicatedJobs, run.started)
		isUnknown := !c.GetsReady || run.ready.IsZero()
		if waits && !next.IsZero() && (isUnknown || next.Before(run.ready)) {
			c.GetsReady, c.Ready = true, next.Sub(run.started)
			return
		}
	}
}

// firstStart returns when the first Job of some ReplicatedJobs started after a time, or zero.
func (js *jobSet) firstStart(replicatedJobs []string, after time.Time) time.Time {
	var first time.Time
	for key, job := range js.jobs {
		if !slices.Contains(replicatedJobs, key.ReplicatedJob) {
			continue
		}
		for i := range job.runs {
			if at := job.runs[i].started; !at.Before(after) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
