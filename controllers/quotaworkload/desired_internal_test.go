package quotaworkload

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// at returns the time that many seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// given is a quota Workload that a test builds step by step.
type given struct{ *kueue.Workload }

func pending() given {
	return given{&kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "train", Generation: 1},
		Spec:       kueue.WorkloadSpec{QueueName: "queue", PodSets: []kueue.PodSet{{Name: "main", Count: 1}}},
	}}
}

// reserved returns a Workload that has held quota since the start.
func reserved() given {
	g := pending().with(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 0)
	g.Status.Admission = &kueue.Admission{ClusterQueue: "research", PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
	}}}
	return g
}

func admitted() given {
	return reserved().with(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", 0)
}

// unchecked returns a Workload that waits for AdmissionChecks.
func unchecked() given {
	return reserved().with(kueue.WorkloadAdmitted, metav1.ConditionFalse, "UnsatisfiedChecks", 0)
}

func (g given) with(conditionType string, status metav1.ConditionStatus, reason string, seconds int) given {
	message := "old"
	if conditionType == kueue.WorkloadAdmitted && status == metav1.ConditionFalse {
		message = "The workload has not all checks ready"
	}
	g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(at(seconds)),
	})
	return g
}

func (g given) evicted(reason string) given {
	return g.with(kueue.WorkloadEvicted, metav1.ConditionTrue, reason, 5)
}

func (g given) keptOut(reason string) given {
	return g.with(kueue.WorkloadRequeued, metav1.ConditionFalse, reason, 5)
}

func (g given) inactive() given {
	g.Spec.Active = new(false)
	return g
}

func (g given) check(name string, state kueue.CheckState) given {
	g.Status.AdmissionChecks = append(g.Status.AdmissionChecks, kueue.AdmissionCheckState{
		Name: kueue.AdmissionCheckReference(name), State: state, LastTransitionTime: metav1.NewTime(at(3)),
	})
	return g
}

// retry adds a check that requests a retry the given number of seconds after second 3.
func (g given) retry(name string, after, tries int32) given {
	g = g.check(name, kueue.CheckStateRetry)
	last := &g.Status.AdmissionChecks[len(g.Status.AdmissionChecks)-1]
	last.RequeueAfterSeconds, last.RetryCount, last.Message = &after, &tries, "no nodes"
	return g
}

func (g given) updates(label, value string) given {
	last := &g.Status.AdmissionChecks[len(g.Status.AdmissionChecks)-1]
	last.PodSetUpdates = []kueue.PodSetUpdate{{Name: "main", Labels: map[string]string{label: value}}}
	return g
}

func (g given) requeue(count, seconds int) given {
	g.Status.RequeueState = &kueue.RequeueState{}
	if count > 0 {
		g.Status.RequeueState.Count = new(int32(count))
	}
	if seconds > 0 {
		g.Status.RequeueState.RequeueAt = new(metav1.NewTime(at(seconds)))
	}
	return g
}

func (g given) gated(gates string) given {
	metav1.SetMetaDataAnnotation(&g.ObjectMeta, apis.AdmissionGatedByAnnotation, gates)
	return g
}

// ofGang makes it a part of a gang of pods, which has started at the given second, or has not started.
func (g given) ofGang(started *int) given {
	metav1.SetMetaDataAnnotation(&g.ObjectMeta, apis.PodGroupKey, "lightweight.train")
	metav1.SetMetaDataLabel(&g.ObjectMeta, apis.PlanUIDLabel, "plan")
	if started != nil {
		metav1.SetMetaDataAnnotation(&g.ObjectMeta, apis.StartedAnnotation, workloadstatus.Started(at(*started)))
	}
	return g
}

// reserved makes it a Workload for pods of a gang that do not exist yet.
func (g given) reserved() given {
	g = g.ofGang(nil)
	g.Labels = nil
	g.Spec.PodSets = []kueue.PodSet{{Name: apis.ReservedPodSet, Count: 1}}
	return g
}

func (g given) limit(seconds, past int32) given {
	g.Spec.MaximumExecutionTimeSeconds = &seconds
	if past > 0 {
		g.Status.AccumulatedPastExecutionTimeSeconds = &past
	}
	return g
}

func (g given) ownedBy(kind string) given {
	g.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: new(true)}}
	return g
}

// research is a ClusterQueue with a check for all Workloads and one for each of two flavors.
func research() *kueue.ClusterQueue {
	return &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{
			{Name: "nodes", OnFlavors: []kueue.ResourceFlavorReference{"other", "spot"}},
			{Name: "budget"},
			{Name: "never", OnFlavors: []kueue.ResourceFlavorReference{"other"}},
		},
	}}}
}

func podsReady(enable bool, limit *int32) configapi.WaitForPodsReady {
	var c configapi.Configuration
	c.WaitForPodsReady = configapi.WaitForPodsReady{
		Enable: &enable, Timeout: &metav1.Duration{Duration: 100 * time.Second}, RecoveryTimeout: &metav1.Duration{Duration: 50 * time.Second},
		RequeuingStrategy: configapi.RequeuingStrategy{BackoffLimitCount: limit},
	}
	c.SetDefaults()
	return c.WaitForPodsReady
}

// TestIdle: a quota Workload that only waits is not reconciled.
func TestIdle(t *testing.T) {
	r := &Reconciler{config: Config{PodsReady: podsReady(true, nil)}}
	waits := pending().with(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", 0)
	if r.hasStep(pending().Workload, at(1)) || r.hasStep(waits.Workload, at(1)) {
		t.Error("a pending quota Workload is reconciled")
	}
	if !r.hasStep(unchecked().Workload, at(1)) {
		t.Error("a quota Workload that waits for AdmissionChecks is not reconciled")
	}
}

// told returns in one line what a reconcile writes.
func told(before *kueue.Workload, w *workloadstatus.Step) string {
	var parts []string
	if w.Deactivate {
		parts = append(parts, "deactivate")
	}
	for _, name := range w.RemoveChecks {
		parts = append(parts, "drop "+string(name))
	}
	if w.Status != nil && workloadstatus.Differs(before, w.Status) {
		parts = append(parts, changes(&before.Status, w.Status)...)
	}
	if event, ok := eventOf(w.Transition); ok {
		parts = append(parts, "event "+event.Reason)
	}
	if w.RequeueAfter > 0 {
		parts = append(parts, "again in "+w.RequeueAfter.String())
	}
	return strings.Join(parts, "; ")
}

func changes(before, after *kueue.WorkloadStatus) []string {
	var parts []string
	for _, c := range after.Conditions {
		if old := apimeta.FindStatusCondition(before.Conditions, c.Type); old == nil || *old != c {
			parts = append(parts, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}
	}
	if apimeta.FindStatusCondition(before.Conditions, kueue.WorkloadDeactivationTarget) != nil &&
		apimeta.FindStatusCondition(after.Conditions, kueue.WorkloadDeactivationTarget) == nil {
		parts = append(parts, "no DeactivationTarget")
	}
	if before.Admission != nil && after.Admission == nil {
		parts = append(parts, "no admission")
	}
	for i, check := range after.AdmissionChecks {
		if i < len(before.AdmissionChecks) && before.AdmissionChecks[i].State == check.State {
			continue
		}
		text := fmt.Sprintf("%s=%s", check.Name, check.State)
		if check.RetryCount != nil {
			text += fmt.Sprintf("/%d", *check.RetryCount)
		}
		parts = append(parts, text)
	}
	if text := requeueText(after.RequeueState); text != requeueText(before.RequeueState) {
		parts = append(parts, text)
	}
	if now := ptr.Deref(after.AccumulatedPastExecutionTimeSeconds, 0); now != ptr.Deref(before.AccumulatedPastExecutionTimeSeconds, 0) {
		parts = append(parts, fmt.Sprintf("past %d", now))
	}
	return parts
}

func requeueText(state *kueue.RequeueState) string {
	if state == nil {
		return "no requeueState"
	}
	text := fmt.Sprintf("requeue %d", ptr.Deref(state.Count, 0))
	if state.RequeueAt != nil {
		text += " at " + state.RequeueAt.Sub(start).String()
	}
	return text
}

func TestDesired(t *testing.T) {
	stop, none := new(kueue.Hold), new(kueue.None)
	leaving := metav1.ObjectMeta{DeletionTimestamp: new(metav1.NewTime(start))}
	cases := map[string]struct {
		workload                 given
		reservedIn, clusterQueue *kueue.ClusterQueue
		localQueue               *kueue.LocalQueue
		podsReady                configapi.WaitForPodsReady
		now                      int
		want                     string
	}{
		"pending":  {workload: pending()},
		"finished": {workload: admitted().limit(1, 0).with(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 1), now: 9},
		"being deleted": {workload: func() given {
			g := admitted().evicted("Preempted")
			g.DeletionTimestamp = new(metav1.NewTime(start))
			return g
		}()},
		"finished, inactive": {workload: pending().inactive().with(kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", 1)},

		"reserved without checks": {
			workload: reserved(), reservedIn: &kueue.ClusterQueue{}, now: 7,
			want: "Admitted=True Admitted; event Admitted",
		},
		"reserved in no ClusterQueue": {workload: reserved()},
		"reserved with checks": {
			workload: reserved(), reservedIn: research(),
			want: "Admitted=False UnsatisfiedChecks; budget=Pending; nodes=Pending",
		},
		"a check missing": {
			workload: unchecked().check("nodes", kueue.CheckStateReady), reservedIn: research(), want: "budget=Pending",
		},
		"a check too many, as its controller left it": {
			workload:   unchecked().check("budget", kueue.CheckStateReady).check("nodes", kueue.CheckStateReady).check("never", kueue.CheckStateReady),
			reservedIn: research(), want: "drop never",
		},
		"checks pending": {
			workload: unchecked().check("budget", kueue.CheckStateReady).check("nodes", kueue.CheckStatePending), reservedIn: research(),
		},
		"all checks ready": {
			workload: unchecked().check("budget", kueue.CheckStateReady).check("nodes", kueue.CheckStateReady), reservedIn: research(),
			want: "Admitted=True Admitted; event Admitted",
		},
		"updates agree": {
			workload:   unchecked().check("budget", kueue.CheckStateReady).updates("a", "1").check("nodes", kueue.CheckStateReady).updates("b", "2"),
			reservedIn: research(), want: "Admitted=True Admitted; event Admitted",
		},
		"updates contradict": {
			workload:   unchecked().check("budget", kueue.CheckStateReady).updates("a", "1").check("nodes", kueue.CheckStateReady).updates("a", "2"),
			reservedIn: research(), want: "DeactivationTarget=True AdmissionCheck; event AdmissionCheckRejected",
		},
		"a check asks for another try at once": {
			workload: unchecked().check("budget", kueue.CheckStateReady).check("nodes", kueue.CheckStateRetry), reservedIn: research(), now: 4,
			want: "Evicted=True AdmissionCheck; budget=Pending; nodes=Pending/1; event EvictedDueToAdmissionCheck",
		},
		"checks ask for another try later": {
			workload: unchecked().retry("budget", 60, 2).retry("nodes", 90, 0), reservedIn: research(), now: 4,
			want: "Evicted=True AdmissionCheck; budget=Pending/3; nodes=Pending/1; requeue 0 at 1m33s; event EvictedDueToAdmissionCheck",
		},
		"a check changes its mind about an admitted one": {
			workload: admitted().requeue(2, 0).retry("nodes", 60, 0), now: 4,
			want: "Evicted=True AdmissionCheck; nodes=Pending/1; requeue 2 at 1m3s; event EvictedDueToAdmissionCheck",
		},
		"another try in the past": {
			workload: unchecked().retry("nodes", 10, 0), reservedIn: research(), now: 14,
			want: "Evicted=True AdmissionCheck; nodes=Pending/1; event EvictedDueToAdmissionCheck",
		},
		"a check rejects, another asks for a try": {
			workload: unchecked().retry("nodes", 60, 0).check("budget", kueue.CheckStateRejected), reservedIn: research(),
			want: "DeactivationTarget=True AdmissionCheck; event AdmissionCheckRejected",
		},
		"rejected after its eviction": {workload: reserved().evicted("Preempted").check("budget", kueue.CheckStateRejected).ownedBy("JobSet")},

		"to be deactivated": {
			workload: admitted().with(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, "AdmissionCheck", 4), want: "deactivate",
		},
		"deactivated by Tranche": {
			workload: admitted().inactive().requeue(3, 99).retry("nodes", 60, 1).with(kueue.WorkloadDeactivationTarget, metav1.ConditionTrue, "RequeuingLimitExceeded", 4),
			want: "Evicted=True DeactivatedDueToRequeuingLimitExceeded; no DeactivationTarget; nodes=Pending; no requeueState;" +
				" event EvictedDueToDeactivatedDueToRequeuingLimitExceeded",
		},
		"deactivated by its user": {
			workload: admitted().inactive(), want: "Evicted=True Deactivated; event EvictedDueToDeactivated",
		},
		"deactivated while it holds nothing": {
			workload: pending().inactive().requeue(1, 60),
			want:     "Evicted=True Deactivated; QuotaReserved=False Pending; tranche.dev/Waiting=True Deactivated; Requeued=False Deactivated; no requeueState; event EvictedDueToDeactivated",
		},
		"deactivated after a preemption": {
			workload: pending().inactive().evicted("Preempted").with(kueue.WorkloadRequeued, metav1.ConditionTrue, "Preempted", 5),
			want:     "Evicted=True Deactivated; Requeued=False Deactivated; QuotaReserved=False Pending; tranche.dev/Waiting=True Deactivated; event EvictedDueToDeactivated",
		},
		"stays deactivated": {workload: pending().inactive().evicted("Deactivated").keptOut("Deactivated"), now: 99},
		"activated again": {
			workload: pending().evicted("DeactivatedDueToAdmissionCheck").keptOut("DeactivatedDueToAdmissionCheck"),
			want:     "Requeued=True Reactivated; event Requeued",
		},
		"activated again before it has given its quota back": {workload: reserved().evicted("Deactivated").ownedBy("JobSet")},

		"evicted, without a controller":                    {workload: admitted().evicted("Preempted")},
		"deactivated, without a controller, still holding": {workload: admitted().inactive().evicted("Deactivated"), now: 7},
		"evicted before it was admitted":                   {workload: unchecked().evicted("AdmissionCheck"), now: 7},
		"evicted, a JobSet's":                              {workload: admitted().evicted("Preempted").ownedBy("JobSet")},
		"evicted, a Job's":                                 {workload: admitted().evicted("Preempted").ownedBy("Job")},
		"evicted, given back":                              {workload: pending().evicted("Preempted").with(kueue.WorkloadRequeued, metav1.ConditionTrue, "Preempted", 5)},
		"back-off":                                         {workload: pending().evicted("PodsReadyTimeout").keptOut("PodsReadyTimeout").requeue(1, 65), now: 10, want: "again in 55s"},
		"back-off of a check":                              {workload: pending().evicted("AdmissionCheck").keptOut("AdmissionCheck").requeue(0, 65), now: 10, want: "again in 55s"},
		"back-off after a drain":                           {workload: pending().keptOut("ClusterQueueStopped").requeue(1, 65), now: 10, want: "again in 55s"},
		"back-off over": {
			workload: pending().evicted("PodsReadyTimeout").keptOut("PodsReadyTimeout").requeue(2, 65), now: 65,
			want: "Requeued=True BackoffFinished; requeue 2; event Requeued",
		},
		"back-off of a check over": {
			workload: pending().evicted("AdmissionCheck").keptOut("AdmissionCheck").requeue(0, 65), now: 66,
			want: "Requeued=True BackoffFinished; no requeueState; event Requeued",
		},
		"no back-off": {
			workload: pending().evicted("AdmissionCheck").keptOut("AdmissionCheck"), now: 5, want: "Requeued=True BackoffFinished; event Requeued",
		},
		"put off, and nothing else": {workload: pending().requeue(1, 65), now: 66, want: "requeue 1"},
		"a check asks late": {
			workload: pending().evicted("AdmissionCheck").keptOut("AdmissionCheck").requeue(0, 10).retry("nodes", 60, 0), now: 5,
			want: "Requeued=False AdmissionCheck; nodes=Pending/1; requeue 0 at 1m3s",
		},
		"a check asks late for less": {
			workload: pending().evicted("AdmissionCheck").keptOut("AdmissionCheck").requeue(0, 99).retry("nodes", 60, 0), now: 5,
			want: "Requeued=False AdmissionCheck; nodes=Pending/1",
		},
		"a check asks after the back-off": {
			workload: pending().with(kueue.WorkloadRequeued, metav1.ConditionTrue, "BackoffFinished", 5).retry("nodes", 60, 0), now: 5,
			want: "Requeued=False AdmissionCheck; nodes=Pending/1; requeue 0 at 1m3s",
		},
		"ClusterQueue still stopped": {
			workload: pending().keptOut("ClusterQueueStopped"), localQueue: &kueue.LocalQueue{},
			clusterQueue: &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{StopPolicy: stop}},
		},
		"ClusterQueue goes on": {
			workload: pending().keptOut("ClusterQueueStopped"), localQueue: &kueue.LocalQueue{},
			clusterQueue: &kueue.ClusterQueue{Spec: kueue.ClusterQueueSpec{StopPolicy: none}}, want: "Requeued=True ClusterQueueRestarted; event Requeued",
		},
		"ClusterQueue gone": {workload: pending().keptOut("ClusterQueueStopped"), localQueue: &kueue.LocalQueue{}},
		"LocalQueue still stopped": {
			workload: pending().keptOut("LocalQueueStopped"), localQueue: &kueue.LocalQueue{Spec: kueue.LocalQueueSpec{StopPolicy: stop}},
			clusterQueue: &kueue.ClusterQueue{},
		},
		"LocalQueue goes on": {
			workload: pending().keptOut("LocalQueueStopped"), localQueue: &kueue.LocalQueue{}, want: "Requeued=True LocalQueueRestarted; event Requeued",
		},

		"runs within its time":                             {workload: admitted().limit(60, 20), now: 39, want: "again in 1s"},
		"has run for too long":                             {workload: admitted().limit(60, 20), now: 40, want: "DeactivationTarget=True MaximumExecutionTimeExceeded; event MaximumExecutionTimeExceeded"},
		"reserved in a ClusterQueue that is being deleted": {workload: reserved(), reservedIn: &kueue.ClusterQueue{ObjectMeta: leaving}, now: 7},
		"reserved by a LocalQueue that is being deleted":   {workload: reserved(), reservedIn: &kueue.ClusterQueue{}, localQueue: &kueue.LocalQueue{ObjectMeta: leaving}, now: 7},
		"not admitted for long":                            {workload: unchecked().limit(10, 0).check("budget", kueue.CheckStatePending).check("nodes", kueue.CheckStatePending), reservedIn: research(), now: 99},
		"evicted and over its time":                        {workload: admitted().limit(60, 20).evicted("Preempted").ownedBy("JobSet"), now: 99},

		"not ready, without a timeout": {workload: admitted(), podsReady: podsReady(false, nil), now: 999},
		"starts":                       {workload: admitted(), podsReady: podsReady(true, nil), now: 1, want: "again in 1m39s"},
		"starts, time is shorter":      {workload: admitted().limit(60, 0), podsReady: podsReady(true, nil), now: 1, want: "again in 59s"},
		"starts, time is longer":       {workload: admitted().limit(600, 0), podsReady: podsReady(true, nil), now: 1, want: "again in 1m39s"},
		"did not start": {
			workload: admitted(), podsReady: podsReady(true, nil), now: 100,
			want: "Evicted=True PodsReadyTimeout; requeue 1 at 2m40s; event EvictedDueToPodsReadyTimeout",
		},
		"of a gang that has not started":                      {workload: admitted().ofGang(nil), podsReady: podsReady(true, nil), now: 999},
		"of a gang whose pods have not come":                  {workload: admitted().reserved(), podsReady: podsReady(true, nil), now: 999},
		"of a gang that has started long after its admission": {workload: admitted().ofGang(new(950)), podsReady: podsReady(true, nil), now: 990, want: "again in 1m0s"},
		"of a gang, and was not ready before this start either": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForStart", 10).ofGang(new(950)), podsReady: podsReady(true, nil),
			now: 990, want: "again in 1m0s",
		},
		"did not start, told so": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForStart", -30), podsReady: podsReady(true, nil), now: 100,
			want: "Evicted=True PodsReadyTimeout; requeue 1 at 2m40s; event EvictedDueToPodsReadyTimeout",
		},
		"did not start for the third time": {
			workload: admitted().requeue(2, 0), podsReady: podsReady(true, new(int32(3))), now: 100,
			want: "Evicted=True PodsReadyTimeout; requeue 3 at 5m40s; event EvictedDueToPodsReadyTimeout",
		},
		"did not start once too often": {
			workload: admitted().requeue(3, 0), podsReady: podsReady(true, new(int32(3))), now: 100,
			want: "DeactivationTarget=True RequeuingLimitExceeded; event RequeuingLimitExceeded",
		},
		"has no second try": {
			workload: admitted(), podsReady: podsReady(true, new(int32(0))), now: 100,
			want: "DeactivationTarget=True RequeuingLimitExceeded; event RequeuingLimitExceeded",
		},
		"ready": {workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionTrue, "Started", 9), podsReady: podsReady(true, nil), now: 999},
		"lost pods": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForRecovery", 200), podsReady: podsReady(true, nil), now: 201,
			want: "again in 49s",
		},
		"did not recover": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForRecovery", 200), podsReady: podsReady(true, nil), now: 250,
			want: "Evicted=True PodsReadyTimeout; requeue 1 at 5m10s; event EvictedDueToPodsReadyTimeout",
		},
		"may take any time to recover": {
			workload:  admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForRecovery", 200),
			podsReady: func() configapi.WaitForPodsReady { c := podsReady(true, nil); c.RecoveryTimeout.Duration = 0; return c }(), now: 999,
		},
		"closed again while it holds quota": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForRecovery", 200).gated("other," + apis.StageGate), podsReady: podsReady(true, nil), now: 999,
		},
		"suspended by its user, while its pods stop": {
			workload: admitted().gated(apis.SuspendedGate), podsReady: podsReady(true, nil), now: 999,
		},
		"opened again long after its admission": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForStart", 900), podsReady: podsReady(true, nil), now: 990,
			want: "again in 10s",
		},
		"had lost pods before this admission": {
			workload: admitted().with(kueue.WorkloadPodsReady, metav1.ConditionFalse, "WaitForRecovery", -90), podsReady: podsReady(true, nil), now: 1,
			want: "again in 1m39s",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.podsReady.Enable == nil {
				c.podsReady = podsReady(false, nil)
			}
			if c.reservedIn != nil && c.localQueue == nil {
				c.localQueue = &kueue.LocalQueue{}
			}
			before := c.workload.DeepCopy()
			s := &workloadstatus.Snapshot{Workload: c.workload.Workload, ReservedIn: c.reservedIn, LocalQueue: c.localQueue, ClusterQueue: c.clusterQueue}
			if got := told(before, workloadstatus.Next(s, &c.podsReady, at(c.now))); got != c.want {
				t.Errorf("desired:\n got %s\nwant %s", got, c.want)
			}
			if workloadstatus.Differs(before, withoutMore(c.workload.Workload)) {
				t.Error("desired has changed what it was given")
			}
		})
	}
}

// withoutMore returns the part of the status that belongs to admission.
func withoutMore(w *kueue.Workload) *kueue.WorkloadStatus {
	status := w.Status.DeepCopy()
	status.Conditions = nil
	for _, c := range w.Status.Conditions {
		if c.Type != kueue.WorkloadPodsReady && c.Type != kueue.WorkloadFinished {
			status.Conditions = append(status.Conditions, c)
		}
	}
	return status
}
