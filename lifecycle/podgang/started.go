package podgang

import "fmt"

// started returns the message for a gang that has started. If it has fewer pods left than its minimum, the controller of its pods has to complete or
// restart it: Coscheduling has the Event Unschedulable for that, and leaves the running pods unchanged.
//
//	minMember 4: 2 run, 1 has succeeded, 1 has failed and is not recreated  ->  Unschedulable, 3 of 4
func (b *stepBuilder) started() Message {
	text := fmt.Sprintf("The gang is admitted in ClusterQueue %q and has started", b.home())
	left := b.active + b.succeeded + int32(len(b.waiting)) //nolint:gosec // far from 2^31
	switch {
	case !b.running && len(b.waiting) == 0:
		return Message{"GangWaiting", "Idle", fmt.Sprintf("The gang has started, but none of its pods runs: its quota is released unless a pod is created within %s", idleGrace), false}
	case left < b.Gang.Min:
		return Message{"Unschedulable", "Run", fmt.Sprintf("%s, but only %d of the %d required pods run, wait or have succeeded: "+
			"recreate the failed and deleted pods, or restart the gang", text, left, b.Gang.Min), true}
	default:
		return Message{"GangStarted", "Start", text, false}
	}
}
