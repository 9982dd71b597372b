package explain

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/cmd/tranche/live"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/snapshot"
)

// An Asker explains JobSets of a cluster again and again, with the rights of a user, or those of a snapshot. It is not safe for concurrent use.
type Asker struct {
	// cluster is nil if the snapshot is asked.
	cluster  *cluster
	snapshot *snapshot.Snapshot
	horizon  time.Duration
}

// NewAsker returns an Asker. The simulation of expected starts ends at the horizon, counted from a snapshot.
func NewAsker(flags query.Flags, horizon time.Duration) (*Asker, error) {
	c, err := flags.Connect()
	if err != nil {
		return nil, err
	}
	return &Asker{cluster: &cluster{Cluster: c, horizon: horizon, bound: askersBound(), taker: live.Taker{Flags: flags, Warnings: io.Discard}}}, nil
}

// NewSnapshotAsker returns an Asker about a snapshot.
func NewSnapshotAsker(s *snapshot.Snapshot, horizon time.Duration) *Asker {
	return &Asker{snapshot: s, horizon: horizon}
}

// askersBound returns the bound of the answers of an Asker: only the verb has the flag.
func askersBound() simulator.Bound {
	return simulator.Bound{Workloads: simulator.DefaultMaxWorkloads, Setting: "--max-workloads of tranche explain"}
}

// JobSet returns the state of all stages of a JobSet, as the verb prints it.
func (a *Asker) JobSet(ctx context.Context, key types.NamespacedName) (*Report, error) {
	var from source = a.cluster
	if a.snapshot != nil {
		from = newOffline(a.snapshot, a.horizon, askersBound(), io.Discard)
	}
	return explain(ctx, from, subjectName{NamespacedName: key, Kind: jobSetKind})
}

// TakenAt returns when the last snapshot was taken, or zero if there is none.
func (a *Asker) TakenAt() time.Time {
	switch {
	case a.snapshot != nil:
		return a.snapshot.TakenAt
	case a.cluster.known == nil:
		return time.Time{}
	}
	return a.cluster.known.TakenAt
}
