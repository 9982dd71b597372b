package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
)

// A cluster explains by the visibility API, with the rights of a user.
type cluster struct {
	*query.Cluster
	fallback fallback
	// workloads are all that are explained.
	workloads []*kueue.Workload
}

// find implements source.
func (c *cluster) find(ctx context.Context, key types.NamespacedName) (*subject, error) {
	s, err := c.read(ctx, key)
	if err == nil {
		c.workloads = s.workloads
	}
	return s, err
}

// read requires only the permission to read the JobSet and its quota Workloads.
func (c *cluster) read(ctx context.Context, key types.NamespacedName) (*subject, error) {
	var one kueue.Workload
	switch err := c.Get(ctx, key, &one); {
	case err == nil:
		return &subject{key: key, workloads: []*kueue.Workload{&one}}, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("read quota Workload %s: %w", key, err)
	}
	s := &subject{key: key, isJobSet: true, jobSet: &jobsetapi.JobSet{}}
	if err := c.Get(ctx, key, s.jobSet); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{apis.JobSetLabel: key.Name}); err != nil {
		return nil, fmt.Errorf("list the quota Workloads of JobSet %s: %w", key, err)
	}
	for i := range list.Items {
		s.workloads = append(s.workloads, &list.Items[i])
	}
	if s.jobSet.Name == "" && len(s.workloads) == 0 {
		return nil, exitcode.AsBadInput(errNotFound(key))
	}
	return s, nil
}

// why implements source.
func (c *cluster) why(ctx context.Context, w *kueue.Workload) (x *Workload, limits, err error) {
	item, err := c.lookUp(ctx, w)
	switch {
	case query.IsUnserved(err) || apierrors.IsForbidden(err):
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
	return x, nil, nil
}

// whyWithout answers from a snapshot, if the user may read one. unserved is why the visibility API does not answer.
func (c *cluster) whyWithout(ctx context.Context, w *kueue.Workload, unserved error) (x *Workload, limits, err error) {
	o, err := c.fallback.offline(ctx, c.workloads)
	if err != nil {
		if _, failure := fmt.Fprintf(c.fallback.warnings, "the visibility API does not answer, and there is no snapshot instead: %v\n", err); failure != nil {
			return nil, nil, failure
		}
		c.fallback.warnings = io.Discard // a watch would repeat it
	}
	if o == nil {
		return nil, unserved, nil
	}
	return o.why(ctx, w)
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
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && !query.IsUnserved(err))
}
