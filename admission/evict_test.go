package admission_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func withStop(stop kueue.StopPolicy) func(*kueue.ClusterQueue) {
	return func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = &stop }
}

// evicted lets the engine decide, and returns its evictions. The caller settles.
func (w *world) evicted() []admission.Evict {
	var evicted []admission.Evict
	for _, d := range w.engine.Decide(w.now()) {
		if d, ok := d.(admission.Evict); ok {
			evicted = append(evicted, d)
		}
	}
	return evicted
}

func TestStopPolicies(t *testing.T) {
	stopLocalQueue := func(w *world, stop kueue.StopPolicy) {
		w.engine.Apply(admission.LocalQueueObserved{LocalQueue: &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q"}, Spec: kueue.LocalQueueSpec{ClusterQueue: "q", StopPolicy: &stop},
		}})
	}
	for name, tc := range map[string]struct {
		stop func(*world)
		// want are the reasons, for the stage that waits for a check and for the one that is admitted.
		want map[string]string
	}{
		"hold":                         {func(w *world) { w.queue("q", "a100: gpu=4", withStop(kueue.Hold)) }, map[string]string{"checked": "ClusterQueueStopped"}},
		"hold and drain":               {func(w *world) { w.queue("q", "a100: gpu=4", withStop(kueue.HoldAndDrain)) }, map[string]string{"checked": "ClusterQueueStopped", "runs": "ClusterQueueStopped"}},
		"LocalQueue hold":              {func(w *world) { stopLocalQueue(w, kueue.Hold) }, map[string]string{"checked": "LocalQueueStopped"}},
		"LocalQueue hold, drain":       {func(w *world) { stopLocalQueue(w, kueue.HoldAndDrain) }, map[string]string{"checked": "LocalQueueStopped", "runs": "LocalQueueStopped"}},
		"LocalQueue no longer stopped": {func(w *world) { stopLocalQueue(w, kueue.None) }, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, admission.Config{})
			w.queue("q", "a100: gpu=4")
			w.lone("q", "checked", "gpu=1")
			w.lone("q", "runs", "gpu=1")
			w.wantAdmitted("checked", "runs")
			w.change("checked", func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadAdmitted, metav1.ConditionFalse) })
			tc.stop(w)
			got := map[string]string{}
			for _, d := range w.evicted() {
				got[d.Stage.Name] = d.Reason
				w.engine.Settle(d.ID)
			}
			if len(got) != len(tc.want) || got["checked"] != tc.want["checked"] || got["runs"] != tc.want["runs"] {
				t.Fatalf("evicted %v, want %v", got, tc.want)
			}
			again := w.evicted()
			if len(again) != len(tc.want) {
				t.Fatalf("evicted %v after the writes have failed, want %v", again, tc.want)
			}
			for _, d := range again {
				w.change(d.Stage.Name, func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadEvicted, metav1.ConditionTrue) })
				w.engine.Settle(d.ID)
				if !w.engine.Charged(d.Stage, d.UID) {
					t.Errorf("%s is no longer charged, and its pods may run", d.Stage)
				}
			}
			if more := w.evicted(); len(more) > 0 {
				t.Errorf("evicted twice: %v", more)
			}
		})
	}
}

// TestEvictionThatIsOvertaken: an eviction does not apply to quota that the stage holds after it has released everything.
func TestEvictionThatIsOvertaken(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.lone("q", "runs", "gpu=4")
	w.wantAdmitted("runs")
	w.queue("q", "a100: gpu=4", withStop(kueue.HoldAndDrain))
	late := w.evicted()
	if len(late) != 1 || !w.engine.InFlight(late[0].ID) {
		t.Fatalf("evicted %v", late)
	}
	w.change("runs", func(wl *kueue.Workload) {
		wl.Status.Admission = nil
		setCondition(wl, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	})
	if w.engine.InFlight(late[0].ID) {
		t.Error("the eviction is still to be written")
	}
	w.queue("q", "a100: gpu=4")
	w.wantAdmitted("runs")
	if w.engine.InFlight(late[0].ID) {
		t.Error("the eviction is to be written again")
	}
}

// TestAdmissionChecks: the stage gets quota first, and counts as admitted later.
func TestAdmissionChecks(t *testing.T) {
	w := newWorld(t, admission.Config{})
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "budget"}}
	rule := kueue.AdmissionCheckStrategyRule{Name: "budget"}
	withCheck := func(q *kueue.ClusterQueue) {
		q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{rule}}
	}
	w.queue("q", "a100: gpu=4", withCheck)
	w.lone("q", "one", "gpu=1")
	w.wantAdmitted()
	w.wantRefusal("one", "ClusterQueueIsActive", "Misconfigured", "references missing AdmissionCheck(s): budget")
	w.engine.Apply(admission.CheckObserved{AdmissionCheck: check})
	w.wantAdmitted()
	w.wantRefusal("one", "ClusterQueueIsActive", "Misconfigured", "references inactive AdmissionCheck(s): budget")
	check.Status.Conditions = []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}
	w.engine.Apply(admission.CheckObserved{AdmissionCheck: check})
	decisions := w.engine.Decide(w.now())
	admit, ok := decisions[0].(admission.Admit)
	if !ok || len(admit.Checks) != 1 || admit.Checks[0] != "budget" {
		t.Fatalf("decided %v", decisions)
	}
	if view, _ := w.engine.ClusterQueue("q"); view.Reserving != 1 || view.Admitted != 0 {
		t.Errorf("%d reserving, %d admitted", view.Reserving, view.Admitted)
	}
	rule.OnFlavors = []kueue.ResourceFlavorReference{"h100"}
	w.queue("q", "a100: gpu=4", withCheck)
	w.lone("q", "two", "gpu=1")
	w.wantAdmitted("two")
}

// TestRequeueAt: a stage is not pending until its back-off has expired.
func TestRequeueAt(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	at := metav1.NewTime(w.now().Add(60e9))
	w.lone("q", "one", "gpu=1", func(wl *kueue.Workload) { wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: &at} })
	w.wantAdmitted()
	if got, ok := w.engine.NextTime(); !ok || !got.Equal(at.Time) {
		t.Errorf("next time is %v, want %v", got, at)
	}
	w.clock += 59
	w.wantAdmitted("one")
}
