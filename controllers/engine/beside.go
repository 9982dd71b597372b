package engine

import (
	"context"
	"fmt"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/patch"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// refuseBeside writes why a stage waits, in a cohort tree that was taken over from Kueue. Kueue goes on writing the condition QuotaReserved there: a
// condition of our own is written once for each change, and Kueue does not react to it.
func (w *writer) refuseBeside(ctx context.Context, seen *kueue.Workload, d *admission.Refuse) error {
	wait := d.Wait()
	if c := apimeta.FindStatusCondition(seen.Status.Conditions, apis.WaitingCondition); c != nil && c.Reason == wait.Reason && c.Message == wait.Message {
		return nil
	}
	_, err := patch.ApplyWorkloadStatus(ctx, w.config.Client, seen, patch.Status{
		Part: workloadstatus.WaitingBeside(seen, wait, time.Now()), Owner: apis.WaitingFieldManager, ResourceVersion: seen.ResourceVersion,
	})
	return err
}

// leads reports whether the engine still admits where a stage is queued: its cohort tree may have been handed back since a decision.
func (w *writer) leads(ctx context.Context, stage admission.StageKey) bool {
	leads := false
	err := w.runner.View(ctx, func(e *admission.Engine) { leads = e.Leads(stage) })
	return err == nil && leads
}

// AwaitRefusals waits until the refusal that is being written now, if any, is written. Call it when the engine no longer admits in a cohort tree: no
// refusal of the tree is written afterwards, since the writers drop those of trees in which the engine does not admit.
func (r *Runner) AwaitRefusals(ctx context.Context) error {
	select {
	case r.writer.refusing <- struct{}{}:
		<-r.writer.refusing
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the refusal that is being written: %w", ctx.Err())
	}
}

// EndWaiting removes what refuseBeside has written, if there is anything: Tranche has admitted the quota Workload, or no longer admits in its ClusterQueue.
func EndWaiting(ctx context.Context, c client.Client, workload *kueue.Workload) error {
	if apimeta.FindStatusCondition(workload.Status.Conditions, apis.WaitingCondition) == nil {
		return nil
	}
	_, err := patch.ApplyWorkloadStatus(ctx, c, workload, patch.Status{Owner: apis.WaitingFieldManager})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the condition %s: %w", apis.WaitingCondition, err)
	}
	return nil
}
