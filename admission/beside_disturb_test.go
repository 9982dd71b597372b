package admission_test

import (
	"maps"
	"slices"
	"strconv"

	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// disturb causes one of the disturbances.
func (b *besideKueue) disturb() {
	b.troubles--
	what := rapid.SampledFrom([]string{"manager restarts", "quota is cut", "preempted", "deactivated", "JobSet restarts"}).Draw(b.r, "what")
	switch what {
	case "manager restarts":
		b.restart()
	case "quota is cut":
		b.cutQuota(rapid.SampledFrom(slices.Sorted(maps.Keys(b.queues))).Draw(b.r, "queue"))
	default:
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(b.jobSets)), func(name string) bool { return b.evicting[name] || b.hasFinished(b.jobSets[name]) })
		if len(names) == 0 {
			return
		}
		js := b.jobSets[rapid.SampledFrom(names).Draw(b.r, "jobset")]
		switch what {
		case "preempted":
			b.evictJobSet(js)
		case "deactivated":
			b.deactivate(js)
		default:
			b.restartJobSet(js)
		}
	}
	b.disturbed[what]++
}

func (b *besideKueue) hasFinished(js *fakeJobSet) bool {
	for i := range js.plan.Stages {
		if !isFinished(b.workloads[keyOf(js.workload(i))]) {
			return false
		}
	}
	return true
}

// cutQuota lowers the quota of a ClusterQueue, perhaps below what is held.
func (b *besideKueue) cutQuota(name string) {
	if b.uncut[name] == nil {
		b.uncut[name] = b.queues[name]
	}
	q := b.queues[name].DeepCopy()
	for i := range q.Spec.ResourceGroups[0].Flavors {
		quota := &q.Spec.ResourceGroups[0].Flavors[i].Resources[0].NominalQuota
		quota.Set(rapid.Int64Range(0, quota.Value()).Draw(b.r, "nominal"))
	}
	b.putQueue(q)
}

// restoreQuota sets the quota of a ClusterQueue to what it was before it was cut.
func (b *besideKueue) restoreQuota(name string) {
	b.putQueue(b.uncut[name])
	delete(b.uncut, name)
}

// deactivate sets one stage of a JobSet to inactive: the whole JobSet is evicted, and stays closed.
func (b *besideKueue) deactivate(js *fakeJobSet) {
	b.deactivated[js.name] = true
	unfinished := slices.DeleteFunc(js.workloads(), func(name string) bool { return isFinished(b.workloads[keyOf(name)]) })
	inactive := rapid.SampledFrom(unfinished).Draw(b.r, "inactive")
	b.change(inactive, func(wl *kueue.Workload) { wl.Spec.Active = new(false) })
	for _, name := range unfinished {
		if b.workloads[keyOf(name)].Status.Admission == nil {
			b.gate(name)
		}
	}
	b.evictJobSet(js)
}

// reactivate lets a JobSet queue again.
func (b *besideKueue) reactivate(js *fakeJobSet) {
	delete(b.deactivated, js.name)
	for _, name := range js.workloads() {
		b.change(name, func(wl *kueue.Workload) { wl.Spec.Active = nil })
	}
	delete(b.waiting, js.name)
	b.open(js)
}

// restartJobSet restarts a JobSet by its failure policy. Stages that hold quota keep it until their pods have terminated, finished ones have to run again,
// and reclaimed quota has to be reserved again.
func (b *besideKueue) restartJobSet(js *fakeJobSet) {
	js.attempt++
	clear(js.states)
	for i, name := range js.workloads() {
		b.change(name, func(wl *kueue.Workload) {
			wl.Annotations[apis.AttemptAnnotation] = strconv.Itoa(js.attempt)
			if isFinished(wl) || len(wl.Status.ReclaimablePods) > 0 {
				wl.Status = kueue.WorkloadStatus{}
				delete(b.unwritten, name)
			}
		})
		if !js.isOpen(i) || b.workloads[keyOf(name)].Status.Admission == nil {
			b.gate(name)
		}
	}
	delete(b.waiting, js.name)
	b.open(js)
}

// giveBack releases the quota of a stage that has to wait again after a restart, when its pods have terminated.
func (b *besideKueue) giveBack(name string) {
	b.leave(name)
	delete(b.unwritten, name)
	b.change(name, func(wl *kueue.Workload) { wl.Status.AdmissionChecks = nil })
	js := b.jobSets[b.workloads[keyOf(name)].OwnerReferences[0].Name]
	b.open(js)
}

func (b *besideKueue) gate(name string) {
	b.change(name, func(wl *kueue.Workload) { wl.Annotations[apis.AdmissionGatedByAnnotation] = apis.StageGate })
}

// workloads are the names of the quota Workloads of all stages.
func (js *fakeJobSet) workloads() []string {
	var names []string
	for i := range js.plan.Stages {
		names = append(names, js.workload(i))
	}
	return names
}
