package jobsetstatus_test

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// TestPreemptionPending: a JobSet has the condition once one of its stages has had notice, and keeps the reason why the last notice ended.
func TestPreemptionPending(t *testing.T) {
	at := func(second int64, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{
			Type: apis.PreemptionPendingCondition, Status: status, Reason: reason, Message: reason, LastTransitionTime: metav1.Unix(second, 0),
		}
	}
	condition := func(status metav1.ConditionStatus, reason string) metav1.Condition { return at(100, status, reason) }
	holder := func(conditions ...metav1.Condition) *kueue.Workload {
		w := workload(append(conditions, metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue})...)
		w.Status.Admission = &kueue.Admission{}
		return w
	}
	noticed, withdrawn := condition(metav1.ConditionTrue, kueue.InClusterQueueReason), condition(metav1.ConditionFalse, "Withdrawn")
	preempted := at(105, metav1.ConditionFalse, kueue.WorkloadEvictedByPreemption)
	ended := metav1.Condition{Status: metav1.ConditionFalse, Reason: "Ended"}
	for name, test := range map[string]struct {
		before    []metav1.Condition
		workloads []*kueue.Workload
		want      metav1.Condition
	}{
		"never":                     {nil, []*kueue.Workload{holder()}, metav1.Condition{}},
		"the second stage":          {nil, []*kueue.Workload{holder(), holder(noticed)}, noticed},
		"withdrawn":                 {[]metav1.Condition{noticed}, []*kueue.Workload{holder(withdrawn)}, withdrawn},
		"withdrawn long ago":        {[]metav1.Condition{withdrawn}, []*kueue.Workload{holder()}, withdrawn},
		"short second notice":       {[]metav1.Condition{withdrawn}, []*kueue.Workload{holder(), holder(preempted)}, preempted},
		"the last of two":           {[]metav1.Condition{noticed}, []*kueue.Workload{holder(preempted), holder(withdrawn)}, preempted},
		"an earlier one":            {[]metav1.Condition{preempted}, []*kueue.Workload{holder(withdrawn)}, preempted},
		"noticed again":             {[]metav1.Condition{withdrawn}, []*kueue.Workload{holder(noticed)}, noticed},
		"finished":                  {[]metav1.Condition{noticed}, []*kueue.Workload{holder()}, ended},
		"left over without a quota": {[]metav1.Condition{noticed}, []*kueue.Workload{workload(noticed)}, ended},
		"a user wrote it":           {[]metav1.Condition{condition(metav1.ConditionTrue, "Mine")}, []*kueue.Workload{nil}, ended},
	} {
		js := &jobsetapi.JobSet{}
		js.Status.Conditions = test.before
		var summary jobsetstatus.Summary
		for i, w := range test.workloads {
			summary.Stages++
			if w != nil {
				summary.Current = append(summary.Current, jobsetstatus.StageState{Index: i, Name: "s", Workload: w})
			}
		}
		got := apimeta.FindStatusCondition(jobsetstatus.JobSetProgress(js, summary), apis.PreemptionPendingCondition)
		switch {
		case got == nil:
			got = &metav1.Condition{}
		case !jobsetstatus.IsOwned(got.Type):
			t.Errorf("%s is not owned", got.Type)
		}
		if got.Status != test.want.Status || got.Reason != test.want.Reason {
			t.Errorf("%s: %s %s, want %s %s", name, got.Status, got.Reason, test.want.Status, test.want.Reason)
		}
	}
}
