package podgang

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// reconcileUnstarted reconciles a gang that has not started.
func (b *stepBuilder) reconcileUnstarted() {
	if text := b.ending(); text != "" {
		b.step.Message = Message{"GangFinished", "Finish", text, false}
		return
	}
	why := b.obstacle()
	isWhole := len(b.waiting) >= b.needed()
	b.step.Message = Message{"GangWaiting", "Gather", why, false}
	if b.timedOut() != "" {
		b.step.Message = Message{"GangTimedOut", "TimeOut", why, true}
	}
	switch {
	case len(b.initial) == 0:
		b.ask(why)
		return
	case isPart(b.initial[0]):
		b.keepParts(why)
	case isWhole || b.isReserved():
		b.keepOne(why)
	default:
		b.close()
		b.giveUp(fmt.Sprintf("Pods of the gang were deleted: fewer than %d are left, which must start together", b.Gang.Min))
	}
	peer := b.unadmittedPeer()
	switch {
	case why != "":
		b.timeOut()
	case !b.allAdmitted():
		b.step.Message.Topic, b.step.Message.Text = kueue.WorkloadQuotaReserved, "The gang waits for quota"
		if reason, text := b.wait(b.initial); text != "" {
			b.step.Message.Topic, b.step.Message.Text = reason, text
		}
	case peer != "" && !b.startedOnce():
		b.step.Message.Topic, b.step.Message.Text = "Group", fmt.Sprintf("The gang is admitted, and waits for the admission of peer gang %q", peer)
		b.timeOut()
	case isWhole:
		b.start()
	default:
		b.step.Message.Topic, b.step.Message.Text = "Reserve", "Quota is reserved for the gang, which waits for its pods"
		b.timeOut()
	}
}

// ending describes how the gang has finished, and is empty if it has not, or if it is not done. If its parts have finished differently, a failed
// one counts.
func (b *stepBuilder) ending() string {
	if len(b.initial)+len(b.waiting) > 0 || b.unclaimed != nil || b.running || b.leaving {
		return ""
	}
	if len(b.finishedInitial) == 0 && !b.Gang.Reserves() {
		return endOfPods(b.Gang)
	}
	text := ""
	for _, w := range b.finishedInitial {
		finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		for _, p := range b.step.Of(quotastep.Progress) {
			if p.Workload == w && p.Finished != nil {
				finished = p.Finished
			}
		}
		if finished != nil && (text == "" || finished.Reason == kueue.WorkloadFinishedReasonFailed) {
			text = finished.Message
		}
	}
	return text
}

// obstacle describes what prevents the gang from asking for quota, or is empty.
func (b *stepBuilder) obstacle() string {
	g := b.Gang
	if text := b.timedOut(); text != "" {
		return text
	}
	if conflict := b.peerConflict(); conflict != "" && !b.startedOnce() {
		return "The gang requests no quota yet: " + conflict
	}
	if g.Queue == "" {
		if len(b.waiting) == 0 && !g.Reserves() {
			return "The gang has no pods"
		}
		return "The gang names no LocalQueue: set the label " + apis.QueueLabel + " on its PodGroup and pods"
	}
	switch {
	case len(b.waiting) >= b.needed() || g.Reserves():
		return ""
	case b.unclaimed != nil:
		return fmt.Sprintf("The gang requests no quota yet: Kubernetes has not created the ResourceClaims of pod %q", b.unclaimed.Name)
	}
	return fmt.Sprintf("The gang requests no quota yet: it has fewer than the %d pods that must start together", g.Min)
}

// isReserved reports whether the gang asks for quota by minResources of its PodGroup.
func (b *stepBuilder) isReserved() bool {
	return b.Gang.Reserves() && !b.Gang.AdmitsInParts() || len(b.initial) == 1 && b.initial[0].Spec.PodSets[0].Name == reservedPodSet
}

// ask creates the initial quota Workloads.
func (b *stepBuilder) ask(why string) {
	if b.leaving {
		b.step.Message.Text = "A quota Workload of the gang was deleted: the gang requests quota again when its running pods have terminated"
	}
	if why != "" || b.leaving || len(b.finishedInitial) > 0 {
		return
	}
	if b.takeOver() {
		return
	}
	if len(b.waiting) < b.needed() {
		b.step.Do(quotastep.Create, b.reservation())
		return
	}
	pods := b.chosen()
	if b.hasTooManyShapes(b.shapes.podSets(pods...)) {
		return
	}
	b.step.Do(quotastep.Create, b.initialWorkloads(pods)...)
}

// hasTooManyShapes reports whether a quota Workload cannot have so many pod sets, and reports that to the user.
func (b *stepBuilder) hasTooManyShapes(podSets []kueue.PodSet) bool {
	n := len(podSets)
	if n > mostShapes {
		b.step.Message = Message{"Misconfigured", "Check", fmt.Sprintf(
			"the pods of the gang have %d different combinations of requests and node constraints: use at most %d", n, mostShapes), true}
	}
	return n > mostShapes
}

// keepOne updates the single initial quota Workload to the current gang, as long as it waits.
func (b *stepBuilder) keepOne(why string) {
	there, gate := b.initial[0], ""
	if why != "" || len(there.Status.ReclaimablePods) > 0 && !quotaworkload.HoldsQuota(there) {
		gate = apis.GangGate
	}
	var wanted *kueue.Workload
	if len(b.waiting) < b.needed() {
		wanted = b.reservation()
	} else {
		wanted = b.whole(there.Name, b.shapes.podSets(b.chosen()...))
	}
	if b.hasTooManyShapes(wanted.Spec.PodSets) {
		b.close()
		return
	}
	after := adjusted(there, wanted, gate)
	if owned := b.withOwners(cmp.Or(after, there)); owned != nil {
		after = owned
	}
	b.step.Change(there, after)
}

// keepParts creates, updates and gates the parts of a gang that gathers its quota. If one of them backs off, all do.
func (b *stepBuilder) keepParts(why string) {
	if why == "" && b.renewParts() {
		return
	}
	if why == "" && !b.allAdmitted() {
		why = b.timeOut()
	}
	isClosed := why != "" || slices.ContainsFunc(b.initial, func(w *kueue.Workload) bool {
		return workloadstatus.BacksOff(w.Status.RequeueState, b.now)
	})
	places := b.match(b.initial)
	if why == "" {
		for _, w := range b.unusedParts(places) {
			b.finish(w, workloadstatus.Succeeded(textSucceeded))
		}
	}
	for _, there := range b.initial {
		wanted, gate := b.wantedPart(there, why, places), ""
		if isClosed || len(there.Status.ReclaimablePods) > 0 {
			gate = apis.GangGate
		}
		b.step.Change(there, adjusted(there, wanted, gate))
	}
	b.share()
}

// wantedPart returns the wanted state of a part, without its gate.
func (b *stepBuilder) wantedPart(there *kueue.Workload, why string, places []place) *kueue.Workload {
	wanted := there.DeepCopy()
	if len(b.waiting) > 0 {
		delete(wanted.Annotations, apis.IdleSinceAnnotation)
	}
	if why == "" && hasEverStarted(there) {
		wanted.Spec.PodSets = withoutSucceeded(there, places)
	}
	if b.Gang.Queue != "" { // no pod names a queue if none waits or runs
		wanted.Spec.QueueName, wanted.Spec.Priority, wanted.Spec.PriorityClassRef = kueue.LocalQueueName(b.Gang.Queue), &b.Priority.Value, b.Priority.Class
	}
	return wanted
}

// withoutSucceeded returns the pod sets of a part that queues again: without the pods that had succeeded when it was evicted, which are not recreated. A
// part of which no pod waits keeps its pod sets.
func withoutSucceeded(part *kueue.Workload, places []place) []kueue.PodSet {
	waiting := map[kueue.PodSetReference]int32{}
	for _, p := range places {
		if p.slots.workload == part {
			waiting[p.podSet]++
		}
	}
	if len(waiting) == 0 {
		return part.Spec.PodSets
	}
	podSets := slices.DeleteFunc(slices.Clone(part.Spec.PodSets), func(p kueue.PodSet) bool { return waiting[p.Name] == 0 })
	for i := range podSets {
		podSets[i].Count = waiting[podSets[i].Name]
	}
	return podSets
}

// renewParts creates missing parts, and replaces all of them if the pods no longer fit them. It reports whether it has begun to replace them.
func (b *stepBuilder) renewParts() bool {
	wanted := b.initialWorkloads(b.chosen())
	if len(wanted) > 1 && wanted[0].Labels[apis.PlanUIDLabel] == b.initial[0].Labels[apis.PlanUIDLabel] {
		for _, w := range wanted {
			if !slices.ContainsFunc(b.Workloads, func(there *kueue.Workload) bool { return there.Name == w.Name }) {
				b.step.Do(quotastep.Create, w)
			}
		}
		return false
	}
	isComplete := strconv.Itoa(len(b.initial)+len(b.finishedInitial)) == b.initial[0].Annotations[apis.PartsAnnotation]
	if isComplete && len(b.match(b.initial)) >= b.needed() {
		return false
	}
	why := "Pods of the gang were replaced: the gang releases its quota, and requests quota for the new pods"
	b.step.Message.Text = why
	b.giveUp(why)
	if !b.step.Has(quotastep.Evict) {
		b.step.Do(quotastep.Delete, b.initial...)
	}
	return true
}

// timeOut evicts a gang that has not started and has held quota for too long. It returns the message, or nothing if it does not.
func (b *stepBuilder) timeOut() string {
	var since *metav1.Time
	for _, w := range b.initial {
		if !quotaworkload.HoldsQuota(w) {
			continue
		}
		if hasStarted(w) {
			return ""
		}
		reserved := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
		if since == nil || reserved.LastTransitionTime.Before(since) {
			since = &reserved.LastTransitionTime
		}
	}
	if since == nil || b.step.Has(quotastep.Evict) {
		return ""
	}
	if left := since.Add(b.Gang.Wait).Sub(b.now); left > 0 {
		b.step.RequeueWithin(left)
		return ""
	}
	why := fmt.Sprintf("The gang released its quota: it did not start within %s", b.Gang.Wait)
	b.noteTimeout()
	b.giveUp(why)
	return why
}

// putOff returns when a quota Workload that releases gathered quota queues again: later each time.
func (b *stepBuilder) putOff(w *kueue.Workload) *kueue.RequeueState {
	state, delay := workloadstatus.NextTry(w), time.Duration(0)
	if b.Backoff != nil {
		delay = b.Backoff(*state.Count)
	}
	return workloadstatus.Until(state, b.now.Add(delay))
}

// start ungates all pods that the gang needs. If they do not match what the gang was admitted for, it releases its quota, and asks for what they
// need.
func (b *stepBuilder) start() {
	places := b.match(b.initial)
	if len(places) < b.needed() {
		why := "The pods of the gang differ from those for which it was admitted"
		if b.initial[0].Spec.PodSets[0].Name == reservedPodSet {
			why = "The pods of the gang request more than minResources of its PodGroup, or cannot run on the reserved flavors"
		}
		b.step.Message.Topic, b.step.Message.Text = "Renew", why+": the gang releases its quota, and requests quota for the current pods"
		b.giveUp(b.step.Message.Text)
		return
	}
	ungates, why := b.releases(places)
	if why != "" {
		b.step.Message = Message{"GangWaiting", "Release", why, true}
		b.timeOut()
		return
	}
	for _, w := range b.initial {
		b.step.Change(w, withStart(w, b.now))
	}
	b.step.Ungate = ungates
	b.step.Message = Message{"GangStarted", "Start", fmt.Sprintf("The gang is admitted in ClusterQueue %q and has started", b.home()), false}
}

// releases returns the ungated pods, and why one of them cannot be ungated.
func (b *stepBuilder) releases(places []place) (all []Ungate, why string) {
	for _, p := range places {
		after, err := b.ungated(p.pod, p.slots.workload, p.podSet)
		if err != nil {
			why = cmp.Or(why, err.Error())
			continue
		}
		all = append(all, Ungate{p.slots.workload, p.pod, after})
	}
	return all, why
}

// ungateLate ungates pods one by one, now that the gang has started: pods for which there is a slot, which others have left or never used, and the
// others when their extra quota Workloads are admitted. A part that has not started belongs to a start that was interrupted.
func (b *stepBuilder) ungateLate() {
	admitted := slices.DeleteFunc(slices.Clone(b.initial), func(w *kueue.Workload) bool { return !b.isAdmitted(w) || w == b.givenUp })
	for _, w := range admitted {
		if !hasStarted(w) {
			b.step.Change(w, withStart(w, b.now))
		}
	}
	b.share()
	places := b.match(admitted)
	placed := map[*corev1.Pod]bool{}
	for _, p := range places {
		placed[p.pod] = true
	}
	extras := map[types.UID]*kueue.Workload{}
	for _, w := range b.extras {
		extras[types.UID(w.Labels[apis.ExtraLabel])] = w
	}
	unpaid, late := map[kueue.PodSetReference]int{}, []*kueue.Workload{}
	for _, pod := range b.waiting {
		if placed[pod] {
			continue
		}
		extra, shape := extras[pod.UID], b.shapes.of(pod)
		switch {
		case extra != nil && b.isAdmitted(extra) && !b.step.Does(extra, quotastep.Evict):
			places = append(places, place{pod, newSlots(extra, nil), shape})
			continue
		case extra != nil:
			late = append(late, extra)
		case b.passOn(pod):
		case unpaid[shape] < mostExtras:
			b.step.Do(quotastep.Create, b.extra(pod))
		}
		unpaid[shape]++
	}
	if topic, text := b.wait(late); text != "" {
		b.step.Message = Message{"GangWaiting", topic, b.step.Message.Text + "; pods created later wait for quota of their own: " + text, false}
	}
	ungates, why := b.releases(places)
	b.step.Ungate = ungates
	if why != "" {
		b.step.Message = Message{"GangWaiting", "Release", why, true}
	}
}

// share adds the pods that have been created since to the owners of the initial quota Workloads, which would otherwise be deleted with their first pods.
func (b *stepBuilder) share() {
	for _, w := range b.initial {
		b.step.Change(w, b.withOwners(w))
	}
}
