package manager

import (
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// WriteQuota carries out writes to quota Workloads in their order, each with the precondition that it has in controllers/internal/apply. It stops at the first
// error, and where the manager is to die.
func (m *Manager) WriteQuota(writes []quotastep.Write) error {
	var all []quotastep.Write
	for _, write := range writes {
		if write.Kind == quotastep.Delete { // two writes
			if write.Workload.DeletionTimestamp.IsZero() {
				all = append(all, write)
			}
			write.Kind = quotastep.RemoveFinalizer
		}
		all = append(all, write)
	}
	return Each(m, all, m.writeWorkload)
}

func (m *Manager) writeWorkload(write quotastep.Write) error {
	now, need := m.Workloads[cluster.KeyOf(write.Workload)], sameUID
	if write.IsLocked() {
		need = sameVersion
	}
	if write.Kind == quotastep.Create || write.Kind == quotastep.Grow {
		if now == nil {
			m.createWorkload(write.Workload)
		}
		return nil
	}
	if write.Kind == quotastep.RemoveFinalizer && len(write.Workload.Finalizers) == 0 {
		return nil
	}
	return on(write.Workload, now, need, func(now *kueue.Workload) error {
		m.logWrite(&write, now)
		switch deletes := write.Kind == quotastep.Reopen || write.Kind == quotastep.Delete; {
		case deletes:
			m.DeleteWorkload(now)
		case write.Kind == quotastep.RemoveFinalizer:
			m.RemoveFinalizer(now)
		default:
			m.PutWorkload(write.Result(now, m.Time()))
		}
		return nil
	})
}

// createWorkload writes a quota Workload for the first time, with what a scenario changes in those of its JobSet.
func (m *Manager) createWorkload(workload *kueue.Workload) {
	if jobsetstate.GrowthNumber(workload) > 0 {
		m.Log("ask %s pods=%s", cluster.SubjectOf(workload), cluster.Counts(workload.Spec.PodSets))
	}
	js := m.UserJobs[types.NamespacedName{Namespace: workload.Namespace, Name: workload.Labels[apis.JobSetLabel]}]
	if js != nil {
		for _, setting := range js.Settings {
			if m.Concerns(setting.Target, workload) {
				// The fields were validated when the scenario was read.
				_ = setting.Fields.Apply(workload)
			}
		}
	}
	m.PutWorkload(workload)
}

// logWrite writes into the timeline what happens to a quota Workload.
func (m *Manager) logWrite(write *quotastep.Write, now *kueue.Workload) {
	subject := cluster.SubjectOf(now)
	switch {
	case write.Kind == quotastep.Evict && write.Cause != nil:
		m.Log("evict %s with %s", subject, cluster.SubjectOf(write.Cause))
	case write.Kind == quotastep.Change && jobsetstate.GrowthNumber(now) > 0:
		if pods := cluster.Counts(write.After.Spec.PodSets); pods != cluster.Counts(write.Workload.Spec.PodSets) {
			m.Log("ask %s pods=%s", subject, pods)
		}
	case write.Kind == quotastep.Progress && write.HasSucceeded:
		m.Log("finish %s", subject)
	case write.Kind == quotastep.Release || write.Kind == quotastep.Progress && write.Finished != nil && quotaworkload.HoldsQuota(now):
		m.Log("stop %s", subject)
	}
}
