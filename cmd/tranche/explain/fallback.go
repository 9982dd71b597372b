package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

// A fallback answers from a snapshot that it takes with the rights of the user, where the visibility API does not answer.
type fallback struct {
	flags    query.Flags
	horizon  time.Duration
	warnings io.Writer
	// taken is nil until it is needed, or if the user may not read all that decides admission.
	taken *offline
	// renewAt is when a watch takes the next one. The API server is read from for a tenth of the time, at most.
	renewAt time.Time
}

// renewalFactor is after how many times the time that it took a snapshot is taken again.
const renewalFactor = 10

// offline returns an answer from a snapshot about some quota Workloads, or nil if the user may not read all that decides admission.
func (f *fallback) offline(ctx context.Context, workloads []*kueue.Workload) (*offline, error) {
	began := time.Now()
	if began.Before(f.renewAt) && (f.taken == nil || f.taken.hasAll(workloads)) {
		return f.taken, nil
	}
	defer func() { f.renewAt = time.Now().Add(renewalFactor * time.Since(began)) }()
	f.taken = nil
	reader, err := f.flags.ConnectToRead()
	if err != nil {
		return nil, err
	}
	suffices, err := mayReadAll(ctx, reader)
	if err != nil || !suffices {
		return nil, err
	}
	s, err := collect.Read(ctx, &collect.Config{
		Reader: reader, Scheme: reader.Scheme(), ConfigMap: types.NamespacedName{Namespace: apis.SystemNamespace, Name: "tranche-manager"},
	}, f.flags.Version)
	if err != nil {
		return nil, fmt.Errorf("read the objects that decide admission: %w", err)
	}
	if err := snapshotfile.PrintGaps(f.warnings, s.Gaps); err != nil {
		return nil, err
	}
	o := &offline{Snapshot: s, horizon: f.horizon, startOf: expected.Now, warnings: f.warnings}
	if err := o.ask(workloads); err != nil {
		return nil, err
	}
	f.taken, f.warnings = o, io.Discard // a watch would repeat them
	return o, nil
}

// hasAll reports whether the answers are about quota Workloads as they are now.
func (o *offline) hasAll(workloads []*kueue.Workload) bool {
	return !slices.ContainsFunc(workloads, func(now *kueue.Workload) bool {
		return !slices.ContainsFunc(o.asked, func(known *kueue.Workload) bool {
			return known.UID == now.UID && known.ResourceVersion == now.ResourceVersion
		})
	})
}

// mayReadAll asks for one object of each kind without which an answer would be wrong.
func mayReadAll(ctx context.Context, reader client.Client) (bool, error) {
	for _, kind := range snapshot.Kinds() {
		if !decides(kind) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
		err := reader.List(ctx, list, client.Limit(1))
		switch {
		case apierrors.IsForbidden(err):
			return false, nil
		case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		case err != nil:
			return false, fmt.Errorf("read %s: %w", kind.FullResource(), err)
		}
	}
	return true, nil
}

// decides reports whether the engine reads a kind. The others are for other verbs, or say only how the quota Workloads that exist were made.
func decides(kind *snapshot.Kind) bool {
	switch kind.Resource {
	case "nodes", "workloadpriorityclasses", "priorityclasses", "resourceclaimtemplates", "pods":
		return false
	}
	return true
}
