package simulator_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// TestRandomScenarios checks the invariants over random scenarios, and a crash in the middle changes nothing of what follows (I5).
func TestRandomScenarios(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := randomLines(t)
		script := strings.Join(lines, "")
		want := play(t, script)
		at := rapid.IntRange(0, 20).Draw(t, "crash")
		got := play(t, strings.Join(append(lines, fmt.Sprintf("crash at=%dm\n", at)), ""))
		if diff := scenario.Diff(want, got); diff != "" {
			t.Fatalf("a crash at %dm changes the run: -want +got\n%s\n%s", at, diff, strings.Join(lines, ""))
		}
	})
}

// play returns the timeline without crashes and hash.
func play(t rapid.TB, text string) string {
	s, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	result, err := simulator.Run(s, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, violation := range result.Violations {
		t.Fatalf("%s\n%s\n%s", violation, text, result)
	}
	return timeline(result)
}

func randomLines(t *rapid.T) []string {
	config := rapid.SampledFrom([]string{
		"", "config wait-for-pods-ready.timeout=3m wait-for-pods-ready.requeuing-strategy.backoff-limit-count=1\n",
		"config wait-for-pods-ready.timeout=90s wait-for-pods-ready.requeuing-strategy.backoff-base-seconds=100\n",
		// Pods become ready, and restarted Jobs time out, at the same instants at which the manager crashes.
		"config wait-for-pods-ready.timeout=2m wait-for-pods-ready.recovery-timeout=1m wait-for-pods-ready.requeuing-strategy.backoff-base-seconds=60\n",
	}).Draw(t, "config")
	ahead := rapid.SampledFrom([]string{"", "config look-ahead.max-ahead=0\n", "config look-ahead.max-ahead=1\n"}).Draw(t, "ahead")
	lines := []string{"# Whatever may happen.\n", config, ahead, "admissioncheck c\n", "flavor a\n", "flavor b taints=spot=true:NoSchedule\n"}
	strategy := rapid.SampledFrom([]string{"StrictFIFO", "BestEffortFIFO"})
	policy := rapid.SampledFrom([]string{"Safe", "Reserve", "Greedy"})
	for _, queue := range []string{"x", "y"} {
		lines = append(lines, fmt.Sprintf("queue %s a:gpu=%d b:gpu=%d strategy=%s policy=%s%s%s\n", queue,
			rapid.IntRange(2, 8).Draw(t, "a"), rapid.IntRange(0, 4).Draw(t, "b"), strategy.Draw(t, "strategy"), policy.Draw(t, "policy"),
			rapid.SampledFrom([]string{"", " within=LowerPriority", " checks=c@b"}).Draw(t, "more"),
			rapid.SampledFrom([]string{"", " costart=1m", " costart=0s", " costart=Never"}).Draw(t, "co-start")+
				rapid.SampledFrom([]string{"", " reserve-after=0s", " reserve-after=2m"}).Draw(t, "reservation")+
				rapid.SampledFrom([]string{"", " minimum-runtime=4m"}).Draw(t, "minimum runtime")+
				rapid.SampledFrom([]string{"", " preemption-notice=2m", " preemption-notice=90s"}).Draw(t, "notice")))
	}
	var jobs, jobSets []string
	for i := range rapid.IntRange(1, 8).Draw(t, "jobs") {
		name := fmt.Sprintf("j%d", i)
		jobs = append(jobs, name)
		shape := randomShape(t)
		if strings.HasPrefix(shape, "stages=") {
			jobSets = append(jobSets, name)
		}
		lines = append(lines, fmt.Sprintf("submit %s queue=%s %s priority=%d stop-after=%dm at=%dm%s\n", name,
			rapid.SampledFrom([]string{"x", "y"}).Draw(t, "queue"), shape, rapid.IntRange(0, 2).Draw(t, "priority"),
			rapid.IntRange(0, 2).Draw(t, "stop"), rapid.IntRange(0, 10).Draw(t, "at"), rapid.SampledFrom([]string{"", " tolerates=spot"}).Draw(t, "tolerates")))
	}
	for range rapid.IntRange(0, 8).Draw(t, "changes") {
		job := rapid.SampledFrom(jobs).Draw(t, "job")
		at := rapid.IntRange(10, 20).Draw(t, "when")
		change := rapid.SampledFrom([]string{
			"evict " + job, "delete " + job, "finish " + job, "fail " + job, "set " + job + " priority=5", "set " + job + " active=false",
			"set " + job + " active=true", "change queue x a:gpu=1", "change queue x a:gpu=9", "change queue y stop=Hold",
			"change queue y stop=None", "fail-write " + job, "check " + job + " c=Ready", "check " + job + " c=Rejected", "check " + job + " c=Retry/after=2m",
			"change localqueue x stop=Hold", "change localqueue x stop=None", "change queue x costart=Never", "change queue x costart=2m",
		}).Draw(t, "change")
		lines = append(lines, fmt.Sprintf("%s at=%dm\n", change, at))
	}
	for range rapid.IntRange(0, 6).Draw(t, "sizes") {
		if len(jobSets) > 0 {
			lines = append(lines, randomSize(t, rapid.SampledFrom(jobSets).Draw(t, "jobset")))
		}
	}
	return lines
}

// randomSize lets a JobSet grow or shrink, or something happen to a growth that it may have.
func randomSize(t *rapid.T, jobSet string) string {
	change := rapid.SampledFrom([]string{
		"resize %s/p pods=1", "resize %s/p pods=2", "resize %s/p pods=3", "resize %s/p pods=5", "resize %s/q pods=1", "resize %s/q pods=3", "resize %s/q pods=9",
		"evict %s/p+1", "set %s/p+1 active=false", "set %s/p+1 active=true", "check %s/p+1 c=Ready", "check %s/p+1 c=Rejected", "fail-write %s/p+1",
	}).Draw(t, "size")
	return fmt.Sprintf(change+" at=%dm\n", jobSet, rapid.IntRange(0, 14).Draw(t, "when"))
}

func randomShape(t *rapid.T) string {
	n, run := rapid.IntRange(1, 4), rapid.IntRange(1, 12)
	status := rapid.SampledFrom([]string{"Ready", "Succeeded"})
	switch rapid.IntRange(0, 2).Draw(t, "shape") {
	case 0:
		return fmt.Sprintf("pods=%d*gpu:1 run=%dm", n.Draw(t, "pods"), run.Draw(t, "run"))
	case 1:
		return fmt.Sprintf("stages=p(gpu=%d)=%s=>q(gpu=%d) run=p:%dm,q:%dm ready-after=1m restarts=1 fails=q:%d", rapid.IntRange(1, 2).Draw(t, "p"), status.Draw(t, "for"),
			n.Draw(t, "q"), run.Draw(t, "run of p"), run.Draw(t, "run of q"), rapid.IntRange(0, 2).Draw(t, "fails"))
	default:
		return fmt.Sprintf("stages=p(gpu=1)=%s=>q(gpu=%d);p=%s=>r(gpu=%d) run=%dm", status.Draw(t, "for q"), n.Draw(t, "q"),
			status.Draw(t, "for r"), n.Draw(t, "r"), run.Draw(t, "run"))
	}
}

// TestPreemptionIsNotUndone checks that no job preempts another one of its ClusterQueue twice at one time, whatever orders the queue: the job gets the
// quota before its victim does.
func TestPreemptionIsNotUndone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(randomUsage(t), "")
		if line := undone(t, text); line != "" {
			t.Fatalf("again: %s\n%s\n%s", line, text, play(t, text))
		}
	})
}

// undone returns the first preemption that happens twice at one time, if there is one.
func undone(t rapid.TB, text string) string {
	seen := map[string]bool{}
	for line := range strings.Lines(play(t, text)) {
		if isPreemption := strings.Contains(line, " Preempted InClusterQueue for "); isPreemption && seen[line] {
			return line
		}
		seen[line] = true
	}
	return ""
}

// TestVictimDoesNotBlockItsPreemptor: past usage puts old before new, which preempts it. What is reserved for new does not let old begin, but old does not hold
// up new either, under StrictFIFO: it would be admitted, and preempted again. It is no scenario, because a manager that dies between the eviction
// and the end of the pods does not know what is reserved.
func TestVictimDoesNotBlockItsPreemptor(t *testing.T) {
	const text = `# Old begins again after new.
config admission-fair-sharing.usage-half-life-time=1h admission-fair-sharing.usage-sampling-interval=1m
queue x gpu=5 strategy=StrictFIFO scope=UsageBasedAdmissionFairSharing within=LowerOrNewerEqualPriority
localqueue y queue=x weight=3
submit old queue=y stages=p(gpu=1)=Ready=>q(gpu=2) run=19m ready-after=1s at=0m
submit first queue=x pods=gpu:1 priority=1 run=40m at=1m
submit second queue=x pods=gpu:1 run=8m at=1m
submit new queue=x priority=1 stages=p(gpu=1)=Ready=>q(gpu=2) run=3m ready-after=1s at=2m
run until=2h
`
	if line := undone(t, text); line != "" {
		t.Errorf("again: %s\n%s", line, play(t, text))
	}
	if !strings.Contains(play(t, text), "2m admit new/p\n") {
		t.Errorf("new does not begin when its victim has left:\n%s", play(t, text))
	}
}

// randomUsage draws jobs of two LocalQueues of a ClusterQueue, which past usage orders or not.
func randomUsage(t *rapid.T) []string {
	lines := []string{"# Whatever may be preempted.\n", rapid.SampledFrom([]string{
		"", "config admission-fair-sharing.usage-half-life-time=1h admission-fair-sharing.usage-sampling-interval=1m\n",
		"config fair-sharing=true admission-fair-sharing.usage-half-life-time=10m admission-fair-sharing.usage-sampling-interval=10m\n",
	}).Draw(t, "config"), "admissioncheck c\n"}
	lines = append(lines, fmt.Sprintf("queue x gpu=%d strategy=%s scope=UsageBasedAdmissionFairSharing within=%s%s\nlocalqueue y queue=x weight=%d\n",
		rapid.IntRange(2, 6).Draw(t, "quota"), rapid.SampledFrom([]string{"StrictFIFO", "BestEffortFIFO"}).Draw(t, "strategy"),
		rapid.SampledFrom([]string{"LowerPriority", "LowerOrNewerEqualPriority"}).Draw(t, "within"),
		rapid.SampledFrom([]string{"", "", " checks=c"}).Draw(t, "checks"), rapid.IntRange(1, 3).Draw(t, "weight")))
	jobs := rapid.IntRange(2, 8).Draw(t, "jobs")
	for i := range jobs {
		n := rapid.IntRange(1, 4).Draw(t, "pods")
		shape := rapid.SampledFrom([]string{"pods=%d*gpu:1", "stages=p(gpu=1)=Ready=>q(gpu=%d)", "stages=p(gpu=1)=Succeeded=>q(gpu=%d)"}).Draw(t, "shape")
		lines = append(lines, fmt.Sprintf("submit j%d queue=%s "+shape+" priority=%d run=%dm ready-after=1s stop-after=%dm at=%dm\n", i,
			rapid.SampledFrom([]string{"x", "y"}).Draw(t, "queue"), n, rapid.IntRange(0, 1).Draw(t, "priority"), rapid.IntRange(1, 40).Draw(t, "run"),
			rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "stop"), rapid.IntRange(0, 60).Draw(t, "at")))
	}
	for range rapid.IntRange(0, 6).Draw(t, "answers") {
		lines = append(lines, fmt.Sprintf("check j%d c=Ready at=%dm\n", rapid.IntRange(0, jobs-1).Draw(t, "answered"), rapid.IntRange(0, 90).Draw(t, "when")))
	}
	return append(lines, "run until=4h\n")
}
