package simulator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// This file plays the pods of gangs, their controllers and the garbage collector, and checks what holds of gangs. Scenarios have no gangs of pods, so
// that a counter-example has the moves of gangs as comments.

// A gang is a gang of pods of one GPU each. Its pods are created one after the other, and again if they fail or are deleted before the gang has
// finished.
type gang struct {
	kind podgroup.Kind
	name string
	// pods is how many pods start together, or ask for quota part by part if mode is NonStrict.
	pods int
	mode string
	// isOwned is true if a controller owns the pods, or each pod its own if isSplit is true. It outlives them.
	isOwned, isSplit bool
}

// pod returns the pod of a gang with a number, and the controller that owns it.
func (g *gang) pod(n int, owner string, now metav1.Time) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", g.name, n)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: name, UID: types.UID(name), CreationTimestamp: now,
		Labels:      map[string]string{apis.QueueLabel: "ml", apis.PodGroupMemberLabel: apis.PodGroupMemberValue},
		Annotations: map[string]string{},
	}}
	if g.kind == podgroup.Kueue {
		pod.Labels[apis.PodGroupNameLabel] = g.name
		pod.Annotations[apis.PodGroupTotalCountAnnotation] = strconv.Itoa(g.pods)
	} else {
		pod.Annotations[apis.KoordinatorPrefix+"name"] = g.name
		pod.Annotations[apis.KoordinatorPrefix+"min-available"] = strconv.Itoa(g.pods)
		pod.Annotations[apis.KoordinatorPrefix+"mode"] = g.mode
	}
	if g.isOwned {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: owner, UID: types.UID(owner), Controller: new(true)}}
	}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"gpu": *resource.NewQuantity(1, resource.DecimalSI)},
	}}}
	return pod
}

// owners returns the names of the Jobs of a gang.
func (g *gang) owners() []string {
	switch {
	case !g.isOwned:
		return nil
	case !g.isSplit:
		return []string{g.name}
	}
	var names []string
	for n := range g.pods {
		names = append(names, fmt.Sprintf("%s-job-%d", g.name, n))
	}
	return names
}

// jobsOf returns the Jobs of a gang, which count their pods that have succeeded.
func (x *situation) jobsOf(g *gang) []*batchv1.Job {
	var jobs []*batchv1.Job
	for _, owner := range g.owners() {
		pods := int32(g.pods / len(g.owners()))
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: types.UID(owner)}, Spec: batchv1.JobSpec{Parallelism: &pods, Completions: &pods}}
		job.Status.Succeeded = x.gangs.vanished[owner]
		isAlone := true
		for _, pod := range x.podsOf(g) {
			if pod.OwnerReferences[0].Name != owner {
				continue
			}
			isAlone = isAlone && podgroup.IsTerminal(pod)
			if pod.Status.Phase == corev1.PodSucceeded {
				job.Status.Succeeded++
			}
		}
		if isAlone && job.Status.Succeeded >= pods {
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}
		jobs = append(jobs, job)
	}
	return jobs
}

// gangSteps are the reconciles of gangs, and the work of the garbage collector.
func (x *situation) gangSteps(step func(text string, kind adversity, do func(*situation))) {
	for i := range x.world.gangs {
		g := &x.world.gangs[i]
		for _, w := range x.workloadsOf(g) {
			if x.isOrphan(w) {
				step("the garbage collector deletes quota Workload "+w.Name, none, func(x *situation) { x.DeleteWorkload(w) })
			}
		}
		if !x.gangs.work[g.name] {
			continue
		}
		what := "the manager reconciles gang " + g.name
		step(what, none, func(x *situation) {
			delete(x.gangs.work, g.name)
			x.reconcileGang(g, cluster.ObjectName{})
		})
		for _, stale := range x.changedOf(g) {
			step(fmt.Sprintf("%s, and its cache lacks the last change of %s", what, stale), lags, func(x *situation) { x.reconcileGang(g, stale) })
		}
		x.interrupted(what, "", step, func(x *situation) {
			delete(x.gangs.work, g.name)
			x.reconcileGang(g, cluster.ObjectName{})
		})
	}
}

// isOrphan reports whether all owners of a quota Workload have disappeared.
func (x *situation) isOrphan(w *kueue.Workload) bool {
	return w.DeletionTimestamp.IsZero() && len(w.OwnerReferences) > 0 && !slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind != "Pod" || x.gangs.pods[o.Name] != nil
	})
}

// wakeGangs requeues the gangs whose time has come.
func (x *situation) wakeGangs() {
	for name, at := range x.gangs.awaited {
		if at <= x.Now {
			x.gangs.work[name] = true
			delete(x.gangs.awaited, name)
		}
	}
}

// requeueGangs makes a new manager reconcile all gangs.
func (x *situation) requeueGangs() {
	clear(x.gangs.awaited)
	clear(x.gangs.previous)
	for i := range x.world.gangs {
		x.gangs.work[x.world.gangs[i].name] = true
	}
}

// nextTime returns the time of the next event, also of gangs.
func (x *situation) nextTime() (time.Duration, bool) {
	next, ok := x.simulation.nextTime()
	for _, at := range x.gangs.awaited {
		if !ok || at < next {
			next, ok = at, true
		}
	}
	return next, ok
}

// gangMoves are what the pods of gangs do, their controllers, and users.
func (x *situation) gangMoves(event func(text string, kind adversity, do func(*situation))) {
	for i := range x.world.gangs {
		g := &x.world.gangs[i]
		var surplus *corev1.Pod
		present := 0
		for _, owner := range g.owners() {
			present += int(x.gangs.vanished[owner])
		}
		for _, pod := range x.podsOf(g) {
			if pod.Status.Phase != corev1.PodFailed && pod.DeletionTimestamp == nil {
				present++
			}
			if present > g.pods && podgroup.IsWaiting(pod) {
				surplus = pod
			}
			x.gangPodMoves(pod, event)
		}
		if surplus != nil {
			event("# its Job deletes pod "+surplus.Name, none, func(x *situation) { x.deletePod(surplus) })
		}
		if present < g.pods && !x.hasFinished(g) {
			event(fmt.Sprintf("# pod %s-%d is created", g.name, x.gangs.created[g.name]), none, func(x *situation) {
				x.putPod(nil, g.pod(x.gangs.created[g.name], x.ownerOfNext(g), x.Timestamp()))
				x.gangs.created[g.name]++
			})
		}
	}
}

// ownerOfNext returns the name of the controller that creates the next pod of a gang: one that has none, if each has one pod.
func (x *situation) ownerOfNext(g *gang) string {
	owner := g.name
	for n := 0; g.isSplit; n++ {
		owner = fmt.Sprintf("%s-job-%d", g.name, n)
		isOf := func(pod *corev1.Pod) bool {
			return pod.OwnerReferences[0].Name == owner && pod.Status.Phase != corev1.PodFailed
		}
		if x.gangs.vanished[owner] == 0 && !slices.ContainsFunc(x.podsOf(g), isOf) {
			break
		}
	}
	return owner
}

func (x *situation) gangPodMoves(pod *corev1.Pod, event func(text string, kind adversity, do func(*situation))) {
	change := func(what string, kind adversity, do func(*corev1.Pod)) {
		event("# pod "+pod.Name+" "+what, kind, func(x *situation) {
			after := pod.DeepCopy()
			do(after)
			x.putPod(pod, after)
		})
	}
	end := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase, pod.Status.Conditions = phase, nil }
	}
	switch {
	case podgroup.IsTerminal(pod):
	case pod.DeletionTimestamp != nil:
		event("# pod "+pod.Name+" has terminated, and disappears", none, func(x *situation) { x.putPod(pod, nil) })
		if len(pod.OwnerReferences) > 0 {
			event("# pod "+pod.Name+" has succeeded, and disappears", none, func(x *situation) {
				x.gangs.vanished[pod.OwnerReferences[0].Name]++
				x.putPod(pod, nil)
			})
		}
	default:
		event("# a user deletes pod "+pod.Name, interventions, func(x *situation) { x.deletePod(pod) })
		if podgroup.IsGated(pod) {
			return
		}
		if !podgroup.IsReady(pod) {
			change("is ready", none, func(pod *corev1.Pod) {
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			})
		}
		change("succeeds", none, end(corev1.PodSucceeded))
		change("fails", failures, end(corev1.PodFailed))
	}
}

// hasFinished reports whether a gang has quota Workloads, and all of them have finished.
func (x *situation) hasFinished(g *gang) bool {
	all := x.workloadsOf(g)
	return len(all) > 0 && !slices.ContainsFunc(all, func(w *kueue.Workload) bool { return !cluster.IsFinished(w) })
}

// gangsHaveEnded reports whether all pods have terminated, and all quota is released.
func (x *situation) gangsHaveEnded() bool {
	for i := range x.world.gangs {
		g := &x.world.gangs[i]
		if x.gangs.created[g.name] < g.pods {
			return false
		}
		for _, w := range x.workloadsOf(g) {
			if !cluster.IsFinished(w) || len(w.Finalizers) > 0 {
				return false
			}
		}
		if slices.ContainsFunc(x.podsOf(g), func(pod *corev1.Pod) bool { return !podgroup.IsTerminal(pod) }) {
			return false
		}
	}
	return true
}

// unpaidGangPods returns what is wrong if pods of gangs run for which no quota is held (I2, I4).
func (x *situation) unpaidGangPods() (wrong []string) {
	paid := map[string]int32{}
	for _, w := range x.gangs.workloads {
		for podSet, charged := range ledger.Charged(w) {
			paid[fmt.Sprintf("%s.%s/%s", w.UID, roundOf(w), podSet)] += int32(charged[corev1.ResourcePods] / 1000)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.gangs.pods)) {
		pod := x.gangs.pods[name]
		if !podgroup.IsActive(pod) {
			continue
		}
		if paid[pod.Annotations[apis.AdmissionAnnotation]]--; paid[pod.Annotations[apis.AdmissionAnnotation]] < 0 {
			wrong = append(wrong, fmt.Sprintf("I2: pod %s runs, and no quota pays for it", name))
		}
	}
	return wrong
}

func roundOf(w *kueue.Workload) string {
	if round := w.Annotations[apis.RoundAnnotation]; round != "" {
		return round
	}
	return "0"
}

// lateGangWrites returns what is wrong if a reconcile of a gang writes something although nothing has happened since the last one (I5).
func (x *situation) lateGangWrites() (wrong []string) {
	for i := range x.world.gangs {
		probe := x.copied()
		if err := probe.revive(); err != nil {
			return []string{err.Error()}
		}
		probe.reconcileGang(&x.world.gangs[i], cluster.ObjectName{})
		if probe.Writes > x.Writes {
			wrong = append(wrong, fmt.Sprintf("I5: another reconcile of gang %s changes something", x.world.gangs[i].name))
		}
	}
	return wrong
}

// stateOfGangs describes the pods of gangs, and what the manager has to do for them.
func (x *situation) stateOfGangs(b *strings.Builder) {
	for i := range x.world.gangs {
		g := &x.world.gangs[i]
		fmt.Fprintf(b, "\ngang %s created=%d due=%t", g.name, x.gangs.created[g.name], x.gangs.work[g.name])
		for _, owner := range g.owners() {
			fmt.Fprintf(b, " %s=%d", owner, x.gangs.vanished[owner])
		}
		if at, isAwaited := x.gangs.awaited[g.name]; isAwaited {
			fmt.Fprintf(b, " await %s", at-x.Now)
		}
		for _, pod := range x.podsOf(g) {
			x.stateOfPod(b, pod)
		}
		for _, w := range x.workloadsOf(g) {
			x.stateOfGangWorkload(b, w)
		}
		if x.left[lags] == 0 {
			continue
		}
		for _, name := range x.changedOf(g) {
			fmt.Fprintf(b, "\nprevious %s ", name)
			switch v := x.gangs.previous[g.name][name]; {
			case v.pod != nil:
				x.stateOfPod(b, v.pod)
			case v.workload != nil:
				x.stateOfWorkload(b, v.workload)
				x.stateOfGangWorkload(b, v.workload)
			}
		}
	}
}

func (x *situation) stateOfPod(b *strings.Builder, pod *corev1.Pod) {
	admission := pod.Annotations[apis.AdmissionAnnotation]
	for _, w := range x.gangs.workloads {
		admission = strings.Replace(admission, string(w.UID), w.Name, 1)
	}
	for i := range pod.OwnerReferences {
		admission += " of " + pod.OwnerReferences[i].Name
	}
	fmt.Fprintf(b, "\npod %s gated=%t %s ready=%t deleted=%t paid by %s created %s", pod.Name, podgroup.IsGated(pod), pod.Status.Phase, podgroup.IsReady(pod),
		pod.DeletionTimestamp != nil, admission, pod.CreationTimestamp.Sub(x.Beginning()))
}

// stateOfGangWorkload describes what stateOfWorkload omits.
func (x *situation) stateOfGangWorkload(b *strings.Builder, w *kueue.Workload) {
	fmt.Fprintf(b, "\nquota Workload %s of %s created %s owners", w.Name, w.Labels[apis.JobUIDLabel], w.CreationTimestamp.Sub(x.Beginning()))
	for i := range w.OwnerReferences {
		b.WriteString(" " + w.OwnerReferences[i].Name)
	}
	b.WriteString(" older")
	for _, key := range x.WorkloadKeys() {
		if x.Workloads[key].UID < w.UID {
			b.WriteString(" " + key.Name)
		}
	}
}
