package explain

import (
	"context"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
	"github.com/tranche-dev/tranche/snapshot"
)

// Search searches what would let quota Workloads of a snapshot in, as the verb does. The answer has those of them that are pending. A search ends with
// an error if a tree of one is beyond the bound, or when the context is done.
func Search(
	ctx context.Context, s *snapshot.Snapshot, durations *simulator.Durations, workloads []admission.StageKey, bound simulator.Bound,
) (map[admission.StageKey]*LetIn, error) {
	part := simulator.Around(s, workloads...)
	if err := bound.Check(part); err != nil {
		return nil, err
	}
	inspection, err := simulator.Inspect(part, workloads...)
	if err != nil {
		return nil, err
	}
	found := map[admission.StageKey]*LetIn{}
	for _, key := range workloads {
		if _, isPending := inspection.Why(key); !isPending {
			continue
		}
		answer, err := unblock.Find(limited{simulator.NewLaboratory(part, durations, key), ctx.Err})
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
