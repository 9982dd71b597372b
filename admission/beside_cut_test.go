package admission_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
)

// twoLaunchers returns a world in which two JobSets hold 4 GPUs each and need 4 more, which is safe with 12. The first holds its quota for longer.
func twoLaunchers(t *testing.T) *besideKueue {
	t.Helper()
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=12", judged)
	for _, name := range []string{"first", "second"} {
		b.clock += 60
		b.submit("q", name, pair("gpu=4", "gpu=4")...)
		b.reserve(name+"-launcher", assigned("q", "launcher", "4"))
		b.judge(name + "-launcher")
		b.writeReady(name + "-launcher")
		b.reach(name, "launcher", stageplan.Ready)
	}
	b.checkNothingIsDecided()
	b.wantRevoked("")
	return b
}

// wantRevoked expects that the Engine revokes the reservation of the launcher of this JobSet, or none.
func (b *besideKueue) wantRevoked(jobSet string) {
	for _, name := range []string{"first", "second"} {
		key := keyOf(name + "-launcher")
		why := b.engine.Revocation(key, types.UID("wl-"+key.Name))
		if (why != "") != (name == jobSet) || why != "" && !b.revoked[key.Name] {
			b.t.Fatalf("the reservation of %s is revoked because of %q, and named: %v; want that of %q", name, why, b.revoked, jobSet)
		}
		if why != "" && !strings.Contains(why, "deadlock recovery: the JobSet cannot progress in ClusterQueue q") {
			b.t.Fatalf("it is revoked because of %q", why)
		}
	}
}

// TestBesideKueueCut cuts quota so that only one of two JobSets can finish: the one that has lost less releases its quota, and the other finishes.
func TestBesideKueueCut(t *testing.T) {
	b := twoLaunchers(t)
	b.queue("q", "a: gpu=8", judged)
	b.checkNothingIsDecided()
	b.wantRevoked("second")
	if why := b.engine.Revocation(keyOf("second-launcher"), "another"); why != "" {
		t.Errorf("the reservation of another UID is revoked: %s", why)
	}
	b.change("second-launcher", func(wl *kueue.Workload) { wl.Status.AdmissionChecks[0].State = kueue.CheckStateRetry })
	b.checkNothingIsDecided()
	b.wantRevoked("")
	b.evictJobSet(b.jobSets["second"])
	b.stop(b.jobSets["second"])
	b.checkNothingIsDecided()
	b.wantRevoked("")
	if why := b.waiting["second"][0]; !strings.Contains(why, "could deadlock") {
		t.Errorf("the second may open again, or waits because of %q", why)
	}
	b.reserve("first-workers", assigned("q", "workers", "4"))
	b.judge("first-workers")
	b.writeReady("first-workers")
	b.reach("first", "workers", stageplan.Succeeded)
	b.reach("first", "launcher", stageplan.Succeeded)
	b.checkNothingIsDecided()
	b.wake()
	b.reserve("second-launcher", assigned("q", "launcher", "4"))
	b.judge("second-launcher")
	b.wantRevoked("")
}

// TestBesideKueueCutRestored restores quota before the reservation is released: then it may stay.
func TestBesideKueueCutRestored(t *testing.T) {
	b := twoLaunchers(t)
	b.queue("q", "a: gpu=8", judged)
	b.checkNothingIsDecided()
	b.wantRevoked("second")
	b.queue("q", "a: gpu=12", judged)
	b.wantRevoked("")
	b.checkNothingIsDecided()
	b.wantRevoked("")
}

// TestBesideKueueCutRestart names the reservation again after the manager was killed.
func TestBesideKueueCutRestart(t *testing.T) {
	b := twoLaunchers(t)
	b.queue("q", "a: gpu=8", judged)
	b.checkNothingIsDecided()
	b.restart()
	b.wantRevoked("second")
}

// TestBesideKueueHeld revokes nothing because a ClusterQueue is held: the hold can end, and before a takeover one ClusterQueue is held after the other.
func TestBesideKueueHeld(t *testing.T) {
	b := newBesideKueue(t)
	shared := func(q *kueue.ClusterQueue) {
		judged(q)
		q.Spec.CohortName = "c"
	}
	b.queue("q", "a: gpu=8", shared)
	b.queue("p", "a: gpu=4", shared)
	for name, queue := range map[string]string{"first": "q", "second": "p"} {
		b.submit(queue, name, pair("gpu=4", "gpu=4")...)
		b.reserve(name+"-launcher", assigned(queue, "launcher", "4"))
		b.judge(name + "-launcher")
		b.writeReady(name + "-launcher")
		b.reach(name, "launcher", stageplan.Ready)
	}
	b.queue("p", "a: gpu=0", shared, func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.Hold) })
	b.checkNothingIsDecided()
	b.wantRevoked("")
}

// TestBesideKueueCutRestartedJobSet revokes nothing while a JobSet that has restarted is about to release the quota of a later stage.
func TestBesideKueueCutRestartedJobSet(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=8", judged)
	b.submit("q", "js", job{name: "first", requests: "gpu=4"}, job{name: "second", requests: "gpu=6", after: []string{"first Complete"}})
	b.reserve("js-first", assigned("q", "first", "4"))
	b.judge("js-first")
	b.writeReady("js-first")
	b.reach("js", "first", stageplan.Succeeded)
	b.reserve("js-second", assigned("q", "second", "6"))
	b.judge("js-second")
	b.writeReady("js-second")
	b.checkNothingIsDecided()
	b.restartJobSet(b.jobSets["js"])
	b.checkNothingIsDecided()
	if why := b.engine.Revocation(keyOf("js-second"), "wl-js-second"); why != "" || len(b.revoked) > 0 {
		t.Errorf("revoked %v because of %q", b.revoked, why)
	}
	b.giveBack("js-second")
	b.checkNothingIsDecided()
	if len(b.revoked) > 0 {
		t.Errorf("revoked %v", b.revoked)
	}
}

// TestBesideKueueCutReopened revokes the quota of a JobSet that has restarted and can no longer finish, once its later stage has opened again with the quota
// that it was about to release.
func TestBesideKueueCutReopened(t *testing.T) {
	b := newBesideKueue(t)
	b.queue("q", "a: gpu=12", judged)
	b.submit("q", "first", job{name: "launcher", requests: "gpu=4"}, job{name: "workers", requests: "gpu=4", after: []string{"launcher Ready"}},
		job{name: "evaluator", requests: "gpu=4", after: []string{"workers Ready"}})
	for _, stage := range []string{"launcher", "workers"} {
		b.reserve("first-"+stage, assigned("q", stage, "4"))
		b.judge("first-" + stage)
		b.writeReady("first-" + stage)
		b.reach("first", stage, stageplan.Ready)
	}
	b.restartJobSet(b.jobSets["first"])
	b.queue("q", "a: gpu=8", judged)
	b.checkNothingIsDecided()
	b.wantRevoked("")
	b.reach("first", "launcher", stageplan.Ready)
	b.checkNothingIsDecided()
	b.wantRevoked("first")
}
