package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/simulator/trace"
	"github.com/tranche-dev/tranche/test/bench/mixed"
)

// A mixedRun is what was observed of a run of the shape mixed.
type mixedRun struct {
	shape       *mixed.Shape
	submissions []mixed.Submission
	stages      map[stageKey]stageTimes
	problems    []error
}

// Latencies are what a control plane takes for a stage, beside what its pods take and its wait for quota. The simulator takes no time for any of them.
type latencies struct {
	// decide is from when the stage is open until its quota is reserved, if it fits.
	decide time.Duration
	// start is from then until its pods are observed to be ready, and end from the end of its pods until its quota is released. The pods run from when they
	// are ready: end is negative if that was observed late.
	start, end time.Duration
}

// unknown is a latency that was not observed.
const unknown = time.Duration(math.MinInt64)

// latenciesOf returns the latencies of a stage whose pods take this time. Only stages that need no GPUs show how long a decision takes: no other stage is
// sure to fit when it is open.
func (m *mixedRun) latenciesOf(key stageKey, course replay.Course) latencies {
	st, l := m.observed(key), latencies{unknown, unknown, unknown}
	if st.opened > 0 && st.reserved > 0 && key.stage == mixed.Fetch {
		l.decide = st.reserved - st.opened
	}
	if st.reserved > 0 && st.ready > 0 {
		l.start = st.ready - st.reserved - course.Ready
	}
	if st.ready > 0 && st.finished > 0 && course.Ends {
		l.end = st.finished - st.ready - (course.Run - course.Ready)
	}
	return l
}

// observed returns what was observed of a stage. A leader is ready when the manager has opened its workers: in the simulator both happen at once.
func (m *mixedRun) observed(key stageKey) stageTimes {
	st := m.stages[key]
	if key.stage == mixed.Leader && st.ready > 0 {
		st.ready = max(st.ready, m.stages[stageKey{key.jobSet, mixed.Workers}].opened)
	}
	return st
}

// latencies returns those of each stage, and the means of all. A latency that was not observed is that of the mean.
func (m *mixedRun) latencies() (of map[stageKey]latencies, means latencies) {
	of = map[stageKey]latencies{}
	var decide, start, end []time.Duration
	for i := range m.submissions {
		s := &m.submissions[i]
		for name, course := range s.Courses {
			key := stageKey{client.ObjectKeyFromObject(s.JobSet), name}
			l := m.latenciesOf(key, course)
			of[key] = l
			decide, start, end = append(decide, l.decide), append(start, l.start), append(end, l.end)
		}
	}
	means = latencies{meanOfKnown(decide), meanOfKnown(start), meanOfKnown(end)}
	for key, l := range of {
		of[key] = latencies{orMean(l.decide, means.decide), orMean(l.start, means.start), orMean(l.end, means.end)}
	}
	return of, means
}

func orMean(d, mean time.Duration) time.Duration {
	if d == unknown {
		return mean
	}
	return d
}

func meanOfKnown(all []time.Duration) time.Duration {
	all = slices.DeleteFunc(all, func(d time.Duration) bool { return d == unknown })
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(max(len(all), 1))
}

// A span is the time from when the first stage of a JobSet is open until the last one has released its quota. It does not count how long after its workers a
// leader releases its quota: in the simulator that takes no time.
type span struct{ opened, finished time.Duration }

// spans returns that of each JobSet whose stages have all finished.
func (m *mixedRun) spans() map[types.NamespacedName]span {
	all := map[types.NamespacedName]span{}
	for i := range m.submissions {
		key := client.ObjectKeyFromObject(m.submissions[i].JobSet)
		s, isComplete := span{opened: math.MaxInt64}, true
		for name := range m.submissions[i].Courses {
			st := m.stages[stageKey{key, name}]
			isComplete = isComplete && st.opened > 0 && st.finished > 0
			s.opened = min(s.opened, st.opened)
			if name != mixed.Leader {
				s.finished = max(s.finished, st.finished)
			}
		}
		if isComplete {
			all[key] = s
		}
	}
	return all
}

// scale is how much slower virtual time passes than the run: objects have whole seconds, and the run has jobs of seconds.
const scale = 60

// arrivals returns the JobSets for a replay: submitted when their first stage was open, with stages that take their latencies in addition.
func (m *mixedRun) arrivals(spans map[types.NamespacedName]span, of map[stageKey]latencies) ([]*replay.Arrival, error) {
	var all []*replay.Arrival
	for i := range m.submissions {
		a := m.submissions[i].Arrival()
		s, isComplete := spans[a.Key()]
		if !isComplete {
			return nil, fmt.Errorf("not all stages of JobSet %s were observed to finish", a.Key())
		}
		a.At = mixed.Begin().Add(scale * s.opened)
		a.JobSet = a.JobSet.DeepCopy()
		a.JobSet.CreationTimestamp = metav1.NewTime(a.At.Truncate(time.Second))
		if seconds, err := strconv.Atoi(a.JobSet.Labels[apis.MaxExecTimeLabel]); err == nil {
			a.JobSet.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(scale * seconds)
		}
		for job, course := range a.Jobs {
			added := of[stageKey{a.Key(), job.ReplicatedJob}]
			course.Ready = scale * (course.Ready + added.decide + added.start)
			course.Run = max(course.Ready, scale*(course.Run+added.decide+added.start+added.end))
			a.Jobs[job] = course
		}
		all = append(all, a)
	}
	return all, nil
}

// figures compares the run with its replay.
func (m *mixedRun) figures() ([]figure, error) {
	spans := m.spans()
	of, means := m.latencies()
	arrivals, err := m.arrivals(spans, of)
	if err != nil {
		return nil, err
	}
	staged, err := trace.ParseVariant(string(replay.Staged))
	if err != nil {
		return nil, err
	}
	report, err := trace.Replay(arrivals, m.shape.Queues(), mixed.GPU, staged)
	if err != nil {
		return nil, err
	}
	simulated := &report.Policies[0]
	wait := 0.0
	for i := range simulated.Sizes {
		wait += simulated.Sizes[i].WaitAll.Mean * float64(simulated.Sizes[i].Jobs) / float64(report.Jobs) / scale
	}
	makespan, waits := m.waits(arrivals, spans)
	figures := append(compared("makespan", makespan, simulated.MakespanSeconds/scale), compared("wait", waits, wait)...)
	return append(
		figures,
		seconds("latency/decide", means.decide), seconds("latency/start", means.start), seconds("latency/end", means.end),
		count("unfinished", report.Jobs-simulated.Finished, "in the simulator"), problems(m.problems),
	), nil
}

// waits returns the makespan of the run, and the mean wait of all stages of a JobSet together: its span, without what it takes alone. Both are in seconds.
func (m *mixedRun) waits(arrivals []*replay.Arrival, spans map[types.NamespacedName]span) (makespan, wait float64) {
	first, last := time.Duration(math.MaxInt64), time.Duration(0)
	for _, a := range arrivals {
		s := spans[a.Key()]
		first, last = min(first, s.opened), max(last, s.finished)
		wait += max(0, s.finished-s.opened-a.Alone()/scale).Seconds() / float64(len(arrivals))
	}
	return (last - first).Seconds(), wait
}

// compared returns a figure of the run and of the replay, and by how much they differ.
func compared(name string, ran, simulated float64) []figure {
	return []figure{
		{name: name + "/run", value: ran, unit: "s"},
		{name: name + "/simulated", value: simulated, unit: "s"},
		{name: name + "/difference", value: 100 * math.Abs(simulated-ran) / ran, unit: "%", note: "of the run"},
	}
}
