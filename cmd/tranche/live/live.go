// Package live takes snapshots of a cluster for verbs, with the rights of the user.
package live

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
)

const (
	// renewalFactor is after how many times the time that it took a snapshot is taken again.
	renewalFactor = 10
	// maxWorkloads is from how many quota Workloads on a verb does not read the cluster: that would take about ten seconds.
	maxWorkloads = 20_000
)

// A Taker takes snapshots for an answer that may be asked for again and again.
type Taker struct {
	Flags query.Flags
	// Warnings is where gaps of the first snapshot are printed.
	Warnings io.Writer

	// taken is nil until it is needed, and if there is none for the reason in missing.
	taken   *snapshot.Snapshot
	missing string
	// renewAt is when the next one is taken. The API server is read from for a tenth of the time, at most.
	renewAt time.Time
}

// Take returns a snapshot, or why there is none: rights are missing, or the cluster is large. It returns the last one again until it is ten times as
// old as it took, if that is good enough.
func (t *Taker) Take(ctx context.Context, isGoodEnough func(*snapshot.Snapshot) bool) (taken *snapshot.Snapshot, missing string, err error) {
	began := time.Now()
	if began.Before(t.renewAt) && (t.taken == nil || isGoodEnough(t.taken)) {
		return t.taken, t.missing, nil
	}
	defer func() { t.renewAt = time.Now().Add(renewalFactor * time.Since(began)) }()
	t.taken, t.missing = nil, ""
	reader, err := t.Flags.ConnectToRead()
	if err != nil {
		return nil, "", err
	}
	if t.missing, err = obstacle(ctx, reader); err != nil || t.missing != "" {
		return nil, t.missing, err
	}
	s, err := collect.Read(ctx, &collect.Config{
		Reader: reader, Scheme: reader.Scheme(), ConfigMap: types.NamespacedName{Namespace: apis.SystemNamespace, Name: "tranche-manager"},
		NameConfigMap: "take a snapshot with tranche snapshot --config-map, and name it with --snapshot", // these verbs do not have the first flag
	}, t.Flags.Version)
	if err != nil {
		return nil, "", fmt.Errorf("read the objects that decide admission: %w", err)
	}
	if err := snapshotfile.PrintGaps(t.Warnings, s.Gaps); err != nil {
		return nil, "", err
	}
	t.taken, t.Warnings = s, io.Discard // a watch would repeat them
	return s, "", nil
}

// obstacle asks for one object of each kind without which an answer would be wrong. It returns why no snapshot should be taken, or "".
func obstacle(ctx context.Context, reader client.Client) (string, error) {
	var denied []string
	var workloads int64
	for _, kind := range snapshot.Kinds() {
		if !decides(kind) {
			continue
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
		err := reader.List(ctx, list, client.Limit(1))
		switch {
		case apierrors.IsForbidden(err):
			denied = append(denied, kind.FullResource())
		case apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		case err != nil:
			return "", fmt.Errorf("read %s: %w", kind.FullResource(), err)
		case kind.Resource == "workloads" && list.RemainingItemCount != nil:
			workloads = *list.RemainingItemCount + 1
		}
	}
	return whyNot(denied, workloads), nil
}

// whyNot returns why no snapshot should be taken, or "".
func whyNot(denied []string, workloads int64) string {
	switch {
	case len(denied) > 0:
		return fmt.Sprintf("this needs the right to list %s in the whole cluster, as the ClusterRole %s grants it", kindsText(denied), collect.ReaderRole)
	case workloads > maxWorkloads:
		return fmt.Sprintf("the cluster has about %d quota Workloads, more than the %d that are read at once: run tranche snapshot -o cluster.tar.gz, and then this command "+
			"with --snapshot cluster.tar.gz", workloads, maxWorkloads)
	}
	return ""
}

// kindsText names kinds, or the first of them and how many others there are. It names ClusterQueues if they are among many.
func kindsText(kinds []string) string {
	const clusterQueues = "clusterqueues.kueue.x-k8s.io"
	switch {
	case len(kinds) <= 2:
		return strings.Join(kinds, " and ")
	case slices.Contains(kinds, clusterQueues):
		return fmt.Sprintf("%s and %d other kinds", clusterQueues, len(kinds)-1)
	}
	return fmt.Sprintf("%s and %d other kinds", kinds[0], len(kinds)-1)
}

// decides reports whether the engine reads a kind. The others are for other verbs, or say only how the quota Workloads that exist were made.
func decides(kind *snapshot.Kind) bool {
	switch kind.Resource {
	case "nodes", "workloadpriorityclasses", "priorityclasses", "resourceclaimtemplates", "pods":
		return false
	}
	return true
}
