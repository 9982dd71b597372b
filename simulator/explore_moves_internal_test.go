package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/timeline"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// adversity is a kind of event that need not happen. A world limits how many of each do.
type adversity int

const (
	none adversity = iota
	// crashes of the manager, and writes of decisions that fail.
	crashes
	// interventions of users, who suspend and delete JobSets.
	interventions
	// failures of pods.
	failures
	// cuts of quota.
	cuts
	// retries are answers Retry of an AdmissionCheck. After Rejected a user has to act before the JobSet can end.
	retries
	// lags are reconciles of the manager with a cache that has not received the last event of one object.
	lags
	// faults are writes of Steps that fail: with a conflict, or because the connection is lost after the API server has applied the write.
	faults
	adversities
)

// A small world to explore.
type world struct {
	name string
	// text is the scenario before the first move. The moves of later are lines that happen in their order.
	text  string
	later []string
	// reserveAfter is how long a stage waits before quota is reserved for it, or empty for Never.
	reserveAfter string
	// stream are lines that submit jobs which are no JobSets. Each is deleted some time after it has started, and submitted again, until the JobSet large has
	// started. So a run has no end if they can overtake that without end (I7). A scenario names each job once, so that a counter-example with a second
	// submission only comes near.
	stream []string
	large  string
	// cut and restore are lines that change a queue.
	cut, restore string
	// gangs are gangs of pods, whose pods do not exist at first.
	gangs []gang
	// servers are ReplicatedJobs whose pods run until their JobSet ends.
	servers []string
	// budget is how many events of each kind may happen in one run.
	budget [adversities]int8
	// steps is true if the controllers and the engine take turns in every order. Otherwise they do all their work before the next event, or
	// before two of them.
	steps bool
}

// A situation is a simulation, and what only the exploration knows.
type situation struct {
	*simulation
	world *world
	left  [adversities]int8
	// submitted counts the lines of world.later that have happened.
	submitted int
	isCut     bool
	// events counts those that happened since the controllers were idle. They are due if there are any.
	events int
	// jobSetWork and stageWork are the JobSets that the JobSet controller and the stage controller have to reconcile, in a world of steps. jobSetWork
	// also has the jobs of other kinds that their controller has to reconcile.
	jobSetWork, stageWork map[types.NamespacedName]bool
	// decisions are computed and not written.
	decisions []admission.Decision
	// idleAt is the number of calls of the engine after which it had nothing to decide.
	idleAt int
	// refused has the last refusals of pending stages since the engine was created. It does not repeat them.
	refused map[admission.StageKey]string
	gangs   gangs
}

// A move changes a situation.
type move struct {
	// text has lines of a scenario.
	text string
	kind adversity
	do   func(*situation)
	// isStep is true for the work of a controller or of the engine in a world of steps.
	isStep bool
}

func (x *situation) copied() *situation {
	c := *x
	c.simulation = x.simulation.copied()
	c.jobSetWork, c.stageWork, c.decisions = maps.Clone(x.jobSetWork), maps.Clone(x.stageWork), slices.Clone(x.decisions)
	c.refused, c.gangs = maps.Clone(x.refused), x.gangs.copied()
	c.watchGangs()
	return &c
}

// state describes everything that may influence what follows.
func (x *situation) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d %t %d", x.left, x.submitted, x.isCut, x.events)
	if x.world.steps {
		keys := func(all map[types.NamespacedName]bool) []types.NamespacedName {
			return slices.SortedFunc(maps.Keys(all), cluster.CompareKeys)
		}
		fmt.Fprintf(&b, " %v %v %t refused %v", keys(x.jobSetWork), keys(x.stageWork), x.idleAt == len(x.Calls), x.refused)
		for _, key := range slices.SortedFunc(maps.Keys(x.JobSets), cluster.CompareKeys) {
			messagesOf(&b, x.JobSets[key])
		}
		for _, d := range x.decisions {
			b.WriteString(" " + d.String())
		}
	}
	if x.left[lags] > 0 {
		x.stateOfCaches(&b)
	}
	x.stateOfGangs(&b)
	return b.String() + "\n" + x.simulation.state()
}

// moves returns what can happen next.
func (x *situation) moves() []move {
	var all []move
	switch {
	case x.world.steps:
		all = x.steps()
		if len(all) == 0 {
			all = x.timeMoves()
		}
	case x.events > 0:
		all = x.reactions()
	default:
		all = x.timeMoves()
	}
	if x.world.steps || x.events < maxEvents {
		all = append(all, x.happenings()...)
	}
	return slices.DeleteFunc(all, func(m move) bool { return m.kind != none && x.left[m.kind] == 0 })
}

// count counts an event to which the controllers have to react.
func (x *situation) count() {
	if !x.world.steps {
		x.events++
	}
}

// maxEvents is how many events happen before the controllers react.
const maxEvents = 2

// timeMoves returns the move in which time passes, if a controller waits for that.
func (x *situation) timeMoves() []move {
	at, ok := x.nextTime()
	if !ok {
		return nil
	}
	return []move{{text: fmt.Sprintf("run until=%s\n", timeline.Clock(at)), do: func(x *situation) {
		x.Now = at
		if !x.world.steps {
			x.react()
			return
		}
		for f := x.Events.Due(x.Now); f != nil; f = x.Events.Due(x.Now) {
			f()
		}
		x.divideWork()
	}}}
}

// react does all due work.
func (x *situation) react() {
	if err := x.instant(); err != nil {
		x.ReportViolation("%v", err)
	}
	x.events = 0
}

// reactions returns the moves in which the controllers react: undisturbed, with a manager that dies after some of its writes, or with the write
// of a decision that fails.
func (x *situation) reactions() []move {
	run := fmt.Sprintf("run until=%s\n", timeline.Clock(x.Now))
	all := []move{{text: run, do: (*situation).react}}
	if x.left[crashes] == 0 {
		return all
	}
	all = append(all, move{text: "crash\n", kind: crashes, do: func(x *situation) { x.Crash() }})
	probe := x.copied()
	if err := probe.revive(); err != nil {
		return all
	}
	probe.react()
	for n := range probe.Writes - x.Writes {
		all = append(all, move{text: fmt.Sprintf("crash writes=%d\n%s", n, run), kind: crashes, do: func(x *situation) {
			x.DiesAfter = x.Writes + n
			x.react()
			x.DiesAfter = -1
		}})
	}
	seen := map[string]bool{}
	for _, line := range probe.Lines {
		words := strings.Fields(line)
		name, part, isStage := strings.Cut(words[2], "/")
		if (words[1] != "admit" && words[1] != "evict") || !isStage || seen[words[2]] || slices.Contains(words, "with") {
			continue
		}
		seen[words[2]] = true
		target := scenario.Target{Name: name, Part: part}
		if stage, number, isGrowth := strings.Cut(part, "+"); isGrowth {
			target.Part = stage
			target.Growth, _ = strconv.Atoi(number)
		}
		all = append(all, move{text: fmt.Sprintf("fail-write %s\n%s", words[2], run), kind: crashes, do: func(x *situation) {
			x.Failing = append(x.Failing, target)
			x.react()
		}})
	}
	return all
}

// happenings returns what pods, users and administrators may do.
func (x *situation) happenings() []move {
	var all []move
	before := ""
	if x.world.steps {
		before = fmt.Sprintf("run until=%s\n", timeline.Clock(x.Now))
	}
	event := func(text string, kind adversity, do func(*situation)) {
		all = append(all, move{text: before + text + "\n", kind: kind, do: func(x *situation) {
			x.count()
			do(x)
		}})
	}
	if x.submitted < len(x.world.later) {
		line := x.world.later[x.submitted]
		event(line, none, func(x *situation) {
			x.submitted++
			x.play(line)
		})
	}
	if x.world.cut != "" && !x.isCut {
		event(x.world.cut, cuts, func(x *situation) { x.isCut = true; x.play(x.world.cut) })
	}
	if x.isCut {
		event(x.world.restore, none, func(x *situation) { x.isCut = false; x.play(x.world.restore) })
	}
	act := func(action scenario.Action, name, part string, kind adversity) {
		a := scenario.Act{Action: action, Target: scenario.Target{Name: name, Part: part}}
		event(string(action)+" "+a.Target.String(), kind, func(x *situation) { x.act(a) })
	}
	for _, key := range slices.SortedFunc(maps.Keys(x.UserJobs), cluster.CompareKeys) {
		name, js := key.Name, x.JobSets[key]
		if js == nil || js.Status.TerminalState != "" {
			continue
		}
		act(scenario.Delete, name, "", interventions)
		switch started := js.Annotations[apis.StartedAnnotation] != ""; {
		case started && *js.Spec.Suspend:
			act(scenario.Resume, name, "", none)
		case !*js.Spec.Suspend:
			act(scenario.Suspend, name, "", interventions)
		}
		for _, job := range x.JobsOf(js.UID) {
			x.podMoves(job, act)
		}
		x.checkMoves(name, js, event)
	}
	x.plainMoves(act)
	x.streamMoves(event)
	x.gangMoves(event)
	return all
}

// plainMoves adds what users and the pods of jobs that are no JobSets may do.
func (x *situation) plainMoves(act func(action scenario.Action, name, part string, kind adversity)) {
	for _, key := range slices.SortedFunc(maps.Keys(x.PlainJobs), cluster.CompareKeys) {
		j := x.PlainJobs[key]
		if j.IsDeleted || j.Plain.HasEnded {
			continue
		}
		if j.Plain.IsReleased && x.isStreamed(key.Name) {
			act(scenario.Delete, key.Name, "", none)
			continue
		}
		act(scenario.Delete, key.Name, "", interventions)
		if !j.Plain.IsReleased {
			continue
		}
		act(scenario.Evict, key.Name, "", interventions)
		if !j.Plain.All((*cluster.PodSet).AreReady) {
			act(scenario.Ready, key.Name, "", none)
		}
		act(scenario.Finish, key.Name, "", none)
		act(scenario.Fail, key.Name, "", failures)
	}
}

// streamMoves adds the submissions of the jobs of the stream that are deleted, until the large JobSet has started.
func (x *situation) streamMoves(event func(text string, kind adversity, do func(*situation))) {
	for _, line := range x.world.stream {
		name := strings.Fields(line)[1]
		key := types.NamespacedName{Namespace: "default", Name: name}
		if j := x.PlainJobs[key]; x.isStreamed(name) && j != nil && j.IsDeleted && x.Workloads[key] == nil {
			event(line, none, func(x *situation) { x.playAfter("# "+x.world.name+"\n"+x.world.text, line) })
		}
	}
}

// isStreamed reports whether a job belongs to the stream, which has not ended.
func (x *situation) isStreamed(name string) bool {
	if !slices.ContainsFunc(x.world.stream, func(line string) bool { return strings.Fields(line)[1] == name }) {
		return false
	}
	js := x.JobSets[types.NamespacedName{Namespace: "default", Name: x.world.large}]
	return js != nil && js.Annotations[apis.StartedAnnotation] == ""
}

// checkMoves adds the answers that a quota Workload of a JobSet may get to the AdmissionCheck that it waits for.
func (x *situation) checkMoves(name string, js *jobsetapi.JobSet, event func(text string, kind adversity, do func(*situation))) {
	for _, w := range x.WorkloadsOfJobSet(types.NamespacedName{Namespace: js.Namespace, Name: js.Name}) {
		for i := range w.Status.AdmissionChecks {
			check := &w.Status.AdmissionChecks[i]
			if check.State != kueue.CheckStatePending || !quotaworkload.HoldsQuota(w) || jobsetstate.GrowthNumber(w) > 0 {
				continue
			}
			answer := func(state kueue.CheckState, kind adversity) {
				c := scenario.Check{
					Target: scenario.Target{Name: name, Part: w.Labels[apis.StageLabel]},
					States: []scenario.CheckState{{Check: string(check.Name), State: state}},
				}
				event(fmt.Sprintf("check %s %s=%s", c.Target, check.Name, state), kind, func(x *situation) { x.check(c) })
			}
			answer(kueue.CheckStateReady, none)
			answer(kueue.CheckStateRetry, retries)
		}
	}
}

// podMoves returns what the pods of a Job may do.
func (x *situation) podMoves(job *batchv1.Job, act func(action scenario.Action, name, part string, kind adversity)) {
	p := x.Pods[job.UID]
	if p == nil || !childjob.IsRunning(job) || p.Count(cluster.IsRunning) == 0 || !job.DeletionTimestamp.IsZero() {
		return
	}
	name, part := job.Labels[jobset.JobSetNameKey], job.Labels[jobset.ReplicatedJobNameKey]
	if !p.AreReady() {
		act(scenario.Ready, name, part, none)
	}
	if !slices.Contains(x.world.servers, part) {
		act(scenario.Finish, name, part, none)
	}
	act(scenario.Fail, name, part, failures)
}

// play executes a line of a scenario now. The earlier lines are those of the world.
func (x *situation) play(line string) { x.playAfter(x.world.story(), line) }

// playAfter executes a line now that comes after others in a scenario.
func (x *situation) playAfter(story, line string) {
	script, err := scenario.Parse(story + line + "\n")
	if err == nil {
		last := script.Lines[len(script.Lines)-1]
		last.At = x.Now
		err = x.schedule(&last)
	}
	if err != nil {
		x.ReportViolation("%s: %v", line, err)
		return
	}
	for f := x.Events.Due(x.Now); f != nil; f = x.Events.Due(x.Now) {
		f()
	}
}

// jobName returns the name of a Job with its attempt.
func jobName(job *batchv1.Job) string { return job.Name + "/" + job.Labels[constants.RestartsKey] }
