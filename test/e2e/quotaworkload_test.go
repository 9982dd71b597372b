package e2e_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// setChecks writes the states of AdmissionChecks of a stage, as their controllers would.
func (t team) setChecks(ctx context.Context, jobSet, stage string, checks ...kueue.AdmissionCheckState) {
	GinkgoHelper()
	for i := range checks {
		checks[i].LastTransitionTime = metav1.Now()
	}
	w := t.workload(ctx, Default, jobSet, stage)
	Expect(applyStatus(ctx, w, "checks", kueue.WorkloadStatus{AdmissionChecks: checks})).To(Succeed())
}

// applyStatus writes a part of the status of a quota Workload, if no other client has written to it since it was read.
func applyStatus(ctx context.Context, w *kueue.Workload, owner client.FieldOwner, status kueue.WorkloadStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	patch.SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind("Workload"))
	patch.SetNamespace(w.Namespace)
	patch.SetName(w.Name)
	patch.SetResourceVersion(w.ResourceVersion)
	return env.Admin.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(patch), owner, client.ForceOwnership)
}

// evict sets the condition Evicted on the quota Workload of a stage, as another controller would.
func (t team) evict(ctx context.Context, jobSet, stage string, why workloadstatus.Eviction) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := t.workload(ctx, g, jobSet, stage)
		g.Expect(applyStatus(ctx, w, apis.AdmissionFieldManager, workloadstatus.Evicted(w, why, time.Now()))).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

func (t team) setActive(ctx context.Context, jobSet, stage string, active bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		w := t.workload(ctx, g, jobSet, stage)
		w.Spec.Active = &active
		g.Expect(env.Admin.Update(ctx, w)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// workload returns the quota Workload of a stage.
func (t team) workload(ctx context.Context, g Gomega, jobSet, stage string) *kueue.Workload {
	all := t.workloadsOf(ctx, g, jobSet, stage)
	g.Expect(all).To(HaveLen(1))
	return &all[0]
}

// stateOf returns the conditions of a quota Workload with their reasons, but not why it waits.
func stateOf(w *kueue.Workload) map[string]string {
	state := map[string]string{}
	for _, c := range w.Status.Conditions {
		switch c.Type {
		case kueue.WorkloadQuotaReserved:
			state[c.Type] = string(c.Status)
		case apis.WaitingCondition: // why it waits, once the engine has checked it again
		default:
			state[c.Type] = string(c.Status) + " " + c.Reason
		}
	}
	return state
}
