package explain

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/cmd/tranche/live"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
)

// An Asker explains JobSets of a cluster again and again, with the rights of a user. It is not safe for concurrent use.
type Asker struct {
	cluster *cluster
}

// NewAsker returns an Asker. The simulation of expected starts ends at the horizon, counted from a snapshot.
func NewAsker(flags query.Flags, horizon time.Duration) (*Asker, error) {
	c, err := flags.Connect()
	if err != nil {
		return nil, err
	}
	return &Asker{&cluster{Cluster: c, horizon: horizon, taker: live.Taker{Flags: flags, Warnings: io.Discard}}}, nil
}

// JobSet returns the state of all stages of a JobSet, as the verb prints it.
func (a *Asker) JobSet(ctx context.Context, key types.NamespacedName) (*Report, error) {
	return explain(ctx, a.cluster, subjectName{NamespacedName: key, Kind: jobSetKind})
}

// TakenAt returns when the last snapshot was taken, or zero if there is none.
func (a *Asker) TakenAt() time.Time {
	if a.cluster.known == nil {
		return time.Time{}
	}
	return a.cluster.known.TakenAt
}
