package simulator

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// A exploration is the graph of all situations of a world. Situations are numbered in the order in which they are reached, by the fewest
// moves first.
type exploration struct {
	world *world
	seed  maphash.Seed
	known map[[2]uint64]int32
	// parents and texts are how each situation was reached first.
	parents []int32
	texts   []string
	depths  []int32
	// benign has the situations that may follow without an adverse event.
	benign [][]edge
	isEnd  []bool
	moves  int
	// last is the last situation in which the controllers were idle, and lastState describes its simulation.
	last      int32
	lastState string
	// problem is what is wrong, in the situation with the number at.
	problem string
	at      int32
}

// A edge leads to a situation.
type edge struct {
	to   int32
	text string
}

// explore visits all situations of a world, and stops at the first that breaks an invariant.
func explore(w *world) (*exploration, error) {
	e := &exploration{world: w, seed: maphash.MakeSeed(), known: map[[2]uint64]int32{}}
	first, err := w.begin()
	if err != nil {
		return nil, err
	}
	e.reach(first, -1, "")
	queue := []*situation{first}
	for n := int32(0); len(queue) > 0 && e.problem == ""; n++ {
		x := queue[0]
		queue[0], queue = nil, queue[1:]
		if x.Engine == nil {
			if err := x.revive(); err != nil {
				return nil, err
			}
		}
		next, err := e.expand(x, n)
		if err != nil {
			return nil, err
		}
		queue = append(queue, next...)
	}
	if e.problem == "" {
		e.findTrap()
	}
	return e, nil
}

// begin returns the first situation.
func (w *world) begin() (*situation, error) {
	script, err := scenario.Parse(w.story())
	if err != nil {
		return nil, err
	}
	x := &situation{
		simulation: newSimulation(), world: w, left: w.budget, idleAt: -1,
		jobSetWork: map[types.NamespacedName]bool{}, stageWork: map[types.NamespacedName]bool{}, refused: map[types.NamespacedName]string{}, gangs: newGangs(),
	}
	x.watchGangs()
	x.IsRecorded = true
	if w.budget[lags] > 0 {
		x.Previous = map[types.NamespacedName]map[cluster.ObjectName]cluster.Version{}
		x.gangs.previous = map[string]map[cluster.ObjectName]gangVersion{}
	}
	x.count()
	if err := x.start(script, nil); err != nil {
		return nil, err
	}
	for i := range script.Lines {
		if err := x.schedule(&script.Lines[i]); err != nil {
			return nil, err
		}
	}
	for f := x.Events.Due(0); f != nil; f = x.Events.Due(0) {
		f()
	}
	if _, isPlanned := x.Events.Next(); isPlanned {
		return nil, errors.New("the lines of a world have no times")
	}
	return x, nil
}

// expand makes every move of a situation, and returns the new situations.
func (e *exploration) expand(x *situation, n int32) ([]*situation, error) {
	type result struct {
		move
		*situation
	}
	var all []result
	for _, m := range x.moves() {
		child := x.copied()
		if err := child.revive(); err != nil {
			return nil, err
		}
		if m.kind != none {
			child.left[m.kind]--
		}
		child.make(m)
		if m.isStep && m.kind == none && child.hasSame(x) {
			// The controller has nothing to do. If another event gives it something to do, it is told again.
			all = []result{{m, child}}
			break
		}
		all = append(all, result{m, child})
	}
	var reached []*situation
	for _, r := range all {
		e.moves++
		number, isNew := e.reach(r.situation, n, r.text)
		if r.kind == none && number != n {
			e.benign[n] = append(e.benign[n], edge{number, r.text})
		}
		if e.check(r.situation, number, isNew); e.problem != "" {
			return nil, nil
		}
		if isNew {
			r.Engine = nil
			reached = append(reached, r.situation)
		}
	}
	return reached, nil
}

// hasSame reports whether two situations have the same objects and the same engine.
func (x *situation) hasSame(other *situation) bool {
	isUnasked := len(x.Calls) == len(other.Calls) || x.idleAt == len(x.Calls)
	return isUnasked && x.Sequence == other.Sequence && x.Now == other.Now && len(x.Violations) == 0 && x.countPrevious() == other.countPrevious()
}

// countPrevious returns how many objects have a previous version that a reconcile can still read.
func (x *situation) countPrevious() (count int) {
	if x.left[lags] > 0 {
		for _, objects := range x.Previous {
			count += len(objects)
		}
		for _, objects := range x.gangs.previous {
			count += len(objects)
		}
	}
	return count
}

// make makes a move. A panic is what the build tag invariants causes.
func (x *situation) make(m move) {
	defer func() {
		if r := recover(); r != nil {
			x.ReportViolation("panic: %v", r)
		}
	}()
	m.do(x)
	if x.Problem != nil {
		x.ReportViolation("%v", x.Problem)
	}
}

// reach returns the number of a situation.
func (e *exploration) reach(x *situation, from int32, text string) (number int32, isNew bool) {
	state := x.state()
	key := [2]uint64{maphash.String(e.seed, state), maphash.String(e.seed, "again "+state)}
	if number, ok := e.known[key]; ok {
		return number, false
	}
	number = int32(len(e.parents))
	e.known[key] = number
	if x.isIdle() {
		e.last, e.lastState = number, x.simulation.state()
	}
	depth := int32(0)
	if from >= 0 {
		depth = e.depths[from] + 1
	}
	e.parents, e.texts, e.depths = append(e.parents, from), append(e.texts, text), append(e.depths, depth)
	e.benign, e.isEnd = append(e.benign, nil), append(e.isEnd, x.hasEnded())
	return number, true
}

// check checks the invariants of a situation, and of the move that led to it.
func (e *exploration) check(x *situation, number int32, isNew bool) { //nolint:revive // what a state has is checked once
	if isNew && x.isIdle() {
		x.Audit()
	}
	wrong := x.Violations
	if isNew {
		wrong = slices.Concat(wrong, x.Engine.Violations(), x.unpaidPods(), x.unpaidJobs(), x.unpaidGangPods(), x.gaps())
	}
	if isNew && x.isIdle() {
		wrong = slices.Concat(wrong, x.earlyStages(), x.lateGangWrites())
	}
	if isNew && len(wrong) == 0 && x.isIdle() && !x.world.steps {
		wrong = x.changesOfRestart()
	}
	if len(wrong) > 0 {
		e.problem, e.at = strings.Join(wrong, ", "), number
	}
}

// isIdle reports whether all controllers have done their work.
func (x *situation) isIdle() bool {
	return x.events == 0 && len(x.jobSetWork) == 0 && len(x.stageWork) == 0 && len(x.JobSetQueue.Changed) == 0 && len(x.JobQueue) == 0 &&
		len(x.WorkloadQueue.Changed) == 0 && len(x.gangs.work) == 0 && len(x.decisions) == 0 && (!x.world.steps || x.idleAt == len(x.Calls))
}

// changesOfRestart returns what a manager changes that starts although there is nothing to do (I5).
func (x *situation) changesOfRestart() []string {
	before := x.state()
	probe := x.copied()
	probe.Restart()
	probe.react()
	after := probe.state()
	if after == before {
		return probe.Violations
	}
	return []string{fmt.Sprintf("I5: a restart changes the state: %s: %s", strings.Join(probe.Lines, ", "), scenario.Diff(before, after))}
}

// hasEnded reports whether every job has finished or is deleted, all quota is released, and nothing is left of deleted JobSets.
func (x *situation) hasEnded() bool {
	if x.submitted < len(x.world.later) || !x.isIdle() || !x.gangsHaveEnded() || !x.plainJobsHaveEnded() {
		return false
	}
	for _, j := range x.UserJobs {
		if js := x.JobSets[j.Key()]; js != nil && js.Status.TerminalState == "" {
			return false
		}
	}
	for _, w := range x.Workloads {
		if w.Labels[apis.JobSetLabel] == "" {
			continue
		}
		if !cluster.IsFinished(w) || len(w.Finalizers) > 0 || x.OwnerOf(w).IsDeleted {
			return false
		}
	}
	for uid, job := range x.Jobs {
		p := x.Pods[uid]
		if x.OwnerOfJob(job).IsDeleted || p != nil && p.Count(cluster.IsRunning)+p.Terminating > 0 {
			return false
		}
	}
	return true
}

// plainJobsHaveEnded does the same for the jobs that are no JobSets.
func (x *situation) plainJobsHaveEnded() bool {
	for key, j := range x.PlainJobs {
		w := x.Workloads[key]
		if j.IsDeleted && w != nil || !j.IsDeleted && (!j.Plain.HasEnded || !cluster.IsFinished(w)) {
			return false
		}
	}
	return true
}

// findTrap searches for a situation from which the run cannot end, or may go on forever, without adverse events (I3).
func (e *exploration) findTrap() {
	canEnd := e.backwards()
	for n := range canEnd {
		if !canEnd[n] {
			e.problem, e.at = "I3: from here the run cannot end", int32(n)
			return
		}
	}
	if n := e.cycle(); n >= 0 {
		e.problem, e.at = "I3: from here the run may come back to this state without an end:\n"+e.way(n), n
	}
}

// backwards returns from which situations an end can be reached.
func (e *exploration) backwards() []bool {
	before := make([][]int32, len(e.benign))
	canEnd := make([]bool, len(e.benign))
	var queue []int32
	for n, all := range e.benign {
		for _, next := range all {
			before[next.to] = append(before[next.to], int32(n))
		}
		if e.isEnd[n] {
			canEnd[n] = true
			queue = append(queue, int32(n))
		}
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, b := range before[n] {
			if !canEnd[b] {
				canEnd[b] = true
				queue = append(queue, b)
			}
		}
	}
	return canEnd
}

// cycle returns a situation that can follow itself without adverse events, or -1. It removes situations that nothing precedes, and then those of which
// none follows that is left.
func (e *exploration) cycle() int32 {
	after := make([][]int32, len(e.benign))
	before := make([][]int32, len(e.benign))
	for n, all := range e.benign {
		for _, next := range all {
			after[n] = append(after[n], next.to)
			before[next.to] = append(before[next.to], int32(n))
		}
	}
	left := peeled(peeled(nil, before, after), after, before)
	for n := range left {
		if left[n] && e.way(int32(n)) != "" {
			return int32(n)
		}
	}
	return -1
}

// peeled removes nodes of a graph again and again that no node precedes which is left, and returns which nodes are left. It begins with some nodes, or
// with all if there are none.
func peeled(left []bool, before, after [][]int32) []bool {
	if left == nil {
		left = slices.Repeat([]bool{true}, len(before))
	}
	preceding := make([]int, len(before))
	var queue []int32
	for n := range before {
		for _, b := range before[n] {
			if left[b] {
				preceding[n]++
			}
		}
		if left[n] && preceding[n] == 0 {
			queue = append(queue, int32(n))
		}
	}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		left[n] = false
		for _, next := range after[n] {
			if preceding[next]--; preceding[next] == 0 && left[next] {
				queue = append(queue, next)
			}
		}
	}
	return left
}

// way returns the shortest run from a situation back to it.
func (e *exploration) way(at int32) string {
	texts := map[int32]string{}
	queue := []int32{at}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		for _, next := range e.benign[n] {
			if next.to == at {
				return texts[n] + next.text
			}
			if _, isKnown := texts[next.to]; !isKnown {
				texts[next.to] = texts[n] + next.text
				queue = append(queue, next.to)
			}
		}
	}
	return ""
}

// counterexample returns the shortest run to the problem as a scenario.
func (e *exploration) counterexample() string {
	return fmt.Sprintf("# %s\n%s%s", strings.ReplaceAll(e.problem, "\n", "\n# "), e.world.lines(), e.script(e.at))
}

// story returns the scenario of a world, with the comment that each begins with.
func (w *world) story() string { return "# " + w.name + "\n" + w.lines() }

// lines returns the lines before the first move.
func (w *world) lines() string {
	text := "config reservation.after=" + cmp.Or(w.reserveAfter, apis.Never) + "\n" + w.text
	for _, line := range w.stream {
		text += line + "\n"
	}
	return text
}

// script returns the lines that lead to a situation.
func (e *exploration) script(at int32) string {
	var texts []string
	for n := at; n >= 0; n = e.parents[n] {
		texts = append(texts, e.texts[n])
	}
	slices.Reverse(texts)
	return strings.Join(texts, "")
}
