package live

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

const (
	// visibilityPath is where Kueue's visibility API is served.
	visibilityPath = "/apis/visibility.kueue.x-k8s.io/v1beta2"
	// maxExplained is the number of stages of a JobSet that are explained.
	maxExplained = 8
)

// JobSet reads a JobSet, its quota Workloads, and why they wait.
func (f *Feed) JobSet(ctx context.Context, key types.NamespacedName) (*dashboard.JobSetObjects, error) {
	objects := &dashboard.JobSetObjects{JobSet: &jobsetapi.JobSet{}, Explanations: map[string]*visibilityapi.Explanation{}, LetIn: map[string]*dashboard.LetIn{}}
	if err := f.Client.Get(ctx, key, objects.JobSet); err != nil {
		return nil, fmt.Errorf("read JobSet %s: %w", key, err)
	}
	var list kueue.WorkloadList
	err := f.Client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{apis.JobSetLabel: key.Name})
	switch {
	case apierrors.IsForbidden(err):
		objects.Gap = "The stages are not shown: " + collect.ReasonOf(err)
		return objects, nil
	case err != nil:
		return nil, fmt.Errorf("list the quota Workloads of JobSet %s: %w", key, err)
	}
	for i := range list.Items {
		objects.Workloads = append(objects.Workloads, &list.Items[i])
	}
	f.explain(ctx, objects)
	return objects, nil
}

// explain asks the visibility API about the pending quota Workloads of a JobSet, through their LocalQueue.
func (f *Feed) explain(ctx context.Context, objects *dashboard.JobSetObjects) {
	if f.Raw == nil {
		return
	}
	for _, w := range objects.Workloads {
		if !quotaworkload.MayQueue(w) || len(objects.Explanations) == maxExplained {
			continue
		}
		x, err := f.explanationOf(ctx, w)
		if err != nil {
			objects.Gap = "Holders of the missing quota are not shown: " + whyUnanswered(err)
			return
		}
		if x != nil {
			objects.Explanations[w.Name] = x
		}
	}
}

// whyUnanswered returns why the visibility API does not answer, and what to do if it is not installed.
func whyUnanswered(err error) string {
	if collect.IsUnserved(err) || apierrors.IsForbidden(err) {
		return collect.WithoutVisibility(err)
	}
	return "the visibility API does not answer: " + collect.ReasonOf(err)
}

// explanationOf returns nil for a quota Workload that is no longer pending.
func (f *Feed) explanationOf(ctx context.Context, w *kueue.Workload) (*visibilityapi.Explanation, error) {
	body, err := f.Raw.Get().AbsPath(visibilityPath, "namespaces", w.Namespace, "localqueues", string(w.Spec.QueueName), "pendingworkloads").
		Param("fieldSelector", "metadata.namespace="+w.Namespace+",metadata.name="+w.Name).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var summary visibility.PendingWorkloadsSummary
	if err := json.Unmarshal(body, &summary); err != nil {
		return nil, err
	}
	if len(summary.Items) == 0 {
		return nil, nil //nolint:nilnil // no explanation is no error
	}
	var x visibilityapi.Explanation
	if err := json.Unmarshal([]byte(summary.Items[0].Annotations[apis.ExplanationAnnotation]), &x); err != nil {
		return nil, err
	}
	return &x, nil
}
