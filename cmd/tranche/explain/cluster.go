package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/live"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// A cluster explains by the visibility API and a snapshot, with the rights of a user.
type cluster struct {
	*query.Cluster
	taker   live.Taker
	horizon time.Duration
	bound   simulator.Bound
	// about is what is explained, with the JobSet of a quota Workload that belongs to one.
	about *subject
	// known answers from the last snapshot, or is nil. missing says why there is none, or why it was not simulated.
	known   *offline
	missing string
}

// find implements source.
func (c *cluster) find(ctx context.Context, name subjectName) (*subject, error) {
	s, err := c.read(ctx, name)
	c.about, c.missing = s, ""
	return s, err
}

// read requires only the permission to read the JobSet or Job and its quota Workloads.
func (c *cluster) read(ctx context.Context, name subjectName) (*subject, error) {
	for _, one := range []struct {
		kind string
		read func(context.Context, types.NamespacedName) (*subject, error)
	}{{workloadKind, c.readWorkload}, {jobSetKind, c.readJobSet}, {jobKind, c.readJob}} {
		if name.Kind != "" && name.Kind != one.kind {
			continue
		}
		if s, err := one.read(ctx, name.NamespacedName); s != nil || err != nil {
			return s, err
		}
	}
	return nil, exitcode.AsBadInput(errNotFound(name, c.namespacesOf(ctx, name)...))
}

// namespacesOf returns the namespaces that have an object of a name, as far as the user may list objects of all namespaces.
func (c *cluster) namespacesOf(ctx context.Context, name subjectName) []string {
	var all []string
	for kind, gvk := range map[string]schema.GroupVersionKind{
		workloadKind: kueue.SchemeGroupVersion.WithKind("WorkloadList"), jobSetKind: jobset.GroupVersion.WithKind("JobSetList"), jobKind: batchv1.SchemeGroupVersion.WithKind("JobList"),
	} {
		if name.Kind != "" && name.Kind != kind {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		if err := c.List(ctx, list, client.MatchingFields{"metadata.name": name.Name}); err != nil {
			continue // the answer is the same without it
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Namespace)
		}
	}
	return all
}

// readWorkload returns nil if the quota Workload does not exist.
func (c *cluster) readWorkload(ctx context.Context, key types.NamespacedName) (*subject, error) {
	var one kueue.Workload
	switch err := c.Get(ctx, key, &one); {
	case err == nil:
		js := &jobsetapi.JobSet{}
		if name := one.Labels[apis.JobSetLabel]; name != "" {
			err = c.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: name}, js)
			if client.IgnoreNotFound(err) != nil && !apierrors.IsForbidden(err) {
				return nil, fmt.Errorf("read JobSet %s/%s: %w", key.Namespace, name, err)
			}
		}
		return &subject{key: key, jobSet: js, workloads: []*kueue.Workload{&one}}, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read quota Workload %s: %w", key, err)
	}
	return nil, nil //nolint:nilnil // no such object is no error
}

// readJobSet returns nil if neither the JobSet nor a quota Workload of it exists.
func (c *cluster) readJobSet(ctx context.Context, key types.NamespacedName) (*subject, error) {
	s := &subject{key: key, isJobSet: true, jobSet: &jobsetapi.JobSet{}}
	if err := c.Get(ctx, key, s.jobSet); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	var err error
	if s.workloads, err = c.workloadsOf(ctx, s.jobSet, key, apis.JobSetLabel); err != nil || s.jobSet.Name == "" && len(s.workloads) == 0 {
		return nil, err
	}
	return s, nil
}

// readJob returns nil if neither the Job nor a quota Workload of it exists.
func (c *cluster) readJob(ctx context.Context, key types.NamespacedName) (*subject, error) {
	s := &subject{key: key, jobSet: &jobsetapi.JobSet{}, job: &batchv1.Job{}}
	if err := c.Get(ctx, key, s.job); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read Job %s: %w", key, err)
	}
	var err error
	if s.workloads, err = c.workloadsOf(ctx, s.job, key, apis.JobLabel); err != nil || s.job.Name == "" && len(s.workloads) == 0 {
		return nil, err
	}
	return s, nil
}

// workloadsOf returns the quota Workloads that name their owner in a label. Those that Kueue has made have only its UID.
func (c *cluster) workloadsOf(ctx context.Context, owner client.Object, key types.NamespacedName, label string) ([]*kueue.Workload, error) {
	all, err := c.labelled(ctx, key.Namespace, label, key.Name)
	if err != nil || len(all) > 0 || owner.GetUID() == "" {
		return all, err
	}
	return c.labelled(ctx, key.Namespace, apis.JobUIDLabel, string(owner.GetUID()))
}

func (c *cluster) labelled(ctx context.Context, namespace, label, value string) ([]*kueue.Workload, error) {
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{label: value}); err != nil {
		return nil, fmt.Errorf("list the quota Workloads with the label %s=%s: %w", label, value, err)
	}
	var all []*kueue.Workload
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// why implements source.
func (c *cluster) why(ctx context.Context, w *kueue.Workload) (x *Workload, limits, err error) {
	item, err := c.lookUp(ctx, w)
	switch {
	case collect.IsUnserved(err) || apierrors.IsForbidden(err):
		return c.whyWithout(ctx, w, err)
	case err != nil:
		return nil, nil, err
	case item == nil:
		return newWorkload(w), nil, nil
	}
	x = newWorkload(w)
	x.Position = &Position{
		InClusterQueue: int(item.PositionInClusterQueue), InLocalQueue: int(item.PositionInLocalQueue),
		LocalQueue: string(item.LocalQueueName), Priority: item.Priority,
	}
	x.Explanation = &visibilityapi.Explanation{}
	if text := item.Annotations[apis.ExplanationAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), x.Explanation); err != nil {
			return nil, nil, fmt.Errorf("read the explanation of quota Workload %s: %w", client.ObjectKeyFromObject(w), err)
		}
	}
	c.addSets(ctx, x, w)
	return x, nil, nil
}

// addSets adds what would let a pending quota Workload in, if the user may read all that decides it.
func (c *cluster) addSets(ctx context.Context, x *Workload, w *kueue.Workload) {
	c.refresh(ctx)
	x.ExpectedStart = c.expectedStart(w)
	if c.known != nil {
		x.LetIn = c.known.letIn[keyOf(w)] // nil if it no longer waits
	}
}

// refresh takes a snapshot, unless the last one will do. What the verb says from elsewhere does not depend on it.
func (c *cluster) refresh(ctx context.Context) {
	s, missing, err := c.taker.Take(ctx, func(taken *snapshot.Snapshot) bool {
		return c.known != nil && c.known.Snapshot == taken && c.known.hasAll(c.about.workloads)
	})
	switch {
	case err != nil:
		c.known, c.missing = nil, err.Error()
		return
	case s == nil:
		c.known, c.missing = nil, missing
		return
	case c.known != nil && c.known.Snapshot == s:
		c.missing = c.known.missing
		return
	}
	o := &offline{Snapshot: s, horizon: c.horizon, bound: c.bound, startOf: expected.Now, warnings: c.taker.Warnings}
	if err := o.ask(c.about.workloads); err != nil {
		c.known, c.missing = nil, err.Error()
		return
	}
	c.known, c.missing = o, o.missing
}

// expectedStart implements source: the manager writes it for the first waiting stage of a JobSet. That of others is known from a snapshot.
func (c *cluster) expectedStart(w *kueue.Workload) *expected.Start {
	e := c.about.writtenStart(w)
	if e != nil && (c.known == nil || e.Certainty != jobsetstatus.StartNotPredicted) {
		return expected.Written(e)
	}
	if c.known != nil {
		return c.known.expectedStart(w)
	}
	return nil
}

// whyWithout answers from a snapshot, if the user may read one. unserved is why the visibility API does not answer.
func (c *cluster) whyWithout(ctx context.Context, w *kueue.Workload, unserved error) (x *Workload, limits, err error) {
	if c.refresh(ctx); c.known == nil {
		return nil, errors.New(collect.WithoutVisibility(unserved)), nil
	}
	if x, limits, err = c.known.why(ctx, w); x != nil {
		x.ExpectedStart = c.expectedStart(w)
	}
	return x, limits, err
}

// lookUp asks through the ClusterQueue, which returns more, and through the LocalQueue if that is forbidden. It returns nil for a quota
// Workload that is not pending.
func (c *cluster) lookUp(ctx context.Context, w *kueue.Workload) (*visibility.PendingWorkload, error) {
	local := types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
	q := query.Parameters{Only: client.ObjectKeyFromObject(w)}
	var lq kueue.LocalQueue
	err := c.Get(ctx, local, &lq)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read LocalQueue %s: %w", local, err)
	}
	var summary *visibility.PendingWorkloadsSummary
	if err == nil {
		summary, err = c.Pending(ctx, types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}, q)
	}
	if isDenied(err) {
		summary, err = c.Pending(ctx, local, q)
	}
	if err != nil || len(summary.Items) == 0 {
		return nil, err
	}
	return &summary.Items[0], nil
}

// isDenied reports whether the LocalQueue has to be asked: the ClusterQueue may not be read, or does not exist.
func isDenied(err error) bool {
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && !collect.IsUnserved(err))
}
