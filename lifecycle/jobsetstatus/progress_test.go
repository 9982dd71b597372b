package jobsetstatus_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

func TestStageInProgress(t *testing.T) {
	stages := func(names ...string) (all []jobsetstatus.StageState) {
		for i, name := range names {
			all = append(all, jobsetstatus.StageState{Index: i, Name: name, Workload: workload()})
		}
		return all
	}
	for name, c := range map[string]struct {
		summary jobsetstatus.Summary
		want    metav1.Condition
	}{
		"one": {
			jobsetstatus.Summary{Stages: 3, Current: stages("load")},
			metav1.Condition{Status: metav1.ConditionTrue, Reason: "StageInProgress", Message: "1/3 load"},
		},
		"many": {
			jobsetstatus.Summary{Stages: 5, Current: stages("a", "b", "c", "d", "e")},
			metav1.Condition{Status: metav1.ConditionTrue, Reason: "StageInProgress", Message: "1/5 a, 2/5 b, 3/5 c and 2 more"},
		},
		"none yet": {jobsetstatus.Summary{Stages: 3}, metav1.Condition{Status: metav1.ConditionFalse, Reason: "Preparing"}},
		"over":     {jobsetstatus.Summary{Stages: 3, Over: true}, metav1.Condition{Status: metav1.ConditionFalse, Reason: "Finished"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Type = jobsetstatus.StageInProgress
			if all := jobsetstatus.JobSetProgress(&jobsetapi.JobSet{}, c.summary); !jobsetstatus.Has(all, c.want) {
				t.Errorf("conditions = %+v, want %+v", all, c.want)
			}
		})
	}
}

func TestWaitNews(t *testing.T) {
	refused := func(reason, message string, more ...metav1.Condition) *kueue.Workload {
		return workload(append(more, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason, Message: message})...)
	}
	waits := func(index int, w *kueue.Workload) jobsetstatus.Summary {
		return jobsetstatus.Summary{Stages: 2, Current: []jobsetstatus.StageState{{Index: index, Name: []string{"load", "train"}[index], Workload: w}}}
	}
	short := "8 nvidia.com/gpu of flavor a100: 5 of 16 free"
	long := "8 nvidia.com/gpu of flavor a100: " + strings.Repeat("é", 1000)
	for name, c := range map[string]struct {
		before *jobsetstatus.Summary
		now    jobsetstatus.Summary
		want   string
	}{
		"the first refusal": {nil, waits(1, refused("WaitingForQuota", short)), `Waiting to admit stage 2/2 "train": ` + short},
		"not yet looked at": {nil, waits(1, workload()), ""},
		"to be looked at":   {nil, waits(1, refused("PendingEvaluation", "")), ""},
		"kept out of the queue": {
			nil, waits(1, refused("WaitingForQuota", short, metav1.Condition{Type: kueue.WorkloadRequeued, Status: metav1.ConditionFalse, Reason: "PodsReadyTimeout"})), "",
		},
		"the same":      {new(waits(1, refused("WaitingForQuota", short))), waits(1, refused("WaitingForQuota", short)), ""},
		"the same, cut": {new(waits(1, refused("WaitingForQuota", long))), waits(1, refused("WaitingForQuota", long)), ""},
		"other amounts": {
			new(waits(1, refused("WaitingForQuota", short))), waits(1, refused("WaitingForQuota", "8 nvidia.com/gpu of flavor a100: 12 of 16 free")), "",
		},
		"another flavor": {
			new(waits(1, refused("WaitingForQuota", short))), waits(1, refused("WaitingForQuota", "8 nvidia.com/gpu of flavor h100: 0 of 16 free")),
			"flavor h100: 0 of 16",
		},
		"another reason": {new(waits(1, refused("WaitingForQuota", short))), waits(1, refused("ExceedsMaxQuota", short)), short},
		"another stage":  {new(waits(0, refused("WaitingForQuota", short))), waits(1, refused("WaitingForQuota", short)), "train"},
		"refused again after an admission": {
			new(waits(1, workload(metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}))), waits(1, refused("WaitingForQuota", short)), short,
		},
		"admitted":  {nil, waits(1, workload(metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})), ""},
		"suspended": {nil, jobsetstatus.Summary{Stages: 2, Suspended: true, Current: waits(1, refused("WaitingForQuota", short)).Current}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{}
			if c.before != nil {
				js.Status.Conditions = jobsetstatus.JobSetProgress(js, *c.before)
			}
			got := jobsetstatus.NewWaitReason(js, c.now)
			switch {
			case got == nil && c.want != "":
				t.Errorf("no news, want %q", c.want)
			case got != nil && (c.want == "" || !strings.Contains(got.Message, c.want) || got.Workload != c.now.Current[0].Workload):
				t.Errorf("news = %+v, want %q", got, c.want)
			}
		})
	}
}
