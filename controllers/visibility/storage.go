package visibility

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// A queue is the resource whose subresource can be read. It has no content itself.
type queue struct {
	singular     string
	isNamespaced bool
}

var (
	_ rest.Storage              = queue{}
	_ rest.Scoper               = queue{}
	_ rest.SingularNameProvider = queue{}
	_ rest.GetterWithOptions    = pendingWorkloads{}
)

// New implements rest.Storage.
func (queue) New() runtime.Object { return &visibility.PendingWorkloadsSummary{} }

// Destroy implements rest.Storage.
func (queue) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (q queue) NamespaceScoped() bool { return q.isNamespaced }

// GetSingularName implements rest.SingularNameProvider.
func (q queue) GetSingularName() string { return q.singular }

// pendingWorkloads returns the pending quota Workloads of a queue.
type pendingWorkloads struct {
	queue
	throttle *engine.Throttle
	// reader reads quota Workloads from the cache.
	reader client.Reader
}

// NewGetOptions implements rest.GetterWithOptions.
func (p pendingWorkloads) NewGetOptions() (options runtime.Object, hasSubpath bool, key string) {
	return &question{Limit: defaultLimit}, false, ""
}

// Get implements rest.GetterWithOptions.
func (p pendingWorkloads) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	q, ok := options.(*question)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("read the query: got %T", options))
	}
	key := types.NamespacedName{Namespace: request.NamespaceValue(ctx), Name: name}
	only, isOne, err := q.only(key.Namespace)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if isOne {
		return p.one(ctx, key, only)
	}
	page, err := q.page()
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var all []admission.Pending
	exists := false
	if err := p.throttle.Ask(ctx, func(e *admission.Engine) { all, exists = p.list(e, key, page) }); err != nil {
		return nil, err
	}
	if !exists {
		return nil, p.notFound(key)
	}
	summary := &visibility.PendingWorkloadsSummary{Items: make([]visibility.PendingWorkload, len(all))}
	for i := range all {
		summary.Items[i] = p.convert(ctx, &all[i])
	}
	return summary, nil
}

// one returns a single quota Workload, with the reason why it waits.
func (p pendingWorkloads) one(ctx context.Context, key, only types.NamespacedName) (runtime.Object, error) {
	var (
		found          admission.Pending
		explanation    []byte
		exists, isHere bool
		failure        error
	)
	err := p.throttle.Ask(ctx, func(e *admission.Engine) {
		if _, exists = p.list(e, key, admission.Page{}); !exists {
			return
		}
		if found, isHere = e.PendingStage(only); !isHere || !p.has(key, &found) {
			isHere = false
			return
		}
		x, _ := e.Explanation(only)
		if p.isNamespaced {
			x = x.RedactedFor(key.Namespace)
		}
		explanation, failure = json.Marshal(x)
	})
	switch {
	case err != nil:
		return nil, err
	case failure != nil:
		return nil, apierrors.NewInternalError(fmt.Errorf("encode the explanation: %w", failure))
	case !exists:
		return nil, p.notFound(key)
	}
	summary := &visibility.PendingWorkloadsSummary{Items: []visibility.PendingWorkload{}}
	if isHere {
		item := p.convert(ctx, &found)
		item.Annotations = map[string]string{apis.ExplanationAnnotation: string(explanation)}
		summary.Items = append(summary.Items, item)
	}
	return summary, nil
}

// list also advances the clock of the engine: where it does not lead nothing else does.
func (p pendingWorkloads) list(e *admission.Engine, key types.NamespacedName, page admission.Page) ([]admission.Pending, bool) {
	e.Advance(time.Now())
	if p.isNamespaced {
		return e.PendingInLocalQueue(key, page)
	}
	return e.PendingInClusterQueue(key.Name, page)
}

// has reports whether a stage is pending in a queue.
func (p pendingWorkloads) has(key types.NamespacedName, found *admission.Pending) bool {
	if p.isNamespaced {
		return found.LocalQueue == key
	}
	return found.ClusterQueue == key.Name
}

func (p pendingWorkloads) notFound(key types.NamespacedName) error {
	return apierrors.NewNotFound(visibility.Resource(p.singular+"s"), key.Name)
}

// convert converts a pending stage to Kueue's type, with the reason of its condition: to explain each one of a page would take the engine too long.
// The engine does not know the owners of a quota Workload, nor its stage; a Workload that has disappeared is returned without them.
func (p pendingWorkloads) convert(ctx context.Context, s *admission.Pending) visibility.PendingWorkload {
	item := visibility.PendingWorkload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Stage.Namespace, Name: s.Stage.Name, UID: s.UID, CreationTimestamp: metav1.NewTime(s.Created),
		},
		Priority:               s.Priority,
		LocalQueueName:         kueue.LocalQueueName(s.LocalQueue.Name),
		PositionInClusterQueue: int32(s.InClusterQueue), //nolint:gosec // far from 2^31
		PositionInLocalQueue:   int32(s.InLocalQueue),   //nolint:gosec // far from 2^31
	}
	var object kueue.Workload
	// There may be thousands, and none of them is changed.
	if err := p.reader.Get(ctx, s.Stage, &object, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}); err == nil && object.UID == s.UID {
		item.OwnerReferences = slices.Clone(object.OwnerReferences)
		for _, label := range []string{apis.JobSetLabel, apis.StageLabel, apis.GrowthLabel} {
			if value := object.Labels[label]; value != "" {
				item.Labels = labels.Merge(item.Labels, labels.Set{label: value})
			}
		}
		if c := apimeta.FindStatusCondition(object.Status.Conditions, apis.WaitingCondition); c != nil {
			// It consists of strings, which cannot fail to be encoded.
			text, _ := json.Marshal(visibilityapi.Explanation{Reason: c.Reason, Message: c.Message})
			item.Annotations = map[string]string{apis.ExplanationAnnotation: string(text)}
		}
	}
	return item
}
