package testenv

import (
	"context"
	"fmt"
	"path/filepath"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
)

// InstallBeside installs Tranche beside Kueue with the commands of docs/admin.md, and waits until the policies are in force. No pod of the Deployment
// runs a manager here: see StartManager.
func (w *World) InstallBeside(ctx context.Context) error {
	for _, overlay := range []string{"config/beside/crd", "config/beside"} {
		if err := w.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(w.Root, overlay)); err != nil {
			return err
		}
	}
	probe := func(ctx context.Context) (bool, error) {
		js := probeJobSet()
		js.Labels = map[string]string{apis.OwnQueueLabel: "probe"}
		if err := w.Admin.Create(ctx, js, client.DryRunAll); err != nil || js.Spec.ReplicatedJobs[0].Template.Labels[apis.HoldLabel] == "" {
			return false, nil //nolint:nilerr // not yet in force
		}
		forged := probeJobSet()
		forged.Annotations = map[string]string{apis.StartedAnnotation: "true"}
		if w.Admin.Create(ctx, forged, client.DryRunAll) == nil {
			return false, nil
		}
		job := &batchv1.Job{ObjectMeta: probeJobSet().ObjectMeta, Spec: js.Spec.ReplicatedJobs[0].Template.Spec}
		job.Labels[apis.HoldLabel] = apis.HoldValue
		err := w.Admin.Create(ctx, job, client.DryRunAll)
		return err == nil && ptr.Deref(job.Spec.Suspend, false) && job.Labels[apis.QueueLabel] == "", nil
	}
	if err := wait.PollUntilContextTimeout(ctx, readyEvery, readyTimeout, true, probe); err != nil {
		return fmt.Errorf("wait until the policies are in force: %w", err)
	}
	return nil
}

// RemoveBeside deletes the policies of InstallBeside, and waits until none is in force. The permissions of the manager stay.
func (w *World) RemoveBeside(ctx context.Context) error {
	if err := w.Kubectl(ctx, "delete", "-k", filepath.Join(w.Root, "config/beside/policies")); err != nil {
		return err
	}
	probe := func(ctx context.Context) (bool, error) {
		js := probeJobSet()
		js.Annotations = map[string]string{apis.StartedAnnotation: "true"}
		err := w.Admin.Create(ctx, js, client.DryRunAll)
		return err == nil && js.Spec.ReplicatedJobs[0].Template.Labels[apis.HoldLabel] == "", nil
	}
	if err := wait.PollUntilContextTimeout(ctx, readyEvery, readyTimeout, true, probe); err != nil {
		return fmt.Errorf("wait until the policies are gone: %w", err)
	}
	return nil
}
