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
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// needed returns how many pods have to be ungated together, besides those that run or have succeeded.
func (t *stepBuilder) needed() int { return max(1, int(t.Gang.Min-t.active-t.succeeded)) }

// chosen returns the pods that ask for quota together: all that are needed, and more up to the total.
func (t *stepBuilder) chosen() []*corev1.Pod {
	n := max(t.needed(), int(t.Gang.Total-t.active-t.succeeded))
	return t.waiting[:min(n, len(t.waiting))]
}

// reconcileUnstarted reconciles a gang that has not started.
func (t *stepBuilder) reconcileUnstarted() {
	if text := t.ending(); text != "" {
		t.step.Message = Message{"GangFinished", "Finish", text, false}
		return
	}
	why := t.obstacle()
	isWhole := len(t.waiting) >= t.needed()
	t.step.Message = Message{"GangWaiting", "Gather", why, false}
	if t.timedOut() != "" {
		t.step.Message = Message{"GangTimedOut", "TimeOut", why, true}
	}
	switch {
	case len(t.initial) == 0:
		t.ask(why)
		return
	case isPart(t.initial[0]):
		t.keepParts(why)
	case isWhole || t.isReserved():
		t.keepOne(why)
	default:
		t.close()
		t.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: "Not all pods of the gang are there any more that start together"}, t.putOff)
	}
	peer := t.Gang.missing(t.Peers)
	switch {
	case why != "":
		t.timeOut()
	case !t.allAdmitted():
		t.step.Message.Topic, t.step.Message.Text = kueue.WorkloadQuotaReserved, "The gang waits for quota"
		if reason, text := t.wait(t.initial); text != "" {
			t.step.Message.Topic, t.step.Message.Text = reason, text
		}
	case peer != "" && !t.startedOnce():
		t.step.Message.Topic, t.step.Message.Text = "Group", fmt.Sprintf("The gang is admitted, and waits for gang %q, with which it starts together", peer)
		t.timeOut()
	case isWhole:
		t.start()
	default:
		t.step.Message.Topic, t.step.Message.Text = "Reserve", "Quota is reserved for the gang, and waits for its pods"
		t.timeOut()
	}
}

// ending describes how the gang has finished, and is empty if it has not, or if it is not done. If its parts have finished differently, a failed
// one counts.
func (t *stepBuilder) ending() string {
	if len(t.initial)+len(t.waiting) > 0 || t.unclaimed != nil || t.running || t.leaving {
		return ""
	}
	if len(t.finishedInitial) == 0 && !t.reserves() {
		return t.endOfPods()
	}
	text := ""
	for _, w := range t.finishedInitial {
		finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		for _, p := range t.step.Progress {
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
func (t *stepBuilder) obstacle() string {
	g := t.Gang
	isWhole := len(t.waiting) >= t.needed()
	if text := t.timedOut(); text != "" {
		return text
	}
	if peerConflict := g.peerConflict(t.Peers); peerConflict != "" && !t.startedOnce() {
		return "Nothing is asked for: " + peerConflict
	}
	if g.Queue == "" {
		if len(t.waiting) == 0 && !t.reserves() {
			return "The gang has no pods"
		}
		return "The gang names no LocalQueue: set the label " + apis.QueueLabel + " of its PodGroup and pods"
	}
	if t.unclaimed != nil && !isWhole && !t.reserves() {
		return fmt.Sprintf("Nothing is asked for before Kubernetes has created the ResourceClaims of pod %q", t.unclaimed.Name)
	}
	if !isWhole && !t.reserves() {
		return fmt.Sprintf("Nothing is asked for before all pods are there that start together: the gang has fewer than %d", g.Min)
	}
	return ""
}

// startedOnce reports whether the gang has once started together with the others. From then on it is independent, also when it has released all its
// quota and the controller of its pods continues.
func (t *stepBuilder) startedOnce() bool {
	return t.wentOn || slices.ContainsFunc(t.initial, func(w *kueue.Workload) bool { return hasStarted(w) || round(w) > 0 })
}

// isReserved reports whether the gang asks for quota by minResources of its PodGroup.
func (t *stepBuilder) isReserved() bool {
	return t.reserves() && !t.Gang.admitsInParts() || len(t.initial) == 1 && t.initial[0].Spec.PodSets[0].Name == reservedPodSet
}

// ask creates the quota Workloads of the core.
func (t *stepBuilder) ask(why string) {
	if t.leaving {
		t.step.Message.Text = "A quota Workload of the gang was deleted: its pods that run end first, and then quota is asked for anew"
	}
	if why != "" || t.leaving || len(t.finishedInitial) > 0 {
		return
	}
	pods := t.chosen()
	if len(t.waiting) < t.needed() {
		t.step.Create = []*kueue.Workload{t.reservation()}
		return
	}
	if n := len(t.shapes.podSets(pods...)); n > mostShapes {
		t.step.Message = Message{"Misconfigured", "Check", shapesText(n), true}
		return
	}
	t.step.Create = t.Gang.initialWorkloads(t.Priority, pods, t.shapes)
	if !isPart(t.step.Create[0]) {
		t.bind(t.step.Create[0])
	}
}

func shapesText(n int) string {
	return fmt.Sprintf("the pods of the gang have %d different shapes: let at most %d differ in what they request and where they can run", n, mostShapes)
}

func (t *stepBuilder) reservation() *kueue.Workload {
	w := t.Gang.newWorkload(t.Gang.workloadName(string(t.Gang.incarnation())), t.Priority, reserved(t.Gang.Object.MinResources, t.Gang.Min))
	t.bind(w)
	return w
}

// bind makes the engine admit a quota Workload together with those of the peers that have not started yet, all or none.
func (t *stepBuilder) bind(w *kueue.Workload) {
	unbind(w)
	delete(w.Annotations, apis.StartedTogetherAnnotation)
	if past := t.past(); past != "" {
		w.Annotations[apis.StartedTogetherAnnotation] = past
	}
	if n := t.Gang.unstarted(t.Peers); n > 1 && !t.startedOnce() {
		w.Labels[apis.AdmitTogetherLabel] = t.Gang.gangGroupID()
		w.Annotations[apis.AdmitTogetherCountAnnotation] = strconv.Itoa(n)
	}
}

// keepOne updates the single quota Workload of the core to the current gang, as long as it waits.
func (t *stepBuilder) keepOne(why string) {
	there, gate := t.initial[0], ""
	if why != "" || len(there.Status.ReclaimablePods) > 0 && !quotaworkload.HoldsQuota(there) {
		gate = apis.GangGate
	}
	var wanted *kueue.Workload
	if len(t.waiting) < t.needed() {
		wanted = t.reservation()
	} else {
		pods := t.chosen()
		wanted = t.Gang.newWorkload(there.Name, t.Priority, t.shapes.podSets(pods...))
		t.bind(wanted)
	}
	if n := len(wanted.Spec.PodSets); n > mostShapes {
		t.step.Message = Message{"Misconfigured", "Check", shapesText(n), true}
		t.close()
		return
	}
	after := adjusted(there, wanted, gate)
	if owned := t.Gang.withOwners(cmp.Or(after, there)); owned != nil {
		after = owned
	}
	if after != nil {
		t.step.Change = append(t.step.Change, Change{there, after})
	}
}

// keepParts creates, updates and gates the parts of a gang that gathers its quota. If one of them backs off, all do.
func (t *stepBuilder) keepParts(why string) {
	if why == "" && t.renewParts() {
		return
	}
	if why == "" && !t.allAdmitted() {
		why = t.timeOut()
	}
	isClosed := why != "" || slices.ContainsFunc(t.initial, t.isPutOff)
	for _, there := range t.initial {
		wanted, gate := there.DeepCopy(), ""
		wanted.Spec.QueueName, wanted.Spec.Priority, wanted.Spec.PriorityClassRef = kueue.LocalQueueName(t.Gang.Queue), &t.Priority.Value, t.Priority.Class
		if isClosed || len(there.Status.ReclaimablePods) > 0 {
			gate = apis.GangGate
		}
		if after := adjusted(there, wanted, gate); after != nil {
			t.step.Change = append(t.step.Change, Change{there, after})
		}
	}
	t.share()
}

// renewParts creates missing parts, and replaces all of them if the pods no longer fit them. It reports whether it has begun to replace them.
func (t *stepBuilder) renewParts() bool {
	wanted := t.Gang.initialWorkloads(t.Priority, t.chosen(), t.shapes)
	if len(wanted) > 1 && wanted[0].Labels[apis.PlanUIDLabel] == t.initial[0].Labels[apis.PlanUIDLabel] {
		for _, w := range wanted {
			if !slices.ContainsFunc(t.Workloads, func(there *kueue.Workload) bool { return there.Name == w.Name }) {
				t.step.Create = append(t.step.Create, w)
			}
		}
		return false
	}
	isComplete := strconv.Itoa(len(t.initial)+len(t.finishedInitial)) == t.initial[0].Annotations[apis.PartsAnnotation]
	if isComplete && t.match(t.initial).isWhole(t.needed()) {
		return false
	}
	why := "Pods of the gang have been replaced by others: it gives back what it has gathered, and begins anew"
	t.step.Message.Text = why
	t.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: why}, t.putOff)
	if len(t.step.Evict) == 0 {
		t.step.DeleteWorkloads = append(t.step.DeleteWorkloads, t.initial...)
	}
	return true
}

func (t *stepBuilder) isPutOff(w *kueue.Workload) bool {
	state := w.Status.RequeueState
	return state != nil && state.RequeueAt != nil && state.RequeueAt.After(t.now)
}

// timeOut evicts a gang that has not started and has held quota for too long. It returns the message, or nothing if it does not.
func (t *stepBuilder) timeOut() string {
	var since *metav1.Time
	for _, w := range t.initial {
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
	if since == nil || len(t.step.Evict) > 0 {
		return ""
	}
	if left := since.Add(t.Gang.Wait).Sub(t.now); left > 0 {
		t.again(left)
		return ""
	}
	why := fmt.Sprintf("The gang gave back what it had gathered: it did not start within %s", t.Gang.Wait)
	t.noteTimeout()
	t.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: why}, t.putOff)
	return why
}

// putOff returns when a quota Workload that releases gathered quota queues again: later each time.
func (t *stepBuilder) putOff(w *kueue.Workload) *kueue.RequeueState {
	state := w.Status.RequeueState.DeepCopy()
	if state == nil {
		state = &kueue.RequeueState{}
	}
	count := ptr.Deref(state.Count, 0) + 1
	state.Count = &count
	delay := time.Duration(0)
	if t.Backoff != nil {
		delay = t.Backoff(count)
	}
	return workloadstatus.Until(state, t.now.Add(delay))
}

func (t *stepBuilder) allAdmitted() bool {
	return !slices.ContainsFunc(t.initial, func(w *kueue.Workload) bool { return !t.isAdmitted(w) })
}

// wait returns why quota Workloads are not admitted, as Kueue's reason and as a sentence, or nothing if that is not known yet.
func (t *stepBuilder) wait(workloads []*kueue.Workload) (reason, text string) {
	for _, w := range workloads {
		if t.isAdmitted(w) {
			continue
		}
		if wait := workloadstatus.WaitOf(w); wait != nil && wait.Message != "" {
			return wait.Reason, wait.Message
		}
		for _, c := range []string{kueue.WorkloadAdmitted, kueue.WorkloadRequeued} {
			condition := apimeta.FindStatusCondition(w.Status.Conditions, c)
			if condition != nil && condition.Status == metav1.ConditionFalse && condition.Message != "" {
				return condition.Reason, condition.Message
			}
		}
	}
	return "", ""
}

// A matching assigns pods to slots.
type matching []place

type place struct {
	pod    *corev1.Pod
	slots  *slots
	podSet kueue.PodSetReference
}

func (m matching) isWhole(needed int) bool { return len(m) >= needed }

// match assigns waiting pods to slots of quota Workloads, the oldest first.
func (t *stepBuilder) match(workloads []*kueue.Workload) matching {
	var rooms []*slots
	for _, w := range workloads {
		rooms = append(rooms, newSlots(w, t.podsPaidBy(w)))
	}
	var all matching
	for _, pod := range t.waiting {
		for _, s := range rooms {
			if pod.Labels[apis.QueueLabel] != string(s.workload.Spec.QueueName) || s.rest != nil && !t.suits(s.workload, pod) {
				continue
			}
			if podSet, ok := s.take(pod, t.shapes.of(pod)); ok {
				all = append(all, place{pod, s, podSet})
				break
			}
		}
	}
	return all
}

// suits reports whether a pod can run on the flavors that were reserved before the pods' constraints were known.
func (t *stepBuilder) suits(w *kueue.Workload, pod *corev1.Pod) bool {
	constraints := flavor.NewPod(&pod.Spec)
	for i := range w.Status.Admission.PodSetAssignments {
		for _, name := range w.Status.Admission.PodSetAssignments[i].Flavors {
			f := t.Flavors[name]
			if f == nil {
				continue
			}
			keys := map[string]struct{}{}
			for key := range f.Spec.NodeLabels {
				keys[key] = struct{}{}
			}
			if flavor.New(f).Objection(&constraints, keys) != "" {
				return false
			}
		}
	}
	return true
}

// start ungates all pods that the gang needs. If they do not match what the gang was admitted for, it releases its quota, and asks for what they
// need.
func (t *stepBuilder) start() {
	places := t.match(t.initial)
	if !places.isWhole(t.needed()) {
		why := "The pods of the gang ask for something else than it was admitted for"
		if t.initial[0].Spec.PodSets[0].Name == reservedPodSet {
			why = "The pods of the gang ask for more than minResources of its PodGroup, or cannot run where that was reserved"
		}
		t.step.Message.Topic, t.step.Message.Text = "Renew", why+": it gives its quota back, and asks for what they need"
		t.evictAll(workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPodsReadyTimeout, Message: t.step.Message.Text}, t.putOff)
		return
	}
	ungates, why := t.releases(places)
	if why != "" {
		t.step.Message = Message{"GangWaiting", "Release", why, true}
		t.timeOut()
		return
	}
	for _, w := range t.initial {
		t.step.Change = append(t.step.Change, Change{w, withStart(w, t.now)})
	}
	t.step.Ungate = ungates
	t.step.Message = Message{"GangStarted", "Start", fmt.Sprintf("The gang is admitted in ClusterQueue %q and has started", t.home()), false}
}

// releases returns the ungated pods, and why one of them cannot be ungated.
func (t *stepBuilder) releases(places matching) (all []Ungate, why string) {
	for _, p := range places {
		after, err := t.ungated(p.pod, p.slots.workload, p.podSet)
		if err != nil {
			why = cmp.Or(why, err.Error())
			continue
		}
		all = append(all, Ungate{p.slots.workload, p.pod, after})
	}
	return all, why
}

// ungateLate ungates pods one by one, now that the gang has started: pods for which there is a slot, which others have left or never used, and the
// others when their extra quota Workloads are admitted.
func (t *stepBuilder) ungateLate() {
	admitted := slices.DeleteFunc(slices.Clone(t.initial), func(w *kueue.Workload) bool { return !t.isAdmitted(w) || !hasStarted(w) })
	t.share()
	places := t.match(admitted)
	placed := map[*corev1.Pod]struct{}{}
	for _, p := range places {
		placed[p.pod] = struct{}{}
	}
	extras := map[types.UID]*kueue.Workload{}
	for _, w := range t.extras {
		extras[types.UID(w.Labels[apis.ExtraLabel])] = w
	}
	unpaid, late := map[kueue.PodSetReference]int{}, []*kueue.Workload{}
	for _, pod := range t.waiting {
		if _, ok := placed[pod]; ok {
			continue
		}
		extra, shape := extras[pod.UID], t.shapes.of(pod)
		if extra != nil && t.isAdmitted(extra) && !t.evicts(extra) {
			places = append(places, place{pod, newSlots(extra, nil), shape})
			continue
		}
		if unpaid[shape]++; extra == nil && unpaid[shape] <= mostExtras {
			t.step.Create = append(t.step.Create, t.Gang.extra(t.Priority, pod, t.shapes))
		}
		if extra != nil {
			late = append(late, extra)
		}
	}
	if topic, text := t.wait(late); text != "" {
		t.step.Message = Message{"GangWaiting", topic, t.step.Message.Text + "; pods that came later ask for quota of their own: " + text, false}
	}
	ungates, why := t.releases(places)
	t.step.Ungate = ungates
	if why != "" {
		t.step.Message = Message{"GangWaiting", "Release", why, true}
	}
}

// share adds the pods that have been created since to the owners of the core, so that it is not deleted with the pods that it began with.
func (t *stepBuilder) share() {
	for _, w := range t.initial {
		if after := t.Gang.withOwners(w); after != nil {
			t.step.Change = append(t.step.Change, Change{w, after})
		}
	}
}
