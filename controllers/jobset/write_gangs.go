package jobset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/stages"
)

// ensureGangs creates the objects of gangs, and updates those that have drifted. If the objects of one stage cannot be written, only that stage
// waits: other stages may have ended and must release their quota.
func (r *Reconciler) ensureGangs(ctx context.Context, s *jobsetstate.Snapshot, w *stages.Step) error {
	var failed error
	for _, g := range w.EnsureGangs {
		err := r.ensureGangsOf(ctx, g)
		if err == nil {
			continue
		}
		w.ReleaseJobs = slices.DeleteFunc(w.ReleaseJobs, func(rel stages.ReleaseJobs) bool { return rel.Stage == g.Stage })
		switch {
		case apply.IsUnserved(err):
			w.ReportRefusedGangs(s, g.Stage, jobsetstatus.GangsNotServed, "ask your administrator to serve the API again", err)
		case apply.IsRefusal(err):
			w.ReportRefusedGangs(s, g.Stage, jobsetstatus.GangsRefused, "fix what it names, or ask your administrator", err)
		default:
			failed = errors.Join(failed, err)
		}
	}
	return stages.Independent(failed)
}

func (r *Reconciler) ensureGangsOf(ctx context.Context, g stages.EnsureGangs) error {
	for _, object := range g.Missing {
		// The client writes the response into the object.
		if err := r.config.Client.Create(ctx, object.DeepCopy()); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	for _, drifted := range g.Drifted {
		key := client.ObjectKeyFromObject(drifted.Existing)
		patch, err := drifted.Patch()
		if err != nil {
			return fmt.Errorf("render %s %s: %w", drifted.Existing.GetKind(), key, err)
		}
		if err := r.config.Client.Patch(ctx, drifted.Existing.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("change %s %s: %w", drifted.Existing.GetKind(), key, err)
		}
	}
	return nil
}

// deleteGangs deletes gang objects, except those that are already terminating. It does not wait for their deletion.
func (r *Reconciler) deleteGangs(ctx context.Context, _ *jobsetstate.Snapshot, w *stages.Step) error {
	var failed error
	for _, object := range w.DeleteGangs {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := r.config.Client.Delete(ctx, &unstructured.Unstructured{Object: object.Object}, client.Preconditions{UID: new(object.GetUID())}); client.IgnoreNotFound(err) != nil {
			failed = errors.Join(failed, fmt.Errorf("delete %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err))
		}
	}
	return stages.Independent(failed)
}
