package explain

import (
	"context"
	"errors"
	"fmt"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
	"github.com/tranche-dev/tranche/snapshot"
)

// ErrTooLarge is the error of a search in queues that are too large for it, after their number.
var ErrTooLarge = errors.New("quota Workloads are pending or hold quota in its Cohorts")

// Search searches what would let quota Workloads of a snapshot in, as the verb does. The answer has those of them that are pending. A search ends with
// an error if the queues of one have more than maxWorkloads quota Workloads, or when the context is done.
func Search(
	ctx context.Context, s *snapshot.Snapshot, durations *simulator.Durations, workloads []admission.StageKey, maxWorkloads int,
) (map[admission.StageKey]*LetIn, error) {
	for _, key := range workloads {
		if simulator.NewLaboratory(s, durations, key).Size() > maxWorkloads {
			return nil, fmt.Errorf("more than %d %w", maxWorkloads, ErrTooLarge)
		}
	}
	study, err := simulator.NewStudy(s, durations, workloads...)
	if err != nil {
		return nil, err
	}
	found := map[admission.StageKey]*LetIn{}
	for _, key := range workloads {
		if _, isPending := study.Why(key); !isPending {
			continue
		}
		answer, err := unblock.Find(limited{study.Laboratory(key), ctx.Err})
		if err != nil {
			return nil, err
		}
		found[key] = letInOf(answer)
	}
	return found, nil
}

// A limited Laboratory makes no more trials after its time has expired.
type limited struct {
	*simulator.Laboratory
	ended func() error
}

// Try implements unblock.World.
func (l limited) Try(changes ...simulator.Change) (simulator.TrialResult, error) {
	if err := l.ended(); err != nil {
		return simulator.TrialResult{}, err
	}
	return l.Laboratory.Try(changes...)
}
