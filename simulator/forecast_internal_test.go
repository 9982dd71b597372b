package simulator

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/internal/durations"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// predicted returns the starts that are predicted from the objects of a scenario after some time, one line each.
func predicted(t *testing.T, text string, at time.Duration, d *Durations) []string {
	t.Helper()
	s := started(t, text)
	if err := s.runUntil(at); err != nil {
		t.Fatal(err)
	}
	p, err := Forecast(snapshotOf(s), d, s.Beginning().Add(1000*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for i := range p.Starts {
		lines = append(lines, startLine(s, &p.Starts[i]))
	}
	return lines
}

// startLine describes a start, with times since the beginning of a scenario.
func startLine(s *simulation, start *Start) string {
	line := fmt.Sprintf("%s %s", s.Subject(start.Workload), start.Certainty())
	for _, at := range []time.Time{start.By, start.About} {
		if !at.IsZero() {
			line += " " + at.Sub(s.Beginning()).String()
		}
	}
	if start.Certainty() == Unknown {
		line += fmt.Sprintf(" %v: %s", start.Blockers, start.Waits)
	}
	return line
}

func TestForecast(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		durations Durations
		want      []string
	}{
		"limits, estimates and neither": {
			text: "queue ml gpu=4\nsubmit a queue=ml pods=gpu:2 max-time=1h\nsubmit b queue=ml pods=gpu:2\n" +
				"submit c queue=ml pods=gpu:2 max-time=30m at=1m\nsubmit d queue=ml pods=gpu:4 at=2m\n",
			durations: Durations{Estimates: []Estimate{{Name: "b", Run: 2 * time.Hour}}},
			want:      []string{"c By 1h0m0s 1h0m0s", "d About 2h0m0s"},
		},
		"an endless holder": {
			text: "queue ml gpu=4\nsubmit a queue=ml pods=gpu:2 max-time=1h\nsubmit b queue=ml pods=gpu:2\nsubmit d queue=ml pods=gpu:4 at=2m\n",
			want: []string{"d Unknown [Workload default/b]: waits for quota in ClusterQueue ml: needs 4 gpu of flavor default: 2 of 4 free"},
		},
		"later stages": {
			text: "queue ml gpu=4\nsubmit a queue=ml stages=data(gpu=2)=Succeeded=>train(gpu=4) max-time=1h\nsubmit b queue=ml pods=gpu:2 max-time=2h\n",
			want: []string{"a/train By 2h0m0s"},
		},
		"a stage whose JobSet is endless": {
			text: "queue ml gpu=4\nsubmit a queue=ml stages=data(gpu=2)=Succeeded=>train(gpu=4)\nsubmit b queue=ml pods=gpu:3 max-time=2h\n",
			want: []string{
				"b Unknown [JobSet default/a]: waits for quota in ClusterQueue ml: needs 3 gpu of flavor default: 2 of 4 free",
				"a/train Unknown [JobSet default/a]: the stage waits for earlier stages of its JobSet",
			},
		},
		"estimates of stages, and readiness": {
			text: "queue ml gpu=4\nsubmit a queue=ml stages=ps(gpu=1)=Ready=>train(gpu=3) at=1m\nsubmit b queue=ml pods=gpu:4 at=2m\n",
			durations: Durations{Estimates: []Estimate{
				{Name: "a*", Stage: "ps", Ready: 10 * time.Minute}, {Namespace: "default", Stage: "train", Run: time.Hour}, {Name: "a", Stage: "ps", Run: time.Minute},
			}},
			want: []string{"b Unknown [JobSet default/a]: waits for quota in ClusterQueue ml: needs 4 gpu of flavor default: 3 of 4 free", "a/train By 11m0s 11m0s"},
		},
		"an estimate that was too short": {
			text:      "queue ml gpu=4\nsubmit a queue=ml pods=gpu:2\nsubmit b queue=ml pods=gpu:4\n",
			durations: Durations{Estimates: []Estimate{{Name: "a", Run: 2 * time.Minute}}},
			want:      []string{"b About 5m12s"},
		},
		"checks and termination": {
			text: "admissioncheck capacity\nqueue ml gpu=4 checks=capacity within=LowerPriority\nsubmit a queue=ml pods=gpu:4 max-time=1h stop-after=2m\n" +
				"check a capacity=Ready at=1m\nsubmit b queue=ml pods=gpu:4 priority=1 max-time=1h at=5m\n",
			durations: Durations{Checks: 5 * time.Minute, Termination: time.Minute},
			want:      []string{"a By 1h16m0s", "b By 11m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(c.want, predicted(t, "# story\n"+c.text, 5*time.Minute, &c.durations)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestForecastStops stops the simulation after each number of decisions: what was admitted until then is predicted as without a limit, and nothing else.
func TestForecastStops(t *testing.T) {
	text := "# story\nqueue ml gpu=4\nsubmit a queue=ml pods=gpu:4 max-time=1h\n"
	for i := range 6 {
		text += fmt.Sprintf("submit b%d queue=ml pods=gpu:%d max-time=%dm at=1m\n", i, 1+i%3, 10+i)
	}
	s := started(t, text)
	if err := s.runUntil(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
	taken, until := snapshotOf(s), s.Beginning().Add(100*time.Hour)
	want, err := Forecast(taken, &Durations{}, until)
	if err != nil {
		t.Fatal(err)
	}
	stopped := 0
	for decisions := 1; ; decisions++ {
		got, err := (&question{durations: &Durations{}, until: until, isAsked: isPending, maxDecisions: decisions}).predict(taken)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Starts {
			switch start := &got.Starts[i]; {
			case start.Certainty() == Unknown && got.Interrupted == nil:
				t.Errorf("%s is not predicted, and the simulation was not stopped", start.Workload)
			case start.Certainty() != Unknown && !start.By.Equal(want.Starts[i].By):
				t.Errorf("%s by %s after %d decisions, want %s", start.Workload, start.By, decisions, want.Starts[i].By)
			}
		}
		if got.Interrupted == nil {
			break
		}
		stopped++
	}
	if stopped < 5 {
		t.Errorf("the simulation was stopped only %d times", stopped)
	}
}

func TestForecastRefuses(t *testing.T) {
	for want, d := range map[string]Durations{
		`estimates[1].name is "[", must be a pattern`:    {Estimates: []Estimate{{Name: "a"}, {Name: "["}}},
		"estimates[0] is -1s until the end and 0s until": {Estimates: []Estimate{{Run: -time.Second}}},
		"termination is 0s and checks -1s":               {Checks: -time.Second},
	} {
		if _, err := Forecast(&snapshot.Snapshot{}, &d, time.Time{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}

// TestForecastsComeTrue predicts starts at random times of random scenarios in which every stage has a time limit and runs as long as that. Exactly
// the predicted starts happen.
func TestForecastsComeTrue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		file := RandomConfiguration(t)
		text, isRestarted := RandomLimits(t)
		at := rapid.IntRange(600, 4000).Draw(t, "at")
		counts, atSample := rapid.Bool().Draw(t, "counts usage"), true
		if counts {
			text, at, atSample = countUsage(t, file, text, at)
		}
		text = ReserveQuota(t, file, text)
		if !atSample {
			text = neverDue(text)
		}
		d := &Durations{}
		if !isRestarted {
			// A stage that fits and is not safe is checked again when quota is released. If another stage takes that quota meanwhile, a new manager lets it preempt.
			text, d = getReadyLater(t, file, text)
		}
		script, err := scenario.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s := newSimulation()
		if err := s.start(script, nil); err != nil {
			t.Fatal(err)
		}
		s.Config = scenario.Config{Config: admission.ConfigOf(file), WaitForPodsReady: file.WaitForPodsReady}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		jobcontrollers.AnswerChecks(s.Cluster, 0)
		if isRestarted {
			// A preempted stage begins again, and its limit leaves it less time. Pods of a growth end with their stage.
			s.Course = &durations.Course{Cluster: s.Cluster, Estimates: d.Estimates}
		}
		for i := range script.Lines {
			if err := s.schedule(&script.Lines[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := scheduleGangs(s, text); err != nil {
			t.Fatal(err)
		}
		if err := s.runUntil(time.Duration(at) * time.Second); err != nil {
			t.Fatal(err)
		}
		taken := snapshotOf(s)
		taken.Configuration = file
		until := s.Beginning().Add(24 * time.Hour)
		before := copied(taken)
		p, err := Forecast(taken, d, until)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := gocmp.Diff(before, taken); diff != "" {
			t.Fatalf("the prediction has changed the snapshot\n%s", diff)
		}
		agrees(t, taken, p, d, text)
		firstAgree(t, taken, p, d, text)
		comesTrue(t, s, p, text)
	})
}

// TestForecastStopsAfterChecks stops a simulation in which the engine checks many stages again whose refusals do not change.
func TestForecastStopsAfterChecks(t *testing.T) {
	text := "# story\n"
	for i := range 8 {
		text += fmt.Sprintf("queue q%d gpu=1 cohort=lab reclaim=Any\nsubmit r%[1]d queue=q%[1]d pods=gpu:1 max-time=%[2]dm run=9h\n", i, 10+i)
		text += fmt.Sprintf("submit s%d queue=q%[1]d pods=gpu:1 max-time=1h run=9h at=1m\nsubmit w%[1]d queue=q%[1]d pods=gpu:8 max-time=1h run=9h at=2m\n", i)
	}
	s := started(t, text)
	if err := s.runUntil(3 * time.Minute); err != nil {
		t.Fatal(err)
	}
	q := &question{durations: &Durations{}, until: s.Beginning().Add(100 * time.Hour), isAsked: isPending, maxChecks: 60}
	f := &forecast{durations: q.durations, isAsked: q.isAsked, onlyLimits: true}
	err := f.run(snapshotOf(s), q)
	if !errors.Is(err, errInterrupted) || f.decisions > 50 {
		t.Errorf("%v, after %d decisions and %d checks of stages", err, f.decisions, f.Engine.Checked())
	}
}

// countUsage lets past usage determine the order in a scenario. It returns when to take the snapshot. The manager checks only once in a sampling interval
// whether a stage comes before the first of a StrictFIFO queue, before a due stage, or before an equal one that holds quota, because usage has decayed: where
// it does so, that is the time of a sample, and any time where it does not. Then the caller has to see that no stage is due.
func countUsage(t *rapid.T, file *configapi.Configuration, text string, at int) (changed string, takenAt int, isSample bool) {
	seconds := rapid.SampledFrom([]int{60, 600, 3600}).Draw(t, "interval")
	file.AdmissionFairSharing = &configapi.AdmissionFairSharing{
		UsageHalfLifeTime:     &metav1.Duration{Duration: time.Duration(rapid.SampledFrom([]int{60, 600, 0}).Draw(t, "half-life")) * time.Minute},
		UsageSamplingInterval: &metav1.Duration{Duration: time.Duration(seconds) * time.Second},
	}
	for _, queue := range []string{"x", "y"} {
		if rapid.IntRange(0, 3).Draw(t, "is in order of submission") > 0 {
			text = strings.Replace(text, "\nqueue "+queue+" ", "\nqueue "+queue+" scope=UsageBasedAdmissionFairSharing ", 1)
		}
		text = strings.Replace(text, "\nlocalqueue "+queue+"2 ", fmt.Sprintf("\nlocalqueue %s2 weight=%d ", queue, rapid.IntRange(0, 3).Draw(t, "weight")), 1)
	}
	if rapid.Bool().Draw(t, "checks at samples") {
		return text, (at + seconds - 1) / seconds * seconds, true
	}
	return strings.NewReplacer("StrictFIFO", "BestEffortFIFO", "LowerOrNewerEqualPriority", "LowerPriority").Replace(text), at, false
}

// neverDue lets no stage be due in ClusterQueues that past usage orders.
func neverDue(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, " scope=UsageBasedAdmissionFairSharing") {
			lines[i] = regexp.MustCompile(` reserve-after=\w+`).ReplaceAllString(line, "") + " reserve-after=Never"
		}
	}
	return strings.Join(lines, "\n")
}

// getReadyLater lets the pods of first stages that others wait for take some time until they are ready, and returns an estimate for each. They are ready
// before they would be evicted for it.
func getReadyLater(t *rapid.T, file *configapi.Configuration, text string) (changed string, d *Durations) {
	d = &Durations{}
	latest := 10 * time.Minute
	if w := &file.WaitForPodsReady; *w.Enable {
		latest = w.Timeout.Duration - time.Second
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		words := strings.Fields(line)
		if !strings.HasPrefix(line, "submit ") || !strings.Contains(line, "=p(gpu=1)=Ready=>") || rapid.Bool().Draw(t, "is ready at once") {
			continue
		}
		ready := time.Duration(rapid.IntRange(1, int(latest.Seconds())).Draw(t, "ready after")) * time.Second
		lines[i] += fmt.Sprintf(" ready-after=p:%s", ready)
		d.Estimates = append(d.Estimates, Estimate{Name: words[1], Stage: "p", Ready: ready})
	}
	return strings.Join(lines, "\n"), d
}

// copied returns a snapshot with copies of the objects that are not copied when it is simulated.
func copied(s *snapshot.Snapshot) *snapshot.Snapshot {
	all := *s
	all.Workloads, all.JobSets = nil, nil
	for _, w := range s.Workloads {
		all.Workloads = append(all.Workloads, w.DeepCopy())
	}
	for _, js := range s.JobSets {
		all.JobSets = append(all.JobSets, js.DeepCopy())
	}
	return &all
}

// agrees compares a prediction with that of one of its quota Workloads alone.
func agrees(t *rapid.T, s *snapshot.Snapshot, p *Prediction, d *Durations, text string) {
	if len(p.Starts) == 0 {
		return
	}
	start := rapid.SampledFrom(p.Starts).Draw(t, "one")
	one, err := ForecastOf(s, d, p.Until, start.Workload)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff([]Start{start}, one.Starts); diff != "" {
		t.Fatalf("-of all +of one\n%s\n%s", diff, text)
	}
}

// comesTrue goes on with a simulation, and compares what happens with what was predicted.
func comesTrue(t *rapid.T, s *simulation, p *Prediction, text string) {
	if len(p.LeftOut) > 0 {
		t.Fatalf("left out: %v\n%s", p.LeftOut, text)
	}
	happens := &forecast{simulation: s, admitted: map[admission.StageKey]time.Duration{}}
	for i := range p.Starts {
		happens.admitted[p.Starts[i].Workload] = -1
	}
	for key, w := range s.Workloads {
		if _, is := happens.admitted[key]; is != isPending(w) {
			t.Fatalf("%s is pending: %t\n%s", key, isPending(w), text)
		}
	}
	happens.watch()
	taken := s.Now
	if err := s.runUntil(p.Until.Sub(s.Beginning())); err != nil {
		t.Fatal(err)
	}
	for i := range p.Starts {
		start := &p.Starts[i]
		if at := happens.at(start.Workload); !at.Equal(start.By) {
			t.Fatalf("at %s the start of %s is predicted to be at %v (%s), and is at %v\n%s\n%s", taken, start.Workload, start.By, startLine(s, start), at, text,
				strings.Join(s.Lines, "\n"))
		}
	}
	for _, violation := range s.Violations {
		t.Fatal(violation)
	}
}
