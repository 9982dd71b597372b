package main

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/test/bench/mixed"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// The first time counts at which a condition is observed to be true.
func TestStageTimes(t *testing.T) {
	f := newFollower(1)
	w := &kueue.Workload{ObjectMeta: named("jobset-js-0-train")}
	w.Labels = map[string]string{apis.JobSetLabel: "js", apis.StageLabel: "train"}
	w.Annotations = map[string]string{apis.AdmissionGatedByAnnotation: apis.StageGate}
	for i, condition := range []string{"", "", "open", kueue.WorkloadQuotaReserved, "", kueue.WorkloadPodsReady, kueue.WorkloadFinished, ""} {
		w = w.DeepCopy()
		switch condition {
		case "":
		case "open":
			w.Annotations = nil
		default:
			w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
		}
		f.see(watch.Event{Type: watch.Modified, Object: w}, f.began.Add(time.Duration(i)*time.Second))
		f.see(watch.Event{Type: watch.Modified, Object: holding("js", 1)}, f.began)
	}
	want := map[stageKey]stageTimes{{types.NamespacedName{Namespace: "team", Name: "js"}, "train"}: {
		opened: 2 * time.Second, reserved: 3 * time.Second, ready: 5 * time.Second,
		finished: 6 * time.Second,
	}}
	if diff := cmp.Diff(want, f.stages, cmp.AllowUnexported(stageTimes{}, stageKey{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// simulatedRun returns a run of the scaled shape as it would be observed if each stage took these latencies, and nothing else differed from the simulator.
func simulatedRun(t *testing.T, added latencies) *mixedRun {
	t.Helper()
	m := &mixedRun{shape: mixed.Scaled(), stages: map[stageKey]stageTimes{}}
	m.submissions = m.shape.Draw(1)
	of, spans, first := map[stageKey]latencies{}, map[types.NamespacedName]span{}, map[stageKey]time.Duration{}
	for i := range m.submissions {
		s := &m.submissions[i]
		key := client.ObjectKeyFromObject(s.JobSet)
		spans[key] = span{opened: s.After}
		first[stageKey{key, s.JobSet.Spec.ReplicatedJobs[0].Name}] = s.After
		for name := range s.Courses {
			of[stageKey{key, name}] = added
		}
	}
	arrivals, err := m.arrivals(spans, of)
	if err != nil {
		t.Fatal(err)
	}
	begin := mixed.Begin()
	o, err := replay.Run(&replay.Input{From: begin, To: begin.AddDate(1, 0, 0), Queues: []replay.Version{{At: begin, Objects: m.shape.Queues()}}, Arrivals: arrivals}, replay.Staged)
	if err != nil {
		t.Fatal(err)
	}
	after := func(at time.Time) time.Duration { return at.Sub(begin) / scale }
	for _, r := range o.Results {
		for _, e := range r.Executions {
			key := stageKey{r.Key(), e.ReplicatedJob}
			st := stageTimes{opened: after(e.Started), reserved: after(e.Started) + added.decide, ready: after(e.Ready), finished: after(e.Ended)}
			if at, isFirst := first[key]; isFirst {
				st.opened = at
			}
			if key.stage == mixed.Workers {
				st.opened = m.stages[stageKey{r.Key(), mixed.Leader}].ready
			}
			m.stages[key] = st
		}
	}
	return m
}

// The simulator opens workers as soon as their leader is ready.
func TestObserved(t *testing.T) {
	js := types.NamespacedName{Namespace: "team", Name: "js"}
	l, w := stageKey{js, mixed.Leader}, stageKey{js, mixed.Workers}
	m := &mixedRun{stages: map[stageKey]stageTimes{l: {opened: 1, reserved: 2, ready: 3, finished: 9}, w: {opened: 4, reserved: 5, ready: 6, finished: 7}}}
	if got, want := m.observed(l), (stageTimes{opened: 1, reserved: 2, ready: 4, finished: 9}); got != want {
		t.Errorf("leader: %+v, want %+v", got, want)
	}
	if got := m.observed(w); got != m.stages[w] {
		t.Errorf("workers: %+v, want %+v", got, m.stages[w])
	}
}

// A run that differs from the simulator only by latencies agrees with its replay. One that takes longer does not.
func TestMixedFigures(t *testing.T) {
	m := simulatedRun(t, latencies{decide: 200 * time.Millisecond, start: 800 * time.Millisecond, end: 300 * time.Millisecond})
	values := func() map[string]float64 {
		t.Helper()
		figures, err := m.figures()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]float64{}
		for _, f := range figures {
			all[f.name] = math.Round(f.value*10) / 10
		}
		return all
	}
	got := values()
	if got["makespan/run"] < 60 || got["wait/run"] < 2 {
		t.Errorf("there is nothing to compare: %v", got)
	}
	for name, want := range map[string]float64{
		"makespan/difference": 0, "wait/difference": 0, "latency/decide": 0.2, "latency/start": 0.8, "latency/end": 0.3, "unfinished": 0, "problems": 0,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	change := func(keys func(stageKey) bool, change func(*stageTimes)) {
		for key, st := range m.stages {
			if keys(key) {
				change(&st)
				m.stages[key] = st
			}
		}
	}
	// The workers of a leader are opened late, and it is deleted late.
	var leader stageKey
	for key := range m.stages {
		if key.stage == mixed.Leader {
			leader = key
		}
	}
	workers := stageKey{leader.jobSet, mixed.Workers}
	shift := func(by time.Duration) {
		change(func(key stageKey) bool { return key == workers }, func(st *stageTimes) { st.opened += by })
		change(func(key stageKey) bool { return key == leader }, func(st *stageTimes) { st.finished += by })
	}
	shift(time.Second)
	if of, _ := m.latencies(); of[leader].start != 1800*time.Millisecond || m.spans()[leader.jobSet].finished != m.stages[workers].finished {
		t.Errorf("the latencies of the leader are %v, its JobSet takes until %s", of[leader], m.spans()[leader.jobSet].finished)
	}
	shift(-time.Second)
	late := func(by time.Duration) {
		change(func(key stageKey) bool { return key.stage != mixed.Leader }, func(st *stageTimes) { st.ready += by })
	}
	late(400 * time.Millisecond)
	if got := values(); got["makespan/difference"] != 0 || got["wait/difference"] != 0 || got["latency/end"] >= 0 {
		t.Errorf("readiness that is observed late changes more than the latencies: %v", got)
	}
	late(-400 * time.Millisecond)
	change(func(key stageKey) bool { return key == leader }, func(st *stageTimes) { st.ready = 0 })
	if got := values(); got["makespan/difference"] != 0 || got["latency/start"] != 0.8 {
		t.Errorf("a time that was not observed does not count as the mean: %v", got)
	}
	m.problems = []error{errors.New("the watch has ended")}
	// The last stages of all JobSets release their quota, and all that follows begins, later than in the simulator.
	change(func(stageKey) bool { return true }, func(st *stageTimes) {
		st.reserved += st.reserved / 5
		st.ready += st.reserved / 6
		st.finished += st.reserved / 6
	})
	if slow := values(); slow["makespan/difference"] < 10 || slow["wait/difference"] < 10 || slow["problems"] != 1 {
		t.Errorf("a slow run: %v", slow)
	}
	delete(m.stages, workers)
	if _, err := m.figures(); err == nil {
		t.Error("a stage that was not observed is no error")
	}
}

// The fake nodes run the pods as long as the simulator does, and the API server gives all objects new identities.
func TestMixedObjects(t *testing.T) {
	shape := mixed.Scaled()
	for _, s := range shape.Draw(1) {
		js := fated(&s)
		for i := range js.Spec.ReplicatedJobs {
			job := &js.Spec.ReplicatedJobs[i]
			course, fate := s.Courses[job.Name], job.Template.Spec.Template.Annotations
			ready, err1 := time.ParseDuration(fate[controlplane.FakeReadyAfter])
			runs, err2 := time.ParseDuration(fate[controlplane.FakeRunTime])
			if err1 != nil || err2 != nil || ready != course.Ready || ready+runs != course.Run || (fate[controlplane.FakeExit] == "") != course.Ends {
				t.Errorf("the pods of %s/%s do %v, want %+v", js.Name, job.Name, fate, course)
			}
		}
		if js.UID != "" || s.JobSet.UID == "" || !js.CreationTimestamp.IsZero() {
			t.Errorf("JobSet %s has the UID %q", js.Name, js.UID)
		}
	}
	objects := objectsOf(shape.Queues())
	if len(objects) != 2+3*len(shape.Tenants) {
		t.Errorf("%d objects", len(objects))
	}
	for _, o := range objects {
		if o.GetUID() != "" {
			t.Errorf("%T %s has the UID %q", o, o.GetName(), o.GetUID())
		}
	}
}
