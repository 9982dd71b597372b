package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/safety"
)

// recoverFromDeadlock evicts JobSets to resolve a deadlock. It can arise when quota or a flavor is removed, when a queue is stopped or moved, or when a
// restarted JobSet still holds a later stage while it repeats an earlier one. Admissions alone never lead to this state.
//
// An evicted JobSet is not admitted before that is safe, so that it is not evicted for the same reason again.
func (e *Engine) recoverFromDeadlock(decisions []Decision) []Decision {
	for _, root := range e.bank.Unsafe() {
		for _, c := range e.bank.SelectVictims(root, e.price, e.compareClaims) {
			j := e.jobSets[c.Owner]
			message := e.whyRelief(j)
			for _, s := range j.evictionUnit.stages {
				if !s.isLeaving() {
					decisions = append(decisions, e.evict(s, Evict{Reason: kueue.WorkloadEvictedByPreemption, Message: message}))
					e.refresh(s)
				}
			}
		}
	}
	return decisions
}

// price returns the cost of evicting a JobSet: the accelerator-seconds since it began to hold its quota. All of them are after its last stage
// boundary.
func (e *Engine) price(c *safety.Claim) safety.Price {
	j := e.jobSets[c.Owner]
	price := safety.Price{Priority: j.priority()}
	for _, s := range j.evictionUnit.stages {
		seconds := max(0, e.now.Sub(s.reservedAt).Seconds())
		for _, charge := range s.entry.usage {
			if isAccelerator(e.tree.Index.Name(charge.ID).Resource) {
				price.Lost += seconds * float64(charge.Amount)
			}
		}
	}
	return price
}

// isAccelerator reports whether a resource is none of those that every node has.
func isAccelerator(name corev1.ResourceName) bool {
	usual := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage, corev1.ResourcePods,
	}
	return !slices.Contains(usual, name) && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// priority returns the highest priority of the stages that hold quota.
func (j *jobSet) priority() int32 {
	return slices.MaxFunc(j.evictionUnit.stages, func(a, b *stage) int { return cmp.Compare(a.priority, b.priority) }).priority
}

// compareClaims orders victims: least loss first, then lower priority, then latest submission or eviction.
func (e *Engine) compareClaims(a, b *safety.Claim) int {
	x, y := e.price(a), e.price(b)
	return cmp.Or(
		cmp.Compare(x.Lost, y.Lost), cmp.Compare(x.Priority, y.Priority),
		e.jobSets[b.Owner].since().Compare(e.jobSets[a.Owner].since()), cmp.Compare(a.Owner, b.Owner),
	)
}

// whyRelief returns why the JobSet cannot continue with the quota that it holds.
func (e *Engine) whyRelief(j *jobSet) string {
	if j.claim.Mode == safety.Halted {
		return fmt.Sprintf("holds quota for which others could wait for ever, while ClusterQueue %s does not let it go on", j.claimQueue.name)
	}
	return fmt.Sprintf("could wait for ever in ClusterQueue %s with the quota that it holds: %s", j.claimQueue.name, e.lackOf(j))
}

// lackOf describes what a JobSet may need at once and cannot get.
func (e *Engine) lackOf(j *jobSet) string {
	if len(j.claim.Peaks) > 0 {
		peak := j.claim.Peaks[0]
		if above := e.aboveMost(j.claimQueue, peak); len(above) > 0 {
			return "its stages hold up to " + strings.Join(above, " and ")
		}
		return "its stages need up to " + e.list(peak.Without(j.claim.Held)) + " more at once, which others hold who cannot go on either"
	}
	for i, d := range j.stages {
		if o := e.offer(d, j.claimQueue); o.infeasibility != nil {
			return fmt.Sprintf("stage %s could never be admitted: %s", j.plan.Stages[i].Name, lackRefusal(j.claimQueue, o.infeasibility).Message)
		}
	}
	return "a stage could never be admitted"
}

// list formats amounts.
func (e *Engine) list(u quota.Usage) string {
	var parts []string
	for fr, a := range e.tree.Index.ByName(u) {
		parts = append(parts, fmt.Sprintf("%s %s of flavor %s", a.Format(fr.Resource), fr.Resource, fr.Flavor))
	}
	return strings.Join(parts, " and ")
}
