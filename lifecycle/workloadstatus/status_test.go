package workloadstatus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// now returns a time that is no whole second.
func now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 5e8, time.UTC) }

func says(status *kueue.WorkloadStatus) map[string]string {
	all := map[string]string{}
	for _, c := range status.Conditions {
		all[c.Type] = string(c.Status) + " " + c.Reason
	}
	return all
}

func TestReserved(t *testing.T) {
	at := now()
	w := workload(
		metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "WaitingForQuota"},
		metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", Message: "for another"},
	)
	w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: kueue.CheckStatePending, RetryCount: new(int32(2))}}
	status := workloadstatus.Reserved(w, &kueue.Admission{ClusterQueue: "research"}, []kueue.AdmissionCheckReference{"budget", "nodes"}, at)
	want := map[string]string{
		kueue.WorkloadQuotaReserved: "True QuotaReserved",
		kueue.WorkloadAdmitted:      "False UnsatisfiedChecks",
		kueue.WorkloadEvicted:       "False QuotaReserved",
	}
	if diff := cmp.Diff(want, says(&status)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	checks := []kueue.AdmissionCheckState{
		{Name: "nodes", State: kueue.CheckStatePending, RetryCount: new(int32(2))},
		{Name: "budget", State: kueue.CheckStatePending, LastTransitionTime: metav1.NewTime(at.Truncate(time.Second))},
	}
	if diff := cmp.Diff(checks, status.AdmissionChecks); diff != "" {
		t.Errorf("admissionChecks (-want +got):\n%s", diff)
	}
}

func TestEvicted(t *testing.T) {
	w := workload(metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, Reason: "Admitted"})
	preempted := workloadstatus.Eviction{Reason: "Preempted", Message: "for another", Preempted: "InClusterQueue"}
	w.Status = workloadstatus.Evicted(w, preempted, now())
	w.Status = workloadstatus.Evicted(w, preempted, now())
	w.Status = workloadstatus.Evicted(w, workloadstatus.Eviction{Reason: "PodsReadyTimeout", Cause: "WaitForStart", Message: strings.Repeat("é", 20<<10)}, now())
	want := map[string]string{
		kueue.WorkloadAdmitted: "True Admitted", kueue.WorkloadEvicted: "True PodsReadyTimeout", kueue.WorkloadPreempted: "True InClusterQueue",
	}
	if diff := cmp.Diff(want, says(&w.Status)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	evictions := []kueue.WorkloadSchedulingStatsEviction{{Reason: "Preempted", Count: 2}, {Reason: "PodsReadyTimeout", UnderlyingCause: "WaitForStart", Count: 1}}
	if diff := cmp.Diff(evictions, w.Status.SchedulingStats.Evictions); diff != "" {
		t.Errorf("evictions (-want +got):\n%s", diff)
	}
	if w.Status.Admission == nil {
		t.Error("an evicted quota Workload holds its quota until its pods have terminated")
	}
	if message := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted).Message; len(message) > 32<<10 || !strings.HasSuffix(message, "é") {
		t.Errorf("message of %d bytes ends in %q, want at most 32768 and whole characters", len(message), message[len(message)-2:])
	}
}

// Releasing quota resets the AdmissionChecks; an update of the waiting reason does not.
func TestPendingResetsChecks(t *testing.T) {
	for name, w := range map[string]*kueue.Workload{
		"Pending": workload(metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now().Add(-time.Minute))}),
		"Ready":   workload(),
	} {
		w.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "budget", State: kueue.CheckStateReady, RequeueAfterSeconds: new(int32(60))}}
		status := workloadstatus.Pending(w, quotaworkload.Wait{Reason: "OnHold", KueueReason: "OnHold", Message: "suspended"}, now())
		if got := string(status.AdmissionChecks[0].State); got != name {
			t.Errorf("admission %v: check is %s, want %s", w.Status.Admission, got, name)
		}
		if after := status.AdmissionChecks[0].RequeueAfterSeconds; after == nil || *after != 60 {
			t.Errorf("admission %v: requeueAfterSeconds is %v, want 60", w.Status.Admission, after)
		}
		past := status.AccumulatedPastExecutionTimeSeconds
		if (w.Status.Admission != nil) != (past != nil && *past >= 59 && *past <= 120) {
			t.Errorf("admission %v: accumulatedPastExecutionTimeSeconds is %v", w.Status.Admission, past)
		}
	}
}

func TestPodSetUpdates(t *testing.T) {
	toleration := corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists}
	ready := func(name kueue.AdmissionCheckReference, updates ...kueue.PodSetUpdate) kueue.AdmissionCheckState {
		return kueue.AdmissionCheckState{Name: name, State: kueue.CheckStateReady, PodSetUpdates: updates}
	}
	label := func(podSet kueue.PodSetReference, value string) kueue.PodSetUpdate {
		return kueue.PodSetUpdate{Name: podSet, Labels: map[string]string{"zone": value}}
	}
	cases := map[string]struct {
		checks  []kueue.AdmissionCheckState
		want    map[kueue.PodSetReference]kueue.PodSetUpdate
		wantErr string
	}{
		"none": {want: map[kueue.PodSetReference]kueue.PodSetUpdate{}},
		"of two checks": {
			checks: []kueue.AdmissionCheckState{
				ready("b", kueue.PodSetUpdate{Name: "main", NodeSelector: map[string]string{"pool": "x"}, Tolerations: []corev1.Toleration{toleration}}),
				ready("a", label("main", "1"), label("other", "2")), ready("c", kueue.PodSetUpdate{Name: "main", Tolerations: []corev1.Toleration{toleration}}),
			},
			want: map[kueue.PodSetReference]kueue.PodSetUpdate{
				"main":  {Name: "main", Labels: map[string]string{"zone": "1"}, NodeSelector: map[string]string{"pool": "x"}, Tolerations: []corev1.Toleration{toleration}},
				"other": {Name: "other", Labels: map[string]string{"zone": "2"}},
			},
		},
		"twice the same":     {checks: []kueue.AdmissionCheckState{ready("a", label("main", "1")), ready("b", label("main", "1"))}, want: map[kueue.PodSetReference]kueue.PodSetUpdate{"main": label("main", "1")}},
		"contradict":         {checks: []kueue.AdmissionCheckState{ready("a", label("main", "1")), ready("b", label("main", "2"))}, wantErr: `AdmissionCheck "b" updates pod set "main": label "zone" is to be "2", but is "1" already`},
		"contradict the pod": {checks: []kueue.AdmissionCheckState{ready("a", kueue.PodSetUpdate{Name: "main", Annotations: map[string]string{"own": "x"}})}, wantErr: `annotation "own" is to be "x", but is "y" already`},
		"unknown pod set":    {checks: []kueue.AdmissionCheckState{ready("a", label("ghost", "1"))}, wantErr: `pod set "ghost", which does not exist`},
		"not ready":          {checks: []kueue.AdmissionCheckState{{Name: "a", State: kueue.CheckStatePending, PodSetUpdates: []kueue.PodSetUpdate{label("ghost", "1")}}}, want: map[kueue.PodSetReference]kueue.PodSetUpdate{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := workload()
			w.Spec.PodSets = []kueue.PodSet{{Name: "main"}, {Name: "other"}}
			w.Spec.PodSets[0].Template.Annotations = map[string]string{"own": "y"}
			w.Status.AdmissionChecks = c.checks
			got, err := workloadstatus.PodSetUpdates(w)
			if c.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), c.wantErr) {
					t.Errorf("error %v, want one with %q", err, c.wantErr)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("error %v, updates (-want +got):\n%s", err, diff)
			}
		})
	}
}

func workload(all ...metav1.Condition) *kueue.Workload {
	w := &kueue.Workload{Status: kueue.WorkloadStatus{Conditions: all}}
	for _, c := range all {
		if c.Type == kueue.WorkloadAdmitted {
			w.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
		}
	}
	return w
}

func TestPodsReady(t *testing.T) {
	is := func(status metav1.ConditionStatus, reason string) *metav1.Condition {
		return &metav1.Condition{Type: kueue.WorkloadPodsReady, Status: status, Reason: reason}
	}
	cases := map[string]struct {
		old   *metav1.Condition
		ready bool
		want  string
	}{
		"not yet":         {nil, false, kueue.WorkloadWaitForStart},
		"started":         {is(metav1.ConditionFalse, kueue.WorkloadWaitForStart), true, kueue.WorkloadStarted},
		"still started":   {is(metav1.ConditionTrue, kueue.WorkloadStarted), true, kueue.WorkloadStarted},
		"lost":            {is(metav1.ConditionTrue, kueue.WorkloadStarted), false, kueue.WorkloadWaitForRecovery},
		"still lost":      {is(metav1.ConditionFalse, kueue.WorkloadWaitForRecovery), false, kueue.WorkloadWaitForRecovery},
		"recovered":       {is(metav1.ConditionFalse, kueue.WorkloadWaitForRecovery), true, kueue.WorkloadRecovered},
		"still recovered": {is(metav1.ConditionTrue, kueue.WorkloadRecovered), true, kueue.WorkloadRecovered},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := workloadstatus.PodsReady(c.old, c.ready)
			if got.Reason != c.want || (got.Status == metav1.ConditionTrue) != c.ready {
				t.Errorf("PodsReady = %s %s, want %s", got.Status, got.Reason, c.want)
			}
		})
	}
}

// Server-side apply removes what it leaves out, so an admission must repeat what the same field manager has written before.
func TestAdmittedKeepsWhatItOwns(t *testing.T) {
	w := workload(
		metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "Pending"},
		metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", Message: "for another"},
		metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionTrue, Reason: "BackoffFinished"},
		metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionFalse, Reason: "WaitForStart"},
	)
	status := workloadstatus.Admitted(w, &kueue.Admission{ClusterQueue: "research"}, now())
	got := map[string]string{}
	for _, c := range status.Conditions {
		got[c.Type] = string(c.Status) + " " + c.Message
	}
	want := map[string]string{
		kueue.WorkloadQuotaReserved: "True Quota reserved in ClusterQueue research",
		kueue.WorkloadAdmitted:      "True The workload is admitted",
		kueue.WorkloadEvicted:       "False Previously: for another",
		kueue.WorkloadRequeued:      "True ",
	}
	for conditionType, text := range want {
		if got[conditionType] != text {
			t.Errorf("%s = %q, want %q", conditionType, got[conditionType], text)
		}
	}
	if _, there := got[kueue.WorkloadPodsReady]; there {
		t.Error("PodsReady belongs to another field manager")
	}
}
