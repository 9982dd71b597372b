package simulator

import (
	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/snapshot"
)

// NewLaboratoryKeeping returns a Laboratory whose trials keep so many equal pending quota Workloads, or all of them.
func NewLaboratoryKeeping(s *snapshot.Snapshot, d *Durations, workload admission.StageKey, keeps ...int) *Laboratory {
	l := NewLaboratory(s, d, workload)
	l.keeps = keeps
	return l
}

// LeavesOut reports how many quota Workloads its smallest trials leave out. It is known after the first trial.
func (l *Laboratory) LeavesOut() int {
	if len(l.smaller) == 0 {
		return 0
	}
	return len(l.settled.Workloads) - len(l.smaller[0].Workloads)
}

// QueueOf returns the LocalQueue of a quota Workload.
func (p *Paused) QueueOf(key admission.StageKey) string {
	return string(p.s.Workloads[key].Spec.QueueName)
}
