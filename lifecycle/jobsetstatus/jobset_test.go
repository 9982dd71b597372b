package jobsetstatus_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

func workload(all ...metav1.Condition) *kueue.Workload {
	w := &kueue.Workload{Status: kueue.WorkloadStatus{Conditions: all}}
	for _, c := range all {
		if c.Type == kueue.WorkloadAdmitted {
			w.Status.Admission = &kueue.Admission{ClusterQueue: "research"}
		}
	}
	return w
}

func TestJobSetProgress(t *testing.T) {
	admitted := workload(metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
	short := workload(metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "WaitingForQuota", Message: "needs 8 GPUs"})
	is := func(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
	}
	reserved := is(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "")
	unchecked := workload(reserved)
	unchecked.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: "Pending"}, {Name: "budget", State: "Ready"}}
	leaving := workload(reserved, is(kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", ""), is(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", "for another"))
	backsOff := workload(is(kueue.WorkloadEvicted, metav1.ConditionTrue, "PodsReadyTimeout", "too slow"),
		is(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "PendingEvaluation", "too slow"),
		is(kueue.WorkloadRequeued, metav1.ConditionFalse, "PodsReadyTimeout", "too slow"))
	backsOff.Status.RequeueState = &kueue.RequeueState{RequeueAt: &metav1.Time{}}
	deactivated := workload(is(kueue.WorkloadRequeued, metav1.ConditionFalse, "DeactivatedDueToAdmissionCheck", "deactivated; set its spec.active to true"))
	deactivated.Name = "jobset-train"
	stopped := workload(is(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Suspended", "LocalQueue main is stopped"))
	stage := func(w *kueue.Workload) jobsetstatus.StageState {
		return jobsetstatus.StageState{Index: 1, Name: "train", Workload: w}
	}
	cases := map[string]struct {
		summary             jobsetstatus.Summary
		wantStatus          metav1.ConditionStatus
		wantReason, wantMsg string
	}{
		"being made":    {jobsetstatus.Summary{Stages: 2}, metav1.ConditionFalse, "Preparing", "being made"},
		"not looked at": {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(workload())}}, metav1.ConditionFalse, "PendingEvaluation", `stage 2/2 "train": not checked yet; if that does not change, check that the manager`},
		"waits":         {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(short)}}, metav1.ConditionFalse, "WaitingForQuota", "needs 8 GPUs"},
		"unchecked":     {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(unchecked)}}, metav1.ConditionFalse, "UnsatisfiedAdmissionChecks", "not all Ready: nodes is Pending"},
		"leaving":       {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(leaving)}}, metav1.ConditionFalse, "Preempted", "for another"},
		"backs off":     {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(backsOff)}}, metav1.ConditionFalse, "PodsReadyTimeout", "backing off until"},
		"admitted":      {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(admitted)}}, metav1.ConditionTrue, "Admitted", `ClusterQueue "research"`},
		"one of two":    {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(admitted), stage(short)}}, metav1.ConditionFalse, "WaitingForQuota", "needs 8 GPUs"},
		"suspended":     {jobsetstatus.Summary{Stages: 2, Suspended: true, Current: []jobsetstatus.StageState{stage(admitted)}}, metav1.ConditionFalse, "JobSetSuspended", "spec.suspend"},
		"deactivated": {
			jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(deactivated)}},
			metav1.ConditionFalse, "DeactivatedDueToAdmissionCheck",
			`deactivated; set its spec.active to true (quota Workload "jobset-train")`,
		},
		"stopped": {jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(stopped)}}, metav1.ConditionFalse, "QueueStopped", "main is stopped"},
		"failed": {
			jobsetstatus.Summary{Stages: 2, Over: true, Failure: &jobsetstatus.Failure{Stages: []jobsetstatus.StageState{stage(admitted)}, Message: "job x failed"}},
			metav1.ConditionFalse, "Failed", `The JobSet has failed in stage 2/2 "train": job x failed`,
		},
		"failed, unknown where": {
			jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{stage(admitted)}, Failure: &jobsetstatus.Failure{Message: "too many restarts"}},
			metav1.ConditionFalse, "Failed", "The JobSet has failed: too many restarts",
		},
		"over": {jobsetstatus.Summary{Stages: 2, Over: true}, metav1.ConditionFalse, "Finished", "finished"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := jobsetstatus.JobSetProgress(&jobsetapi.JobSet{}, c.summary)
			if len(all) != 2 || all[0].Type != jobsetstatus.StageAdmitted || all[1].Type != jobsetstatus.StageInProgress {
				t.Fatalf("conditions = %+v, want StageAdmitted and StageInProgress", all)
			}
			if got := all[0]; got.Status != c.wantStatus || got.Reason != c.wantReason || !strings.Contains(got.Message, c.wantMsg) {
				t.Errorf("got %s %s %q, want %s %s with %q", got.Status, got.Reason, got.Message, c.wantStatus, c.wantReason, c.wantMsg)
			}
		})
	}
}

// The API server would change a character that is cut in two, and the message would be written again forever.
func TestLongMessageIsCutBetweenCharacters(t *testing.T) {
	js := &jobsetapi.JobSet{}
	js.Status.Conditions = jobsetstatus.JobSetRefused(js, jobsetstatus.StageAdmitted, "x"+strings.Repeat("é", 2000))
	message := js.Status.Conditions[0].Message
	if !utf8.ValidString(message) || len(message) < 1000 || len(message) > 1024 {
		t.Errorf("message has %d bytes, valid: %t; want about 1024 valid bytes", len(message), utf8.ValidString(message))
	}
}

func TestJobSetEvicted(t *testing.T) {
	evicted := workload(metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: "Preempted", Message: "for jobset-x"})
	all := jobsetstatus.JobSetEvicted(&jobsetapi.JobSet{}, 3, jobsetstatus.StageState{Index: 1, Name: "train", Workload: evicted})
	want := metav1.Condition{
		Type: jobsetstatus.StageAdmitted, Status: metav1.ConditionFalse, Reason: "EvictedDueToPreempted",
		Message: `Evicted from stage 2/3 "train", waiting for its pods to end: for jobset-x`,
	}
	progress := metav1.Condition{Type: jobsetstatus.StageInProgress, Status: metav1.ConditionTrue, Reason: "StageInProgress", Message: "2/3 train"}
	if len(all) != 2 || !jobsetstatus.Has(all, want) || !jobsetstatus.Has(all, progress) {
		t.Errorf("conditions = %+v, want %+v and %+v", all, want, progress)
	}
}

// A stage that runs and waits to grow is admitted, and reports why it waits.
func TestStageThatWaitsToGrow(t *testing.T) {
	admitted := &kueue.Workload{Status: kueue.WorkloadStatus{
		Admission:  &kueue.Admission{ClusterQueue: "research"},
		Conditions: []metav1.Condition{{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}},
	}}
	waiting := &kueue.Workload{
		Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "a", Count: 2}, {Name: "b", Count: 1}}},
		Status: kueue.WorkloadStatus{Conditions: []metav1.Condition{
			{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "WaitingForQuota", Message: "needs 3"},
		}},
	}
	summary := jobsetstatus.Summary{Stages: 1, Current: []jobsetstatus.StageState{{Name: "train", Workload: admitted, Growths: []*kueue.Workload{admitted, waiting}}}}
	c := jobsetstatus.JobSetProgress(&jobsetapi.JobSet{}, summary)[0]
	want := `Admitted stage 1/1 "train" by ClusterQueue "research" (waiting to grow by 3 pods: needs 3)`
	if c.Status != metav1.ConditionTrue || c.Message != want {
		t.Errorf("%s: %s, want True: %s", c.Status, c.Message, want)
	}
}
