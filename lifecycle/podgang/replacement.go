package podgang

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// An eviction deletes the pods of a quota Workload. If it backs off, or the manager has deactivated it, it is kept for the pods that replace them: without it, these would
// ask for quota at once, and no retry limit would ever be reached. No pod owns it meanwhile, or it would be deleted with the last one.
//
//	pods of a group: not ready -> evicted, count 1 -> deleted -> created again -> the group goes on with its quota Workload
//	pod of a ReplicaSet: not ready -> evicted, count 1 -> deleted -> another pod takes over its quota Workload -> backs off -> admitted -> evicted, count 2

// outlivesPods reports whether a quota Workload is kept for the pods that replace its own: it was evicted, and backs off or has done so, or the manager
// has deactivated it.
func outlivesPods(w *kueue.Workload) bool {
	evicted := quotaworkload.FindTrue(w, kueue.WorkloadEvicted)
	if evicted == nil || quotaworkload.IsTrue(w, kueue.WorkloadFinished) || !w.DeletionTimestamp.IsZero() {
		return false
	}
	return w.Status.RequeueState != nil || workloadstatus.IsShutOut(w) && evicted.Reason != kueue.WorkloadDeactivated
}

// awaitsReplacement reports whether an initial quota Workload of a gang without pods is still kept for those that replace them.
func (b *stepBuilder) awaitsReplacement(w *kueue.Workload) bool {
	if !b.outlivesPods() && (!awaitsPods(w) || changesNames(w)) || isExtra(w) {
		return false
	}
	return b.awaitsPod(w, b.initial...)
}

// awaitsPod reports whether a quota Workload without pods is still kept for one that may come: until idleGrace after the back-off of all, and after its last pod
// was gone. It records the latter.
func (b *stepBuilder) awaitsPod(w *kueue.Workload, all ...*kueue.Workload) bool {
	if quotaworkload.HoldsQuota(w) {
		return true
	}
	since, isNoted := idleSince(w)
	if !isNoted {
		since = b.now
		b.step.Change(w, withIdle(w, since))
	}
	for _, part := range all {
		since = workloadstatus.Later(since, backsOffUntil(part))
	}
	return b.grace(since) > 0
}

// backsOffUntil returns when the back-off of an evicted quota Workload ends, or when it has ended.
func backsOffUntil(w *kueue.Workload) time.Time {
	at := workloadstatus.QueuedSince(w)
	if state := w.Status.RequeueState; state != nil && state.RequeueAt != nil {
		at = workloadstatus.Later(at, state.RequeueAt.Time)
	}
	return at
}

// outlivesPods reports whether the initial quota Workloads of the gang outlive their pods. In parts, one that backs off keeps all.
func (s *gangState) outlivesPods() bool { return slices.ContainsFunc(s.initial, outlivesPods) }

// disown removes the pods from the owners of a quota Workload that outlives them, before they are deleted, and reports whether it does.
func (b *stepBuilder) disown(w *kueue.Workload) bool {
	outlives := b.outlivesPods()
	if isExtra(w) {
		outlives = outlivesPods(w)
	}
	if !outlives || !w.DeletionTimestamp.IsZero() || !slices.ContainsFunc(w.OwnerReferences, isPod) {
		return false
	}
	after := w.DeepCopy()
	after.OwnerReferences = slices.DeleteFunc(after.OwnerReferences, isPod)
	b.step.Change(w, after)
	return true
}

// naming is which name the pod has that replaces another one. A pod of the same name belongs to the same gang of one.
type naming int

const (
	// anyName is that of pods of controllers that are not part of Kubernetes, about which nothing is known.
	anyName naming = iota
	sameName
	otherName
)

func namingOf(owner metav1.OwnerReference) naming {
	group, _, isNamed := strings.Cut(owner.APIVersion, "/")
	if !isNamed {
		group = ""
	}
	switch group + "/" + owner.Kind {
	case "/Pod", "apps/StatefulSet":
		return sameName
	case "apps/ReplicaSet", "apps/DaemonSet", "batch/Job", "/ReplicationController":
		return otherName
	}
	return anyName
}

func isPod(owner metav1.OwnerReference) bool { return owner.APIVersion == "v1" && owner.Kind == "Pod" }

// keepsNames reports whether all owners of a quota Workload replace a pod by one of the same name.
func keepsNames(w *kueue.Workload) bool {
	return !slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return namingOf(o) != sameName })
}

// changesNames reports whether an owner of a quota Workload replaces a pod by one of another name.
func changesNames(w *kueue.Workload) bool {
	return slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool { return namingOf(o) == otherName })
}

// ControllersOfReplaced returns the UIDs of the owners of a quota Workload that another pod of them takes over when its own pod is gone, or nothing.
func ControllersOfReplaced(w *kueue.Workload) []string {
	ref, ok := podgroup.ParseRef(w.Namespace, w.Annotations[apis.PodGroupKey])
	if !ok || ref.Kind != podgroup.Single || isExtra(w) || keepsNames(w) || !outlivesPods(w) {
		return nil
	}
	var all []string
	for i := range w.OwnerReferences {
		all = append(all, string(w.OwnerReferences[i].UID))
	}
	return all
}

// ControllerOfReplacement returns the UID of the controller of a pod that waits by itself, and may take over the quota Workload of another pod, or nothing.
func ControllerOfReplacement(pod *corev1.Pod) []string {
	ref, ok := podgroup.RefOf(pod)
	if owner := controllerOf(pod); ok && ref.Kind == podgroup.Single && podgroup.IsWaiting(pod) && owner != "" {
		return []string{string(owner)}
	}
	return nil
}

// A Predecessor is the quota Workload of a pod that is gone or ends, and which another pod of its controller may take over.
type Predecessor struct {
	Workload *kueue.Workload
	// Pod is the pod, or nil if it is gone.
	Pod *corev1.Pod
}

// awaitsRelease reports whether a pod still waits for the quota Workload of another one to release its quota, which it does once that pod has ended. On a lost
// node a pod does not end: the wait ends idleGrace after its grace period and the back-off.
func (b *stepBuilder) awaitsRelease(p Predecessor) bool {
	if p.Pod == nil || podgroup.IsTerminal(p.Pod) {
		return true
	}
	until := workloadstatus.Later(quotaworkload.FindTrue(p.Workload, kueue.WorkloadEvicted).LastTransitionTime.Time, backsOffUntil(p.Workload))
	if p.Pod.DeletionTimestamp != nil {
		until = workloadstatus.Later(until, p.Pod.DeletionTimestamp.Time)
	}
	return b.grace(until) > 0
}

// takeOver takes over the quota Workload of a pod that had the same controller, and reports whether the gang needs no other one yet: it also waits for one
// that has not released its quota, unless older pods will take over all of these. Different pods choose different ones if they can, since one pod only gets each.
func (b *stepBuilder) takeOver() bool {
	suited := slices.DeleteFunc(slices.Clone(b.Predecessors), func(p Predecessor) bool { return !b.succeeds(p.Workload) })
	isFree := func(p Predecessor) bool { return !quotaworkload.HoldsQuota(p.Workload) && !hasStarted(p.Workload) }
	digest := func(p Predecessor) string {
		return podgroup.Digest(string(p.Workload.UID), string(b.Gang.Incarnation()))
	}
	if free := slices.DeleteFunc(slices.Clone(suited), func(p Predecessor) bool { return !isFree(p) }); len(free) > 0 {
		chosen := slices.MinFunc(free, func(x, y Predecessor) int { return cmp.Compare(digest(x), digest(y)) }).Workload
		b.step.Change(chosen, handedOver(chosen, b.Gang))
		return true
	}
	awaited := slices.DeleteFunc(suited, func(p Predecessor) bool { return !b.awaitsRelease(p) })
	if len(awaited) <= b.OlderSiblings {
		return false
	}
	name := slices.MinFunc(awaited, func(x, y Predecessor) int { return cmp.Compare(x.Workload.Name, y.Workload.Name) }).Workload.Name
	b.step.Message.Text = fmt.Sprintf("The pod waits until quota Workload %q of an evicted pod has released its quota, and takes over that Workload", name)
	return true
}

// succeeds reports whether the pod of the gang plays the part of the pod of another quota Workload. A controller of Kubernetes creates all its pods from one
// template; another one may have pods of several roles, which differ in what they ask for.
func (b *stepBuilder) succeeds(w *kueue.Workload) bool {
	return changesNames(w) || samePodSets(w.Spec.PodSets, b.shapes.podSets(b.chosen()...))
}

// handedOver returns the quota Workload of a pod as that of a gang of one whose pod has the same controller. The name of the first pod stays in its name.
func handedOver(w *kueue.Workload, to *podgroup.Gang) *kueue.Workload {
	after := w.DeepCopy()
	add(&after.Labels, apis.JobUIDLabel, string(to.Incarnation()))
	add(&after.Labels, apis.PodGroupKey, to.Label())
	add(&after.Annotations, apis.PodGroupKey, to.String())
	return after
}

// passOn assigns the extra quota Workload of a pod that is gone to one that waits and has none, and reports whether that one needs no other: it also waits for
// one that has not released its quota. Each is passed on once in a step.
func (b *stepBuilder) passOn(pod *corev1.Pod) bool {
	for _, w := range b.extras {
		its := b.pods[types.UID(w.Labels[apis.ExtraLabel])]
		isLeft := outlivesPods(w) && (its == nil || its.DeletionTimestamp != nil || podgroup.IsTerminal(its))
		if !isLeft || b.passedOn[w.UID] || b.step.Does(w, quotastep.Delete) {
			continue
		}
		isFree := !quotaworkload.HoldsQuota(w) && !b.runs(w) && len(w.Status.ReclaimablePods) == 0 && !b.step.Does(w, quotastep.Change)
		if !isFree && !b.awaitsRelease(Predecessor{w, its}) {
			continue
		}
		if isFree {
			b.step.Change(w, passedOn(w, b.extra(pod)))
		}
		b.passedOn[w.UID] = true
		return true
	}
	return false
}

// passedOn returns an extra quota Workload as the wanted one of another pod. Its round tells the two pods apart.
func passedOn(w, wanted *kueue.Workload) *kueue.Workload {
	after := w.DeepCopy()
	copyKey(&after.Labels, wanted.Labels, apis.ExtraLabel)
	add(&after.Annotations, apis.RoundAnnotation, strconv.Itoa(round(w)+1))
	adjustWaiting(after, wanted, "")
	return after
}
