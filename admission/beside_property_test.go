package admission_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// safetyCheck is the name of the AdmissionCheck of these tests.
const safetyCheck = "stages"

// A besideKueue is a world in which Kueue's manager admits: any quota Workload without a gate that fits, at any time, among them many that belong to
// no JobSet. Stages open when the Engine says so, and it judges reservations if the ClusterQueues have the AdmissionCheck.
type besideKueue struct {
	*world
	r *rapid.T
	// left is how many JobSets, and troubles how many disturbances, are still to come.
	left, troubles int
	// waiting are the JobSets that must not be asked about again before the Engine wakes them, by name, with the stages.
	waiting map[string]map[int]string
	// evicting are the JobSets whose pods are about to terminate, and deactivated those with a quota Workload that is not active.
	evicting, deactivated map[string]bool
	// uncut are the ClusterQueues whose quota was cut, as they were. It is not restored if cuts are permanent.
	uncut        map[string]*kueue.ClusterQueue
	arePermanent bool
	// revoked are the quota Workloads that the Engine has named and that it has not been asked about since, and revocations counts those written.
	revoked     map[string]bool
	revocations int
	// unwritten are the reservations that were found to be safe, and whose AdmissionChecks are still Pending.
	unwritten map[string]bool
	// retries counts the reservations that were rejected, and disturbed the disturbances of each kind.
	retries   int
	disturbed map[string]int
}

func newBesideKueue(t tester) *besideKueue {
	b := &besideKueue{
		waiting: map[string]map[int]string{}, evicting: map[string]bool{}, deactivated: map[string]bool{}, unwritten: map[string]bool{},
		uncut: map[string]*kueue.ClusterQueue{}, disturbed: map[string]int{}, revoked: map[string]bool{},
	}
	b.world = newWorld(t, admission.Config{Leader: admission.LedByKueue})
	b.mayOpen = b.ask
	b.observeCheck()
	return b
}

func (b *besideKueue) observeCheck() {
	b.engine.Apply(admission.CheckObserved{AdmissionCheck: &kueue.AdmissionCheck{
		ObjectMeta: metav1.ObjectMeta{Name: safetyCheck, UID: "check"},
		Spec:       kueue.AdmissionCheckSpec{ControllerName: apis.StageSafetyController},
		Status:     kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}},
	}})
}

func judged(q *kueue.ClusterQueue) {
	q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: safetyCheck}}}
}

func (b *besideKueue) isJudged(queue string) bool {
	return b.queues[queue].Spec.AdmissionChecksStrategy != nil
}

// ask asks whether a stage may open, unless it has been refused and nothing has changed since.
func (b *besideKueue) ask(js *fakeJobSet, stage int) bool {
	if _, waits := b.waiting[js.name][stage]; waits || b.evicting[js.name] || b.deactivated[js.name] {
		return false
	}
	answer := b.engine.MayOpen(admission.OpenRequest{JobSet: js.uid, Stage: stage, LocalQueue: b.localQueueOf(js.workload(stage))})
	if strings.Contains(answer.Message, "has no AdmissionCheck") {
		return true // a test that shows what the AdmissionCheck is for
	}
	if !answer.IsSafe {
		b.keep(js, stage, answer.Message)
	}
	return answer.IsSafe
}

func (b *besideKueue) keep(js *fakeJobSet, stage int, why string) {
	if b.waiting[js.name] == nil {
		b.waiting[js.name] = map[int]string{}
	}
	b.waiting[js.name][stage] = why
}

func (b *besideKueue) localQueueOf(workload string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: string(b.workloads[keyOf(workload)].Spec.QueueName)}
}

// wake asks again about the stages of JobSets that the Engine has woken.
func (b *besideKueue) wake() {
	for owners := b.engine.Woken(); len(owners) > 0; owners = b.engine.Woken() {
		for _, owner := range owners {
			delete(b.waiting, owner.Key.Name)
			b.open(b.jobSets[owner.Key.Name])
		}
	}
}

// fits reports whether Kueue has quota for an amount of GPUs of a flavor: the queues of a cohort lend each other everything.
func (b *besideKueue) fits(queue, flavor string, gpus int64) bool {
	isShared := func(other string) bool {
		cohort := b.queues[queue].Spec.CohortName
		return other == queue || cohort != "" && b.queues[other].Spec.CohortName == cohort
	}
	free := -gpus
	for name, q := range b.queues {
		for _, f := range q.Spec.ResourceGroups[0].Flavors {
			if isShared(name) && string(f.Name) == flavor {
				free += f.Resources[0].NominalQuota.Value()
			}
		}
	}
	for h, held := range b.held() {
		if h.flavor == flavor && isShared(h.queue) {
			free -= held
		}
	}
	return free >= 0
}

type holding struct{ queue, flavor string }

// held returns the GPUs that quota Workloads hold, without reclaimable pods.
func (b *besideKueue) held() map[holding]int64 {
	held := map[holding]int64{}
	for _, wl := range b.workloads {
		for _, c := range ledger.ChargesOf(wl) {
			held[holding{c.ClusterQueue, string(c.Flavor)}] += c.Milli() / 1000
		}
	}
	return held
}

// reserves returns what Kueue may do with a quota Workload that waits.
func (b *besideKueue) reserves(wl *kueue.Workload) []func() {
	if wl.Annotations[apis.AdmissionGatedByAnnotation] != "" || wl.Status.Admission != nil || isFinished(wl) {
		return nil
	}
	var moves []func()
	queue := string(wl.Spec.QueueName)
	for _, f := range b.queues[queue].Spec.ResourceGroups[0].Flavors {
		a := &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(queue)}
		var sum int64
		for i := range wl.Spec.PodSets {
			amount := wl.Spec.PodSets[i].Template.Spec.Containers[0].Resources.Requests[gpu]
			sum += amount.Value()
			a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
				Name: wl.Spec.PodSets[i].Name, Count: new(int32(1)), ResourceUsage: corev1.ResourceList{gpu: *resource.NewQuantity(amount.Value(), resource.DecimalSI)},
				Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu: f.Name},
			})
		}
		if b.fits(queue, string(f.Name), sum) {
			moves = append(moves, func() { b.reserve(wl.Name, a) })
		}
	}
	return moves
}

func (b *besideKueue) reserve(name string, a *kueue.Admission) {
	b.change(name, func(wl *kueue.Workload) {
		reserve(wl, a)
		if b.isJudged(string(a.ClusterQueue)) {
			setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse)
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: safetyCheck, State: kueue.CheckStatePending}}
		}
		b.date(wl)
	})
}

func isPending(wl *kueue.Workload) bool {
	return wl.Status.Admission != nil && !isLeaving(wl) && len(wl.Status.AdmissionChecks) > 0 && wl.Status.AdmissionChecks[0].State == kueue.CheckStatePending
}

// judge writes the answer of the Engine, or fails to.
func (b *besideKueue) judge(name string) {
	wl := b.workloads[keyOf(name)]
	answer, ok := b.engine.Judge(keyOf(name), wl.UID)
	if !ok {
		b.t.Fatalf("%s is not judged", name)
	}
	if b.r != nil && b.troubles > 0 && rapid.IntRange(0, 7).Draw(b.r, "write fails") == 0 {
		b.troubles--
		b.engine.Retract(keyOf(name), wl.UID)
		return
	}
	if answer.IsSafe {
		b.unwritten[name] = true
		return
	}
	b.retries++
	b.change(name, func(wl *kueue.Workload) {
		setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
		b.date(wl)
	})
}

// writeReady lets Kueue admit a stage whose reservation is safe.
func (b *besideKueue) writeReady(name string) {
	delete(b.unwritten, name)
	b.change(name, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	})
}

// endRetry clears the reservation of a stage that was rejected, and sets its gate again.
func (b *besideKueue) endRetry(name string) {
	b.leave(name)
	b.change(name, func(wl *kueue.Workload) {
		wl.Status.AdmissionChecks = nil
		if len(wl.OwnerReferences) > 0 {
			wl.Annotations[apis.AdmissionGatedByAnnotation] = apis.StageGate
		}
	})
	if owner := b.workloads[keyOf(name)].OwnerReferences; len(owner) > 0 {
		b.open(b.jobSets[owner[0].Name])
	}
}

// revoke asks about a reservation that the Engine has revoked, and writes the answer, or fails to and is asked again.
func (b *besideKueue) revoke(name string) {
	wl := b.workloads[keyOf(name)]
	if wl == nil || b.engine.Revocation(keyOf(name), wl.UID) == "" {
		delete(b.revoked, name)
		return
	}
	if b.troubles > 0 && rapid.IntRange(0, 7).Draw(b.r, "write fails") == 0 {
		b.troubles--
		return
	}
	delete(b.revoked, name)
	b.revocations++
	b.change(name, func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry })
}

func isRetried(wl *kueue.Workload) bool {
	return wl.Status.Admission != nil && !isLeaving(wl) && !isFinished(wl) && len(wl.Status.AdmissionChecks) > 0 &&
		wl.Status.AdmissionChecks[0].State == kueue.CheckStateRetry
}

func isRunning(wl *kueue.Workload) bool {
	return wl.Status.Admission != nil && wl.Annotations[apis.AdmissionGatedByAnnotation] == "" && !isLeaving(wl) && !isPending(wl) && !isFinished(wl)
}

// progress returns what the Jobs of a JobSet may do: a Job succeeds only when all that were opened because it is ready
// are ready themselves.
func (b *besideKueue) progress(js *fakeJobSet) []func() {
	var moves []func()
	isHeld := func(name string) bool {
		for i := range js.plan.Stages {
			stage := &js.plan.Stages[i]
			for _, c := range stage.After {
				if c.Status == stageplan.Ready && js.isOpen(i) && slices.Contains(c.Targets, name) &&
					slices.ContainsFunc(stage.ReplicatedJobs, func(job string) bool { return js.states[job] == "" }) {
					return true
				}
			}
		}
		return false
	}
	for i := range js.plan.Stages {
		if !isRunning(b.workloads[keyOf(js.workload(i))]) {
			continue
		}
		for _, name := range js.plan.Stages[i].ReplicatedJobs {
			switch state := js.states[name]; {
			case state == "":
				moves = append(moves, func() { b.reach(js.name, name, stageplan.Ready) })
			case state == stageplan.Ready && !isHeld(name):
				moves = append(moves, func() { b.reach(js.name, name, stageplan.Succeeded) })
			}
		}
	}
	return moves
}

// evictJobSet lets Kueue evict a JobSet, whose stages leave together.
func (b *besideKueue) evictJobSet(js *fakeJobSet) {
	for i := range js.plan.Stages {
		if wl := b.workloads[keyOf(js.workload(i))]; wl.Status.Admission != nil && !isFinished(wl) && !isLeaving(wl) {
			b.change(wl.Name, func(wl *kueue.Workload) {
				setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue)
				for k := range wl.Status.AdmissionChecks {
					wl.Status.AdmissionChecks[k].State = kueue.CheckStatePending
				}
				b.date(wl)
			})
			b.evicting[js.name] = true
		}
	}
}

// stop terminates the pods of an evicted JobSet, which returns to its last stage boundary.
func (b *besideKueue) stop(js *fakeJobSet) {
	delete(b.evicting, js.name)
	for i := range js.plan.Stages {
		wl := b.workloads[keyOf(js.workload(i))]
		if isFinished(wl) {
			continue
		}
		for _, name := range js.plan.Stages[i].ReplicatedJobs {
			delete(js.states, name)
		}
		if wl.Status.Admission != nil {
			b.leave(wl.Name)
			delete(b.unwritten, wl.Name)
		}
		b.change(wl.Name, func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks, wl.Status.ReclaimablePods = nil, nil
			wl.Annotations[apis.AdmissionGatedByAnnotation] = apis.StageGate
		})
	}
	delete(b.waiting, js.name)
	b.open(js)
}

func (b *besideKueue) moves() []func() {
	var moves []func()
	if b.left > 0 {
		moves = append(moves, b.arrive)
	}
	for _, key := range slices.SortedFunc(maps.Keys(b.workloads), compareNames) {
		wl := b.workloads[key]
		moves = append(moves, b.reserves(wl)...)
		if wl.Annotations[apis.AdmissionGatedByAnnotation] != "" && wl.Status.Admission != nil && !isLeaving(wl) {
			moves = append(moves, func() { b.giveBack(key.Name) })
		}
		switch isLone := len(wl.OwnerReferences) == 0; {
		case isPending(wl) && b.unwritten[key.Name]:
			moves = append(moves, func() { b.writeReady(key.Name) })
		case isPending(wl):
			moves = append(moves, func() { b.judge(key.Name) })
		case isRetried(wl):
			moves = append(moves, func() { b.evictJobSet(b.jobSets[wl.OwnerReferences[0].Name]) })
		case isLeaving(wl) && (isLone || !b.evicting[wl.OwnerReferences[0].Name]):
			moves = append(moves, func() { b.endRetry(key.Name) })
		case isLone && isRunning(wl):
			moves = append(moves, func() { b.change(key.Name, finish) })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.jobSets)) {
		js := b.jobSets[name]
		if b.evicting[name] {
			moves = append(moves, func() { b.stop(js) })
			continue
		}
		moves = append(moves, b.progress(js)...)
		if b.deactivated[name] {
			moves = append(moves, func() { b.reactivate(js) })
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.revoked)) {
		moves = append(moves, func() { b.revoke(name) })
	}
	for _, name := range slices.Sorted(maps.Keys(b.uncut)) {
		if !b.arePermanent {
			moves = append(moves, func() { b.restoreQuota(name) })
		}
	}
	if b.troubles > 0 && len(moves) > 0 && rapid.IntRange(0, 5).Draw(b.r, "trouble") == 0 {
		return []func(){b.disturb}
	}
	return moves
}

// restart kills the manager: all stages are asked about again.
func (b *besideKueue) restart() {
	b.world.restart()
	b.observeCheck()
	clear(b.waiting)
	clear(b.unwritten)
	clear(b.revoked)
	b.checkNothingIsDecided()
	for _, name := range slices.Sorted(maps.Keys(b.jobSets)) {
		b.open(b.jobSets[name])
	}
}

func (b *besideKueue) arrive() {
	b.left--
	name := fmt.Sprintf("js%d", b.left)
	queue := rapid.SampledFrom(slices.Sorted(maps.Keys(b.queues))).Draw(b.r, "queue")
	if rapid.IntRange(0, 4).Draw(b.r, "lone") == 0 {
		b.lone(queue, name, fmt.Sprintf("gpu=%d", rapid.IntRange(1, 6).Draw(b.r, "gpu")))
		return
	}
	amounts := []int{0, 1, 2, 3, 3, 4, 4, 5}
	if b.arePermanent {
		amounts = amounts[1:] // Kueue admits no request of 0 while more is held than there is
	}
	jobs := make([]job, rapid.IntRange(2, 4).Draw(b.r, "jobs"))
	for i := range jobs {
		jobs[i] = job{name: fmt.Sprintf("j%d", i), requests: fmt.Sprintf("gpu=%d", rapid.SampledFrom(amounts).Draw(b.r, "gpu"))}
		for k := range i {
			if rapid.IntRange(0, 2).Draw(b.r, "waits") > 0 {
				jobs[i].after = append(jobs[i].after, fmt.Sprintf("j%d %s", k, rapid.SampledFrom([]string{"Ready", "Ready", "Ready", "Complete"}).Draw(b.r, "for")))
			}
		}
	}
	b.submit(queue, name, jobs...)
}

// checkNothingIsDecided checks that the Engine decides nothing, and charges what the objects hold.
func (b *besideKueue) checkNothingIsDecided() {
	if decisions := b.engine.Decide(b.now()); len(decisions) > 0 {
		b.t.Fatalf("decided %v", decisions)
	}
	for _, key := range b.engine.Revoked() {
		b.revoked[key.Name] = true
	}
	held := b.held()
	for queue := range b.queues {
		view, _ := b.engine.ClusterQueue(queue)
		for _, f := range view.FlavorsHeld {
			if got, want := f.Resources[0].Total.Value(), held[holding{queue, string(f.Name)}]; got != want {
				b.t.Fatalf("%d of flavor %s are charged in %s, want %d", got, f.Name, queue, want)
			}
		}
	}
}

// run continues until nothing can happen, and returns the JobSets that have not finished although they can.
func (b *besideKueue) run() (stuck []string) {
	for range 2000 {
		b.clock++
		b.checkNothingIsDecided()
		b.wake()
		moves := b.moves()
		if len(moves) == 0 {
			return b.unfinished()
		}
		moves[rapid.IntRange(0, len(moves)-1).Draw(b.r, "move")]()
	}
	return []string{"still moving after 2000 steps"}
}

func (b *besideKueue) unfinished() (stuck []string) {
	for _, name := range slices.Sorted(maps.Keys(b.jobSets)) {
		js := b.jobSets[name]
		for i := range js.plan.Stages {
			wl, why := b.workloads[keyOf(js.workload(i))], b.waiting[name][i]
			if !isFinished(wl) && !strings.Contains(strings.Join(slices.Collect(maps.Values(b.waiting[name])), " "), "could never") && b.isPossible(js) {
				stuck = append(stuck, fmt.Sprintf("%s of %s: gate %q, %v, reserved: %t: %s", wl.Name, js.plan, wl.Annotations[apis.AdmissionGatedByAnnotation], js.states, wl.Status.Admission != nil, why))
			}
		}
	}
	return stuck
}

// isPossible reports whether each stage of a JobSet fits its queue alone.
func (b *besideKueue) isPossible(js *fakeJobSet) bool {
	for i := range js.plan.Stages {
		amount := js.plan.Stages[i].Requests()[gpu]
		wl := b.workloads[keyOf(js.workload(i))]
		most := int64(0)
		for name, q := range b.queues {
			if name == string(wl.Spec.QueueName) || q.Spec.CohortName != "" && q.Spec.CohortName == b.queues[string(wl.Spec.QueueName)].Spec.CohortName {
				most += q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.Value()
			}
		}
		if amount.Value() > most {
			return false
		}
	}
	return true
}

// drawBeside draws a history beside Kueue, and runs it.
func drawBeside(t *rapid.T, change ...func(*kueue.ClusterQueue)) (b *besideKueue, stuck []string) {
	b = newBesideKueue(t)
	return b, b.draw(t, change...)
}

func (b *besideKueue) draw(t *rapid.T, change ...func(*kueue.ClusterQueue)) (stuck []string) {
	b.r = t
	b.left, b.troubles = rapid.IntRange(3, 7).Draw(t, "jobsets"), rapid.IntRange(0, 4).Draw(t, "troubles")
	cohort := kueue.CohortReference(rapid.SampledFrom([]string{"", "c"}).Draw(t, "cohort"))
	for _, name := range []string{"q", "p"}[:rapid.IntRange(1, 2).Draw(t, "queues")] {
		b.queue(name, fmt.Sprintf("a: gpu=%d", rapid.IntRange(5, 9).Draw(t, "quota")), func(q *kueue.ClusterQueue) {
			q.Spec.CohortName = cohort
			for _, f := range change {
				f(q)
			}
		})
	}
	return b.run()
}

// TestBesideKueueNoDeadlock lets Kueue admit whatever fits at any time: with the AdmissionCheck each JobSet finishes, and nothing is decided here.
func TestBesideKueueNoDeadlock(t *testing.T) {
	retries, histories, disturbed := 0, 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		b, stuck := drawBeside(t, judged)
		if len(stuck) > 0 {
			t.Fatalf("a deadlock: %s", strings.Join(stuck, "\n"))
		}
		retries += b.retries
		histories++
		for what, count := range b.disturbed {
			disturbed[what] += count
		}
	})
	t.Logf("%d reservations were rejected in %d histories, and disturbances: %v", retries, histories, disturbed)
	if histories >= 100 && len(disturbed) < 5 {
		t.Error("not each kind of disturbance occurs")
	}
	if retries == 0 {
		t.Error("no reservation was rejected: the histories are too tame")
	}
}

// TestBesideKueuePermanentCut cuts quota below what JobSets need that hold some, and never restores it: each JobSet that still fits finishes, because
// others have to release their quota.
func TestBesideKueuePermanentCut(t *testing.T) {
	histories, cuts, revocations := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 8 { // few cuts revoke a reservation
			b := newBesideKueue(t)
			b.arePermanent = true
			if stuck := b.draw(t, judged); len(stuck) > 0 {
				t.Fatalf("a deadlock: %s", strings.Join(stuck, "\n"))
			}
			histories, cuts, revocations = histories+1, cuts+b.disturbed["quota is cut"], revocations+b.revocations
		}
	})
	t.Logf("%d reservations were revoked after %d cuts in %d histories", revocations, cuts, histories)
	if histories >= 100 && revocations == 0 {
		t.Error("no reservation was revoked: the histories are too tame")
	}
}

// TestBesideKueueDeadlocksWithoutCheck shows that the histories of TestBesideKueueNoDeadlock are dangerous.
func TestBesideKueueDeadlocksWithoutCheck(t *testing.T) {
	deadlocks := 0
	rapid.Check(t, func(t *rapid.T) {
		if _, stuck := drawBeside(t); len(stuck) > 0 {
			deadlocks++
		}
	})
	t.Logf("%d histories deadlock", deadlocks)
	if deadlocks == 0 {
		t.Error("no history deadlocks: the AdmissionCheck has nothing to prevent")
	}
}
