package simulator_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// recorded is where the recorded changes are: for each a world as a scenario, and the files that a user would have.
const recorded = "../plan/testdata"

// horizon is how far plans look.
const horizon = 24 * time.Hour

// TestRecordedChanges plans each recorded change, and really makes it: exactly the consequences that the plan names happen.
func TestRecordedChanges(t *testing.T) {
	worlds, err := filepath.Glob(filepath.Join(recorded, "*", "world.txt"))
	if err != nil || len(worlds) < 10 {
		t.Fatalf("%d recorded changes: %v", len(worlds), err)
	}
	for _, path := range worlds {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			w, err := simulator.RunChanged(parse(t, path), configuration(t, dir), &simulator.Durations{}, horizon)
			if err != nil {
				t.Fatal(err)
			}
			writeFiles(t, dir, w)
			for _, problem := range planned(w, &simulator.Durations{}) {
				t.Error(problem)
			}
		})
	}
}

// configuration reads the configuration of the manager in a world, or returns the default.
func configuration(t *testing.T, dir string) *configapi.Configuration {
	t.Helper()
	config := &configapi.Configuration{}
	content, err := os.ReadFile(filepath.Join(dir, "configuration.yaml"))
	if err == nil {
		config, err = configapi.Decode(content)
	} else if os.IsNotExist(err) {
		config.APIVersion, config.Kind = configapi.APIVersion, configapi.Kind
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
	config.SetDefaults()
	return config
}

// planned makes the plan of a change, and compares the plan with what really happens.
func planned(w *simulator.ChangedWorld, d *simulator.Durations) []string {
	change, err := plan.Apply(w.Before, w.Manifests, plan.Pruned)
	if err != nil {
		return []string{err.Error()}
	}
	p, err := plan.New(change, d, horizon)
	if err != nil {
		return []string{err.Error()}
	}
	problems := compareOutcomes("without", w.Before, w.Before, w.Without, d)
	problems = append(problems, compareOutcomes("with", w.Before, change.After(), w.With, d)...)
	return append(problems, unnamed(w, p)...)
}

// compareOutcomes compares a simulation from a snapshot with what really happens.
func compareOutcomes(which string, s, after *snapshot.Snapshot, want *simulator.Outcome, d *simulator.Durations) []string {
	got, err := simulator.SimulateDisturbance(s, &simulator.Disturbance{After: after}, d, s.TakenAt.Add(horizon))
	if err != nil {
		return []string{err.Error()}
	}
	if diff := gocmp.Diff(simulator.HistoriesOf(want), simulator.HistoriesOf(got), cmpopts.EquateEmpty()); diff != "" {
		return []string{which + " the change: -really +simulated\n" + diff}
	}
	return nil
}

// unnamed returns what really happens to quota Workloads and is not in the plan, and what is in the plan and does not happen.
func unnamed(w *simulator.ChangedWorld, p *plan.Plan) (problems []string) {
	named := map[admission.StageKey]map[plan.Kind]int{}
	for i := range p.Consequences {
		c := &p.Consequences[i]
		key := simulator.NameOf(admission.StageKey{Namespace: c.Namespace, Name: c.Workload}, cmp.Or(c.JobSet, c.Job), c.Stage.Stage, c.Growth)
		if named[key] == nil {
			named[key] = map[plan.Kind]int{}
		}
		named[key][c.Kind]++
	}
	without, with := simulator.HistoriesOf(w.Without), simulator.HistoriesOf(w.With)
	for key := range with {
		was, now := without[key], with[key]
		kinds := named[key]
		check := func(happens bool, what string, is ...plan.Kind) {
			isNamed := false
			for _, kind := range is {
				isNamed = isNamed || kinds[kind] > 0
			}
			if happens && !isNamed {
				problems = append(problems, fmt.Sprintf("%s is %s, and the plan has %v", key, what, kinds))
			}
		}
		check(len(now.Evictions) > len(was.Evictions), "evicted", plan.Evicted, plan.Restarted)
		check(len(now.Evictions) < len(was.Evictions), "not evicted", plan.NotEvicted, plan.Delayed, plan.NeverFits, plan.Unsafe)
		check(len(now.Starts) > len(was.Starts), "newly admitted", plan.NewlyAdmitted, plan.Evicted, plan.Restarted)
		check(now.End == simulator.Waits && was.End != simulator.Waits, "left waiting", plan.Delayed, plan.NeverFits, plan.Unsafe, plan.Evicted, plan.Waiting)
		check(!gocmp.Equal(was.Starts, now.Starts, cmpopts.EquateEmpty()), "admitted at another time", plan.Delayed, plan.Earlier, plan.NewlyAdmitted, plan.NeverFits,
			plan.Unsafe, plan.Evicted, plan.NotEvicted, plan.Restarted)
		isSame := gocmp.Equal(was, now, cmpopts.EquateEmpty())
		if isSame && len(kinds) > 0 {
			problems = append(problems, fmt.Sprintf("the plan has %v for %s, and nothing changes for it", kinds, key))
		}
		if kinds[plan.Evicted]+kinds[plan.Restarted] > 0 && len(now.Evictions) <= len(was.Evictions) || kinds[plan.NewlyAdmitted] > 0 && len(now.Starts) <= len(was.Starts) {
			problems = append(problems, fmt.Sprintf("the plan has %v for %s, which does not happen", kinds, key))
		}
	}
	return problems
}

// kept compares with what really happens what a plan promises that knows neither when pods get ready nor when AdmissionChecks pass: which quota Workloads
// are evicted at the time of the change, and which can never start. A plan that expects both at once cannot separate what follows from the change from what
// follows from them, so that it may promise more evictions. One that expects them later is exact.
func kept(w *simulator.ChangedWorld) []string {
	var problems []string
	ready := 3 * time.Minute
	if timeouts := &w.Before.Configuration.WaitForPodsReady; *timeouts.Enable {
		ready = min(ready, timeouts.Timeout.Duration-time.Second) // pods that are not ready in time are evicted
	}
	later := simulator.Durations{Estimates: []simulator.Estimate{{Ready: ready}}, Checks: 5 * time.Minute}
	for _, d := range []*simulator.Durations{{}, &later} {
		change, err := plan.Apply(w.Before, w.Manifests, plan.Pruned)
		if err != nil {
			return []string{err.Error()}
		}
		p, err := plan.New(change, d, horizon)
		if err != nil {
			return []string{err.Error()}
		}
		problems = append(problems, broken(w, p, d.Checks == 0)...)
	}
	return problems
}

// broken returns the promises of a plan that are not kept. If isEager is true, it may promise more evictions.
func broken(w *simulator.ChangedWorld, p *plan.Plan, isEager bool) (problems []string) { //nolint:revive // a property of the plan
	evicted, stuck := map[admission.StageKey]bool{}, map[admission.StageKey]bool{}
	for i := range p.Consequences {
		c := &p.Consequences[i]
		key := simulator.NameOf(admission.StageKey{Namespace: c.Namespace, Name: c.Workload}, cmp.Or(c.JobSet, c.Job), c.Stage.Stage, c.Growth)
		if slices.Contains([]plan.Kind{plan.Evicted, plan.EvictionMoved, plan.Restarted}, c.Kind) {
			evicted[key] = evicted[key] || c.After.Equal(p.TakenAt)
		}
		stuck[key] = stuck[key] || c.Kind == plan.NeverFits || c.Kind == plan.Unsafe
	}
	without, with := simulator.HistoriesOf(w.Without), simulator.HistoriesOf(w.With)
	for key, now := range with {
		was := without[key]
		if timesOut(&was) || timesOut(&now) {
			continue // nothing is promised about pods that are not ready in time
		}
		isEvicted := slices.ContainsFunc(now.Evictions, func(e simulator.Eviction) bool { return e.At.Equal(p.TakenAt) })
		if isEvicted && !evicted[key] || !isEvicted && evicted[key] && !isEager {
			problems = append(problems, fmt.Sprintf("%s is evicted at once: %t, and the plan says %t", key, isEvicted, evicted[key]))
		}
		// Whether a stage that opens later can ever start may depend on what its JobSet holds by then.
		if isEvicted && isStuck(&now) && !isStuck(&was) && !stuck[key] {
			problems = append(problems, fmt.Sprintf("%s is evicted and can never start again: %s, and the plan does not say so", key, now.Reason))
		}
		if stuck[key] && now.End != simulator.Waits {
			problems = append(problems, fmt.Sprintf("%s is said never to start, and is %s", key, now.End))
		}
	}
	return problems
}

func timesOut(h *simulator.History) bool {
	return slices.ContainsFunc(h.Evictions, func(e simulator.Eviction) bool { return e.Reason == kueue.WorkloadEvictedByPodsReadyTimeout })
}

func isStuck(h *simulator.History) bool {
	return h.End == simulator.Waits && slices.Contains([]string{
		kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor, kueue.WorkloadQuotaReservedReasonMisconfigured,
		apis.DeadlockedReason,
	}, h.Reason)
}

// writeFiles compares the files of a recorded change with the world, or writes them: the snapshot, and the manifests of the objects.
func writeFiles(t *testing.T, dir string, w *simulator.ChangedWorld) {
	t.Helper()
	files := map[string]*bytes.Buffer{}
	err := w.Before.Write(func(name string) (io.WriteCloser, error) {
		files[filepath.Join("snapshot", name)] = &bytes.Buffer{}
		return nopCloser{files[filepath.Join("snapshot", name)]}, nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	manifests := &bytes.Buffer{}
	for _, kind := range snapshot.Kinds() {
		for object := range w.Manifests.Objects(kind) {
			object.GetObjectKind().SetGroupVersionKind(kind.GVK)
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(manifests, "---\n%s", text)
		}
	}
	files["queues.yaml"] = manifests
	for name, content := range files {
		path := filepath.Join(dir, name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		on, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(on, content.Bytes()) {
			t.Errorf("%s differs from the world: run go test ./simulator -run TestRecordedChanges -update: %v", path, err)
		}
	}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestPlansComeTrue makes random changes in random worlds in which every stage runs as long as its limit: exactly the consequences that the plan names
// happen.
func TestPlansComeTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := simulator.RandomConfiguration(t)
		text, _ := simulator.RandomLimits(t)
		text = randomClasses(t, simulator.ReserveQuota(t, config, text))
		at := rapid.IntRange(600, 4000).Draw(t, "at")
		text += randomSuspension(t, text, at) + fmt.Sprintf("run until=%ds\n", at)
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			text += randomChange(t, text)
		}
		text += rapid.SampledFrom([]string{"", "", "", "remove queue x\n", "remove localqueue y2\n"}).Draw(t, "removal")
		d, text := randomDurations(t, text)
		script, err := scenario.Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		w, err := simulator.RunChanged(script, config, d, horizon)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if problems := append(planned(w, d), kept(w)...); len(problems) > 0 {
			t.Fatalf("%s\n%v\n%s", strings.Join(problems, "\n"), d, text)
		}
	})
}

// randomDurations draws how long the pods of jobs take until they are ready, and how long AdmissionChecks take, and lets pods take a second to terminate. All
// takes at least that second: what takes no time happens before the manager, which takes none either, has answered a change, and after it in a plan.
func randomDurations(t *rapid.T, text string) (d *simulator.Durations, slower string) {
	d = &simulator.Durations{Checks: time.Second, Termination: time.Second}
	var lines strings.Builder
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] != "submit" {
			lines.WriteString(line)
			continue
		}
		lines.WriteString(strings.TrimSuffix(line, "\n") + " stop-after=1s\n")
		if rapid.Bool().Draw(t, "is ready later") {
			ready := time.Duration(rapid.IntRange(1, 2000).Draw(t, "ready after")) * time.Second
			d.Estimates = append(d.Estimates, simulator.Estimate{Name: words[1], Ready: ready})
		}
	}
	d.Estimates = append(d.Estimates, simulator.Estimate{Ready: time.Second})
	if rapid.Bool().Draw(t, "checks take time") {
		d.Checks = time.Duration(rapid.IntRange(1, 1000).Draw(t, "checks after")) * time.Second
	}
	return d, lines.String()
}

// TestPlanOfPodsThatAreNotReady cuts the quota of a JobSet whose launcher waits for its pods: the workers are not admitted before the cut, but never again.
func TestPlanOfPodsThatAreNotReady(t *testing.T) {
	script, err := scenario.Parse("# The launcher pulls its image.\nqueue ml gpu=12\nsubmit staged queue=ml stages=launcher(gpu=2)=Ready=>trainer(4*gpu=1) max-time=2h stop-after=1s\n" +
		"run until=5m\nchange queue ml gpu=5\n")
	if err != nil {
		t.Fatal(err)
	}
	config := configuration(t, t.TempDir())
	w, err := simulator.RunChanged(script, config, &simulator.Durations{Estimates: []simulator.Estimate{{Ready: 20 * time.Minute}}, Termination: time.Second}, horizon)
	if err != nil {
		t.Fatal(err)
	}
	change, err := plan.Apply(w.Before, w.Manifests, plan.Pruned)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.New(change, &simulator.Durations{}, horizon)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range p.Consequences {
		c := &p.Consequences[i]
		got = append(got, fmt.Sprintf("%s %s", c.Kind, c.Stage.Stage))
	}
	if diff := gocmp.Diff([]string{"Evicted launcher", "NeverFits launcher", "Delayed trainer"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, problem := range kept(w) {
		t.Error(problem)
	}
}

// randomClasses lets some jobs have their priority from a WorkloadPriorityClass.
func randomClasses(t *rapid.T, text string) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if priority := priorityOf(line); priority != "" && rapid.Bool().Draw(t, "has a class") {
			lines[i] = strings.Replace(line, " priority="+priority, " class=c"+priority, 1)
		}
	}
	classes := "priorityclass c0 value=0\npriorityclass c1 value=1\npriorityclass c2 value=2\n"
	return strings.Join(slices.Insert(lines, 1, classes), "")
}

// priorityOf returns the priority in a line that submits a job, or "".
func priorityOf(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "submit" {
		return ""
	}
	for _, word := range words {
		if value, is := strings.CutPrefix(word, "priority="); is {
			return value
		}
	}
	return ""
}

// randomSuspension draws a line that suspends a JobSet before the change, or none.
func randomSuspension(t *rapid.T, text string, until int) string {
	names := jobSetsOf(text)
	if len(names) == 0 || rapid.Bool().Draw(t, "none is suspended") {
		return ""
	}
	return fmt.Sprintf("suspend %s at=%ds\n", rapid.SampledFrom(names).Draw(t, "suspended"), rapid.IntRange(600, until).Draw(t, "since"))
}

// jobSetsOf returns the names of the JobSets that a scenario submits.
func jobSetsOf(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); words[0] == "submit" && strings.Contains(line, " stages=") {
			names = append(names, words[1])
		}
	}
	return names
}

// randomChange draws a line that changes a queue, submits a JobSet, or suspends or resumes one.
func randomChange(t *rapid.T, text string) string {
	queue := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "changed")
	changes := []string{
		fmt.Sprintf("change queue %s a:gpu=%d b:gpu=%d", queue, rapid.IntRange(0, 12).Draw(t, "new a"), rapid.IntRange(0, 6).Draw(t, "new b")),
		"change queue " + queue + " stop=Hold", "change queue " + queue + " stop=HoldAndDrain", "change localqueue " + queue + "2 stop=Hold",
		"change localqueue " + queue + "2 stop=HoldAndDrain", "change queue " + queue + " within=LowerPriority",
		"change queue " + queue + " within=Never", "change queue " + queue + " strategy=StrictFIFO", "change queue " + queue + " policy=Safe",
		"change queue " + queue + " policy=Reserve", "change queue " + queue + " cohort=other",
		"change queue " + queue + " policy=Greedy", "change queue " + queue + " stop=None", "change queue " + queue + " when-can-preempt=MayStopSearch",
		"change queue " + queue + " when-can-borrow=TryNextFlavor", fmt.Sprintf("change queue %s d:cpu=%d", queue, rapid.IntRange(0, 8).Draw(t, "new d")),
		fmt.Sprintf("change priorityclass c%d value=%d", rapid.IntRange(0, 2).Draw(t, "class"), rapid.IntRange(0, 9).Draw(t, "value")),
		fmt.Sprintf("submit new%d queue=%s stages=p(gpu=1)=Ready=>q(%d*gpu=1) max-time=20m", strings.Count(text, "\n"), queue, rapid.IntRange(1, 4).Draw(t, "workers")),
		fmt.Sprintf("submit new%d queue=%s stages=train(%d*gpu=1) max-time=20m", strings.Count(text, "\n"), queue, rapid.IntRange(1, 4).Draw(t, "pods")),
	}
	if strings.Contains(text, "cohort lab") {
		changes = append(changes, "change queue "+queue+" reclaim=Any", "change queue "+queue+" weight=3", fmt.Sprintf("change queue %s a:gpu=4/borrow=%d", queue,
			rapid.IntRange(0, 3).Draw(t, "borrow")), fmt.Sprintf("change queue %s a:gpu=4/lend=%d", queue, rapid.IntRange(0, 3).Draw(t, "lend")),
			fmt.Sprintf("change cohort lab a:gpu=%d", rapid.IntRange(0, 4).Draw(t, "shared")), "change queue "+queue+" weight=0",
			"change queue "+queue+" reclaim=LowerPriority borrow-within=LowerPriority", "change cohort lab weight=2")
	}
	if strings.Contains(text, "cohort top") {
		changes = append(changes, fmt.Sprintf("change cohort top a:gpu=%d", rapid.IntRange(0, 4).Draw(t, "on top")), "change cohort ops parent=lab", "change cohort ops parent=alone",
			fmt.Sprintf("change cohort ops b:gpu=2/lend=%d", rapid.IntRange(0, 2).Draw(t, "lent")))
	}
	for _, name := range jobSetsOf(text) {
		changes = append(changes, "suspend "+name)
		if strings.Contains(text, "suspend "+name+" ") {
			changes = append(changes, "resume "+name)
		}
	}
	return rapid.SampledFrom(changes).Draw(t, "change") + "\n"
}
