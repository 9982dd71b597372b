package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
)

const (
	uninstallPoll    = 200 * time.Millisecond
	uninstallTimeout = 5 * time.Minute
)

// uninstallFlags are those of `tranche uninstall`.
type uninstallFlags struct {
	query.Flags
	check, everything, yes bool
	timeout                time.Duration
}

// A cluster is one that is cleaned up.
type cluster struct{ *query.Cluster }

func newUninstallCommand() *cobra.Command {
	flags := uninstallFlags{Flags: query.Flags{Version: versionText()}}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Clean up the cluster after Tranche is uninstalled",
		Long: "Clean up the cluster after the Deployment of the manager and the admission policies have been deleted: remove the finalizers of the\n" +
			"manager, and trigger the JobSet controller to start the held Jobs of running JobSets. Queues, quota Workloads, JobSets and CRDs stay.\n" +
			"With --everything, JobSets and Jobs in queues, all objects of kueue.x-k8s.io and their CRDs are deleted, too, but not the CRD of JobSets.\n" +
			"If Kueue is installed, its queues, Workloads and CRDs stay: only quota Workloads of stages lose their finalizer, and --everything deletes\n" +
			"JobSets in queues, but no Job of Kueue.\n" +
			"It lists what it would delete, and asks first.\n" +
			"With --check, the command changes nothing: it lists the objects that it would change and those that must be deleted first, and\n" +
			"fails if there are such objects.\n\n" +
			"Exit code: 0 if all is done, and with --check if nothing must be deleted first; 1 otherwise; 2 on bad input.",
		Example: "  tranche uninstall --check\n" +
			"  kubectl delete -k config/default   # or: helm uninstall tranche --namespace tranche-system\n" +
			"  tranche uninstall",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			return (&cluster{c}).uninstall(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), &flags)
		},
	}
	flags.AddKubeconfig(cmd)
	cmd.Flags().BoolVar(&flags.check, "check", false, "change nothing: list the objects that would change, and fail if other objects must be deleted first")
	cmd.Flags().BoolVar(&flags.everything, "everything", false, "also delete JobSets in queues and, if Kueue is not installed, queued Jobs, all objects of kueue.x-k8s.io and their CRDs")
	cmd.Flags().BoolVarP(&flags.yes, "yes", "y", false, "with --everything: do not ask")
	cmd.Flags().DurationVar(&flags.timeout, "timeout", uninstallTimeout, "how long to wait until deleted objects are gone")
	return cmd
}

func (c *cluster) uninstall(ctx context.Context, in io.Reader, out io.Writer, flags *uninstallFlags) error {
	found, err := c.takeInventory(ctx)
	if err != nil {
		return err
	}
	outcome := found.kept()
	if flags.everything {
		outcome = found.deleted()
	}
	if err := found.write(out, outcome); err != nil {
		return err
	}
	if len(found.obstacles) > 0 {
		return errors.New("delete the objects listed above first")
	}
	if flags.check {
		return nil
	}
	if flags.everything && !flags.yes {
		if err := output.Confirm(in, out); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, flags.timeout)
	defer cancel()
	if flags.everything {
		if err := c.deleteQueued(ctx, out, found); err != nil {
			return err
		}
		// Their quota Workloads may have changed in the meantime.
		if found, err = c.takeInventory(ctx); err != nil {
			return err
		}
	}
	if err := c.removeFinalizers(ctx, out, found.pinned); err != nil {
		return err
	}
	if flags.everything {
		return c.deleteKueue(ctx, out, found.crds)
	}
	return c.resumeJobs(ctx, out, found.queued)
}

// deleteQueued deletes JobSets and queued Jobs and waits until their pods and Jobs are gone, so that a later installation does not admit others
// to accelerators that are still in use.
func (c *cluster) deleteQueued(ctx context.Context, out io.Writer, found *inventory) error {
	var all []client.Object
	for i := range found.queued {
		all = append(all, found.queued[i].jobSet)
	}
	for _, job := range found.queuedJobs {
		all = append(all, job)
	}
	for _, object := range all {
		err := c.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationForeground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", kindOf(object), client.ObjectKeyFromObject(object), err)
		}
	}
	for _, object := range all {
		// A quota Workload blocks the deletion of its owner while it has its finalizer.
		if err := c.await(ctx, object, func() error { return c.unpinWorkloads(ctx, object.GetNamespace(), found) }); err != nil {
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "deleted %s\n", countKinds(all))
	return err
}

func (c *cluster) unpinWorkloads(ctx context.Context, namespace string, found *inventory) error {
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return ignoreUnserved(err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil && found.isPinned(&list.Items[i]) {
			if err := c.unpin(ctx, &list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeFinalizers removes the finalizers of quota Workloads first, since ClusterQueues, flavors and checks are kept because of them.
func (c *cluster) removeFinalizers(ctx context.Context, out io.Writer, pinned []client.Object) error {
	names := namesOfFinalizers(pinned)
	for _, object := range pinned {
		if err := c.unpin(ctx, object); err != nil {
			return err
		}
	}
	if len(pinned) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "removed the finalizer %s of %s\n", names, countKinds(pinned))
	return err
}

func (c *cluster) unpin(ctx context.Context, object client.Object) error {
	if !slices.ContainsFunc(object.GetFinalizers(), isFinalizer) {
		return nil
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("copy %s %s", kindOf(object), client.ObjectKeyFromObject(object))
	}
	object.SetFinalizers(slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isFinalizer))
	// The lock keeps a finalizer that another client adds in the meantime.
	err := c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer of %s %s: %w", kindOf(object), client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// resumeJobs makes the JobSet controller reconcile JobSets that have started and have held Jobs: without the admission policies it resumes
// these Jobs. It acts on a JobSet that changes, so an annotation is added and removed again.
func (c *cluster) resumeJobs(ctx context.Context, out io.Writer, queued []queuedJobSet) error {
	jobs := 0
	for i := range queued {
		q := &queued[i]
		if !q.runs() || q.held == 0 {
			continue
		}
		key := client.ObjectKeyFromObject(q.jobSet)
		for _, value := range []string{`"true"`, "null"} {
			body := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%s}}}`, q.jobSet.UID, apis.UninstalledAnnotation, value)
			if err := c.Patch(ctx, q.jobSet, client.RawPatch(types.MergePatchType, body)); err != nil {
				return fmt.Errorf("annotate JobSet %s, to trigger the JobSet controller: %w", key, err)
			}
		}
		jobs += q.held
	}
	if jobs == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "asked the JobSet controller to resume %s, in the order of their JobSets\n", count(jobs, "held Job"))
	return err
}

// heldJobs counts the Jobs of a JobSet that are held.
func (c *cluster) heldJobs(ctx context.Context, js *jobsetapi.JobSet) (int, error) {
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.InNamespace(js.Namespace), client.MatchingLabels{apis.HoldLabel: apis.HoldValue}); err != nil {
		return 0, fmt.Errorf("list the Jobs of namespace %s: %w", js.Namespace, err)
	}
	held := 0
	for i := range jobs.Items {
		if metav1.IsControlledBy(&jobs.Items[i], js) && ptr.Deref(jobs.Items[i].Spec.Suspend, false) {
			held++
		}
	}
	return held, nil
}

// deleteKueue deletes the CRDs of kueue.x-k8s.io, and so all of their objects, whose finalizers were removed, and the related policies.
func (c *cluster) deleteKueue(ctx context.Context, out io.Writer, crds []metav1.PartialObjectMetadata) error {
	for _, kind := range []string{
		"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
	} {
		policy := metadataOf("admissionregistration.k8s.io", "v1", kind)
		policy.Name = keepParameters
		if err := c.Delete(ctx, policy); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s %s: %w", kind, policy.Name, err)
		}
	}
	for i := range crds {
		if err := c.Delete(ctx, &crds[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete CustomResourceDefinition %s: %w", crds[i].Name, err)
		}
	}
	for i := range crds {
		if err := c.await(ctx, &crds[i], func() error { return nil }); err != nil {
			return err
		}
	}
	if len(crds) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "deleted %s of kueue.x-k8s.io with all their objects\n", count(len(crds), "CRD"))
	return err
}

// await waits until an object is gone, and calls meanwhile before each check.
func (c *cluster) await(ctx context.Context, object client.Object, meanwhile func() error) error {
	err := wait.PollUntilContextCancel(ctx, uninstallPoll, true, func(ctx context.Context) (bool, error) {
		if err := meanwhile(); err != nil {
			return false, err
		}
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		if isUnknownKind(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait until %s %s is deleted: %w; its finalizers are %v", kindOf(object), client.ObjectKeyFromObject(object), err, object.GetFinalizers())
	}
	return nil
}
