package workloadstatus_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// What Kueue's controllers of jobs write when the pods of an evicted job have terminated.
func TestCleared(t *testing.T) {
	for name, c := range map[string]struct {
		evicted string
		bar     []string
		want    string
		// why is the reason and the message of QuotaReserved.
		why string
	}{
		"preempted":            {kueue.WorkloadEvictedByPreemption, nil, "True Preempted", "Pending: why"},
		"nodes failed":         {kueue.WorkloadEvictedDueToNodeFailures, nil, "True NodeFailures", "Pending: why"},
		"retried":              {kueue.WorkloadEvictedByAdmissionCheck, nil, "False AdmissionCheck", "Pending: why"},
		"not ready":            {kueue.WorkloadEvictedByPodsReadyTimeout, nil, "False PodsReadyTimeout", "Pending: why"},
		"preempted, but gated": {kueue.WorkloadEvictedByPreemption, []string{apis.StageGate}, "False AdmissionGated:stage", "Pending: why"},
		"suspended":            {"", []string{apis.SuspendedGate}, "False AdmissionGated:suspended", "Pending: Not in the queue: the JobSet is suspended by its user; set spec.suspend of the JobSet to false to requeue"},
		"must not start":       {"", []string{apis.StageGate}, "False AdmissionGated:stage", "Pending: Not in the queue: the stage waits for earlier stages of its JobSet"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
			w := &kueue.Workload{}
			w.Status.Admission = &kueue.Admission{ClusterQueue: "cq"}
			w.Status.UnhealthyNodes = []kueue.UnhealthyNode{{Name: "n"}}
			conditions := []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}, {Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}}
			if c.evicted != "" {
				conditions = append(conditions, metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: c.evicted, Message: "why"})
			}
			if c.bar != nil {
				conditions = append(conditions, quotaworkload.Bar(c.bar))
			}
			w.Status.Conditions = conditions
			got := workloadstatus.Cleared(w, now)
			requeued := apimeta.FindStatusCondition(got.Conditions, kueue.WorkloadRequeued)
			if requeued == nil || string(requeued.Status)+" "+requeued.Reason != c.want {
				t.Errorf("Requeued is %+v, want %s", requeued, c.want)
			}
			if reserved := apimeta.FindStatusCondition(got.Conditions, kueue.WorkloadQuotaReserved); reserved.Reason+": "+reserved.Message != c.why {
				t.Errorf("QuotaReserved is %+v, want %s", reserved, c.why)
			}
			if got.Admission != nil || apimeta.IsStatusConditionTrue(got.Conditions, kueue.WorkloadQuotaReserved) || apimeta.IsStatusConditionTrue(got.Conditions, kueue.WorkloadAdmitted) {
				t.Errorf("it still holds quota: %+v", got)
			}
			if len(got.UnhealthyNodes) != 1 {
				t.Error("a field of Kueue is lost")
			}
			if apimeta.FindStatusCondition(got.Conditions, apis.WaitingCondition) != nil {
				t.Error("the condition of Tranche's engine would stay, because Kueue does not remove it")
			}
		})
	}
}

// The topology requests of Kueue's integration of JobSets.
func TestJobSetTopology(t *testing.T) {
	const index, job = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
	request := func(change func(*kueue.PodSetTopologyRequest)) *kueue.PodSetTopologyRequest {
		r := &kueue.PodSetTopologyRequest{PodIndexLabel: new(index), SubGroupIndexLabel: new(job), SubGroupCount: new(int32(3))}
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		want        func(*kueue.PodSetTopologyRequest)
		isRefused   bool
	}{
		"none":          {nil, func(*kueue.PodSetTopologyRequest) {}, false},
		"required":      {map[string]string{kueue.PodSetRequiredTopologyAnnotation: "rack"}, func(r *kueue.PodSetTopologyRequest) { r.Required = new("rack") }, false},
		"preferred":     {map[string]string{kueue.PodSetPreferredTopologyAnnotation: "rack"}, func(r *kueue.PodSetTopologyRequest) { r.Preferred = new("rack") }, false},
		"unconstrained": {map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"}, func(r *kueue.PodSetTopologyRequest) { r.Unconstrained = new(true) }, false},
		"no boolean":    {map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "maybe"}, func(*kueue.PodSetTopologyRequest) {}, true},
		"a group":       {map[string]string{kueue.PodSetGroupName: "g"}, func(*kueue.PodSetTopologyRequest) {}, false},
		"a required group": {map[string]string{kueue.PodSetGroupName: "g", kueue.PodSetRequiredTopologyAnnotation: "rack"}, func(r *kueue.PodSetTopologyRequest) {
			r.Required, r.PodSetGroupName = new("rack"), new("g")
		}, false},
		"slices": {map[string]string{kueue.PodSetSliceRequiredTopologyAnnotation: "host", kueue.PodSetSliceSizeAnnotation: "4"}, func(r *kueue.PodSetTopologyRequest) {
			r.PodSetSliceRequiredTopology, r.PodSetSliceSize = new("host"), new(int32(4))
		}, false},
		"slices of no size": {map[string]string{kueue.PodSetSliceRequiredTopologyAnnotation: "host"}, func(*kueue.PodSetTopologyRequest) {}, true},
		"slices of size 0":  {map[string]string{kueue.PodSetSliceRequiredTopologyAnnotation: "host", kueue.PodSetSliceSizeAnnotation: "0"}, func(*kueue.PodSetTopologyRequest) {}, true},
		"constraints": {map[string]string{kueue.PodSetSliceRequiredTopologyConstraintsAnnotation: `[{"topology":"rack","size":2}]`}, func(r *kueue.PodSetTopologyRequest) {
			r.PodsetSliceRequiredTopologyConstraints = []kueue.PodsetSliceRequiredTopologyConstraint{{Topology: "rack", Size: 2}}
		}, false},
		"unreadable constraints": {map[string]string{kueue.PodSetSliceRequiredTopologyConstraintsAnnotation: `[`}, func(*kueue.PodSetTopologyRequest) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
			got, err := workloadstatus.JobSetTopology(template, 3)
			if diff := cmp.Diff(request(c.want), got); diff != "" || (err != nil) != c.isRefused {
				t.Errorf("error %v, request (-want +got):\n%s", err, diff)
			}
		})
	}
}
