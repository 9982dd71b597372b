package shadow

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/simulator/replay"
)

// A holder is the pods of one ReplicatedJob that hold quota from one time to another.
type holder struct {
	from, to time.Time
	// each is what one pod holds, and pods how many there are.
	each map[corev1.ResourceName]float64
	pods int32
	// waits is the cause before Jobs have started.
	waits Cause
	// releases is true if the quota of Jobs that have succeeded is released.
	releases bool
}

// measure adds what a JobSet held between two times.
func (js *jobSet) measure(from, to time.Time, add addition) {
	add = within(from, to, add)
	if len(js.reservations) == 0 {
		js.measurePods(to, add)
		return
	}
	runs := js.runs()
	for _, held := range js.reservations {
		for i := range held.all {
			for k := range held.all[i].podSets {
				a := &held.all[i].podSets[k]
				name := strings.ToLower(string(a.Name))
				h := newHolder(&held.all[i], to, a.ResourceUsage, count(a.Count))
				h.waits, h.releases = js.waits(name), held.releases
				h.measure(runs[name], add)
			}
		}
	}
}

func count(pods *int32) int32 {
	if pods == nil {
		return 0
	}
	return *pods
}

func newHolder(held *reservation, end time.Time, usage corev1.ResourceList, pods int32) *holder {
	h := &holder{from: held.from, to: held.to, each: map[corev1.ResourceName]float64{}, pods: max(1, pods)}
	if h.to.IsZero() {
		h.to = end
	}
	for name, amount := range usage {
		h.each[name] = amount.AsApproximateFloat64() / float64(h.pods)
	}
	return h
}

// waits returns why quota of a ReplicatedJob is idle before its Jobs start.
func (js *jobSet) waits(replicatedJob string) Cause {
	if js.object == nil {
		return NotStarted
	}
	plan, err := stageplan.New(&js.object.Spec)
	if err != nil {
		return NotStarted
	}
	for i := range plan.Stages {
		isIn := func(name string) bool { return strings.ToLower(name) == replicatedJob }
		if slices.ContainsFunc(plan.Stages[i].ReplicatedJobs, isIn) && len(plan.Stages[i].After) > 0 {
			return LaterStage
		}
	}
	return NotStarted
}

// A place is one index of a ReplicatedJob. Its runs are those of all attempts.
type place struct {
	pods int32
	runs []jobRun
}

// runs returns the places of each ReplicatedJob by its name in quota Workloads.
func (js *jobSet) runs() map[string][]place {
	places := map[replay.Job]*place{}
	for key, job := range js.jobs {
		key.Attempt = 0
		if places[key] == nil {
			places[key] = &place{}
		}
		places[key].pods = max(places[key].pods, job.pods)
		places[key].runs = append(places[key].runs, job.runs...)
	}
	all := map[string][]place{}
	for _, key := range slices.SortedFunc(maps.Keys(places), compareJobs) {
		p := places[key]
		slices.SortFunc(p.runs, func(a, b jobRun) int { return a.started.Compare(b.started) })
		name := strings.ToLower(key.ReplicatedJob)
		all[name] = append(all[name], *p)
	}
	return all
}

func compareJobs(a, b replay.Job) int {
	return cmp.Or(strings.Compare(a.ReplicatedJob, b.ReplicatedJob), cmp.Compare(a.Index, b.Index), cmp.Compare(a.Attempt, b.Attempt))
}

// measure adds what the pods held, and why it was idle. Pods whose Jobs are not known have not started.
func (h *holder) measure(places []place, add addition) {
	rest := h.pods
	for _, p := range places {
		pods := min(rest, p.pods)
		rest -= pods
		held := h.times(pods)
		at, last := h.from, jobRun{}
		step := func(to time.Time, why Cause) {
			if to := earliest(to, h.to); at.Before(to) {
				add(at, to, held, why)
				at = to
			}
		}
		for _, run := range p.runs {
			step(run.started, h.waits)
			step(run.readyAt(h.to), NotReady)
			step(run.endAt(h.to), Used)
			last = run
		}
		switch {
		case last.hasSucceeded && !h.releases:
			step(h.to, Ended)
		case !last.hasSucceeded && len(p.runs) > 0:
			step(h.to, NotStarted)
		case !last.hasSucceeded:
			step(h.to, h.waits)
		}
	}
	if rest > 0 {
		add(h.from, h.to, h.times(rest), h.waits)
	}
}

func (h *holder) times(pods int32) map[corev1.ResourceName]float64 {
	held := map[corev1.ResourceName]float64{}
	for name, amount := range h.each {
		held[name] = amount * float64(pods)
	}
	return held
}

// readyAt returns when the pods of a run were ready. If that is not known of a Job that has succeeded or was ready, they count as ready from the start.
func (r *jobRun) readyAt(end time.Time) time.Time {
	switch {
	case !r.ready.IsZero():
		return r.ready
	case r.isReady || r.hasSucceeded:
		return r.started
	}
	return r.endAt(end)
}

func (r *jobRun) endAt(end time.Time) time.Time {
	if r.ended.IsZero() {
		return end
	}
	return r.ended
}

// measurePods adds what the pods of a JobSet without quota Workloads requested.
func (js *jobSet) measurePods(end time.Time, add addition) {
	if js.object == nil {
		return
	}
	each := map[string]corev1.ResourceList{}
	for i := range js.object.Spec.ReplicatedJobs {
		r := &js.object.Spec.ReplicatedJobs[i]
		each[strings.ToLower(r.Name)] = stageplan.PodRequests(&r.Template.Spec.Template.Spec)
	}
	runs := js.runs()
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		for _, p := range runs[name] {
			for i := range p.runs {
				h := newHolder(&reservation{from: p.runs[i].started, to: p.runs[i].endAt(end)}, end, each[name], 1)
				h.pods = p.pods
				h.measure([]place{{p.pods, p.runs[i : i+1]}}, add)
			}
		}
	}
}

// measure adds what a job of another kind held. All of it counts as used: it has no stages.
func (o *otherJob) measure(from, to time.Time, add addition) {
	add = within(from, to, add)
	for i := range o.all {
		for k := range o.all[i].podSets {
			a := &o.all[i].podSets[k]
			h := newHolder(&o.all[i], to, a.ResourceUsage, count(a.Count))
			add(h.from, h.to, h.times(h.pods), Used)
		}
	}
}
