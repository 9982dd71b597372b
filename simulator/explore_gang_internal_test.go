package simulator

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
)

// This file runs the lifecycle of gangs of pods on the objects of a situation, and writes its Steps with the preconditions of controllers/podgang.

// The kinds of objects of a gang of which a cache may show the previous version.
const (
	podKind          = "pod"
	gangWorkloadKind = "quota Workload"
)

// gangs has the gangs of pods of a situation. Written objects are never changed, so that copies share them.
type gangs struct {
	// pods has the pods of all gangs by name, and created counts those that each gang ever had.
	pods    map[string]*corev1.Pod
	created map[string]int
	// vanished counts the pods of each Job that have succeeded while they were being deleted, and no longer exist.
	vanished map[string]int32
	// workloads has the latest versions of the quota Workloads of gangs.
	workloads map[admission.StageKey]*kueue.Workload
	// work has the names of the gangs that the manager has to reconcile, and awaited when it does so without an event.
	work    map[string]bool
	awaited map[string]time.Duration
	// plans has the plan that the parts of each gang follow.
	plans map[string]types.UID
	// previous has, unless it is nil, the versions of the objects of each gang before their last change that the manager has not read yet.
	previous map[string]map[cluster.ObjectName]gangVersion
}

// A gangVersion is a version of one object, which did not exist if both are nil.
type gangVersion struct {
	pod      *corev1.Pod
	workload *kueue.Workload
}

func newGangs() gangs {
	return gangs{
		pods: map[string]*corev1.Pod{}, created: map[string]int{}, vanished: map[string]int32{}, workloads: map[admission.StageKey]*kueue.Workload{}, work: map[string]bool{},
		awaited: map[string]time.Duration{}, plans: map[string]types.UID{},
	}
}

func (g *gangs) copied() gangs {
	c := gangs{
		maps.Clone(g.pods), maps.Clone(g.created), maps.Clone(g.vanished), maps.Clone(g.workloads), maps.Clone(g.work), maps.Clone(g.awaited), maps.Clone(g.plans),
		maps.Clone(g.previous),
	}
	for name, objects := range g.previous {
		c.previous[name] = maps.Clone(objects)
	}
	return c
}

// remember keeps the version of an object of a gang that is about to be replaced.
func (g *gangs) remember(gang string, name cluster.ObjectName, before gangVersion) {
	if g.previous == nil {
		return
	}
	if g.previous[gang] == nil {
		g.previous[gang] = map[cluster.ObjectName]gangVersion{}
	}
	g.previous[gang][name] = before
}

func (g *gang) ref() podgroup.Ref {
	return podgroup.Ref{Kind: g.kind, Namespace: metav1.NamespaceDefault, Name: g.name}
}

// watchGangs requeues a gang when one of its quota Workloads changes.
func (x *situation) watchGangs() {
	observe := x.Observe
	x.Observe = func(event admission.Event) {
		observe(event)
		switch e := event.(type) {
		case admission.WorkloadObserved:
			x.gangChanged(cluster.KeyOf(e.Workload), x.Workloads[cluster.KeyOf(e.Workload)])
		case admission.WorkloadGone:
			x.gangChanged(e.Key, nil)
		}
	}
}

// gangChanged records the new version of a quota Workload, if it belongs to a gang.
func (x *situation) gangChanged(key admission.StageKey, now *kueue.Workload) {
	before := x.gangs.workloads[key]
	ref, isOfGang := podgroup.ParseRef(key.Namespace, cmp.Or(before, now, &kueue.Workload{}).Annotations[apis.PodGroupKey])
	if !isOfGang {
		return
	}
	x.gangs.remember(ref.Name, cluster.ObjectName{Kind: gangWorkloadKind, Name: key.Name}, gangVersion{workload: before})
	x.gangs.work[ref.Name] = true
	if x.gangs.workloads[key] = now; now == nil {
		delete(x.gangs.workloads, key)
	}
}

// putPod writes a pod of a gang, or removes it if there is no version after.
func (x *situation) putPod(before, after *corev1.Pod) {
	one := cmp.Or(after, before)
	ref, _ := podgroup.RefOf(one)
	x.gangs.remember(ref.Name, cluster.ObjectName{Kind: podKind, Name: one.Name}, gangVersion{pod: before})
	x.gangs.work[ref.Name] = true
	if after == nil {
		x.Sequence++
		delete(x.gangs.pods, one.Name)
		return
	}
	x.Stamp(after)
	x.gangs.pods[after.Name] = after
}

// podsOf returns the pods of a gang, in order.
func (x *situation) podsOf(g *gang) []*corev1.Pod {
	all := slices.DeleteFunc(slices.Collect(maps.Values(x.gangs.pods)), func(pod *corev1.Pod) bool {
		ref, _ := podgroup.RefOf(pod)
		return ref != g.ref()
	})
	slices.SortFunc(all, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// workloadsOf returns the quota Workloads of a gang, in order.
func (x *situation) workloadsOf(g *gang) []*kueue.Workload {
	all := slices.DeleteFunc(slices.Collect(maps.Values(x.gangs.workloads)), func(w *kueue.Workload) bool { return w.Annotations[apis.PodGroupKey] != g.ref().String() })
	slices.SortFunc(all, func(a, b *kueue.Workload) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// changedOf returns the objects of a gang that have a previous version, in order.
func (x *situation) changedOf(g *gang) []cluster.ObjectName {
	return slices.SortedFunc(maps.Keys(x.gangs.previous[g.name]), func(a, b cluster.ObjectName) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// gangSnapshot reads a gang: the latest version of each object, except for the one of which the cache has not received the last event.
func (x *situation) gangSnapshot(g *gang, stale cluster.ObjectName) *podgang.Snapshot {
	pods, workloads, shown := x.podsOf(g), x.workloadsOf(g), x.gangs.previous[g.name][stale]
	switch stale.Kind {
	case podKind:
		pods = slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == stale.Name })
		if shown.pod != nil {
			pods = append(pods, shown.pod)
		}
	case gangWorkloadKind:
		workloads = slices.DeleteFunc(workloads, func(w *kueue.Workload) bool { return w.Name == stale.Name })
		if shown.workload != nil {
			workloads = append(workloads, shown.workload)
		}
	}
	s := &podgang.Snapshot{Workloads: workloads, Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{}, Charged: map[types.UID]bool{}}
	s.Jobs = x.jobsOf(g)
	s.Gang, s.Problems = podgroup.New(g.ref(), nil, pods, podgroup.Settings{Wait: 10 * time.Minute})
	s.Backoff = func(count int32) time.Duration { return time.Duration(count) * time.Minute }
	for name, flavor := range x.Flavors {
		s.Flavors[kueue.ResourceFlavorReference(name)] = flavor
	}
	for _, w := range workloads {
		s.Charged[w.UID] = x.Engine.ChargedAs(w)
	}
	return s
}

// reconcileGang takes the next step of the manager for a gang, from a cache that may lack the last change of one object.
func (x *situation) reconcileGang(g *gang, stale cluster.ObjectName) {
	snapshot := x.gangSnapshot(g, stale)
	if stale.Kind == "" {
		delete(x.gangs.previous, g.name)
	}
	step := podgang.Next(snapshot, x.Time())
	if step.NeedsLive() {
		snapshot = x.gangSnapshot(g, cluster.ObjectName{})
		step = podgang.Next(snapshot, x.Time())
	}
	x.followPlan(g, slices.Concat(snapshot.Workloads, step.Workloads(quotastep.Create)))
	switch err := step.Write(x.gangWriter(step)); {
	case errors.Is(err, manager.ErrCut):
		x.Restart()
		x.forget()
		return
	case errors.Is(err, manager.ErrConflict):
		x.gangs.work[g.name] = true
		return
	case err != nil:
		x.ReportViolation("%v", err)
	}
	delete(x.gangs.awaited, g.name)
	if step.RequeueAfter > 0 {
		x.gangs.awaited[g.name] = x.Now + step.RequeueAfter
	}
}

// followPlan lets the engine observe the plan of the parts of a gang, before they are created and until they are deleted.
func (x *situation) followPlan(g *gang, workloads []*kueue.Workload) {
	plan := podgang.PlanOf(workloads)
	if before := x.gangs.plans[g.name]; before != plan.UID && before != "" {
		delete(x.Plans, before)
		x.Observe(admission.PlanGone{UID: before})
	}
	x.gangs.plans[g.name] = plan.UID
	if plan.UID == "" {
		return
	}
	x.Plans[plan.UID] = admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.GangOwner, Key: types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: g.name}},
		UID:   plan.UID, Submitted: plan.Submitted, StageAdmission: admission.Safe, Plan: plan.Stages,
	}
	x.Observe(x.Plans[plan.UID])
}

// gangWriter returns the writer of a Step of a gang. Kueue's groups have no object to which a report or a timeout is written.
func (x *situation) gangWriter(step *podgang.Step) *podgang.Writer {
	none := func(*podgang.Step) error { return nil }
	return &podgang.Writer{
		NoteTimeout: none, Quota: x.WriteQuota, Report: none, KeepStatus: none,
		DeletePods: func(*podgang.Step) error { return manager.Each(x.Manager, step.Delete, x.deletePodOf) },
		Ungate:     func(*podgang.Step) error { return manager.Each(x.Manager, step.Ungate, x.ungate) },
	}
}

func (x *situation) deletePodOf(d podgang.Delete) error {
	if now := x.gangs.pods[d.Pod.Name]; now != nil && now.UID == d.Pod.UID {
		x.deletePod(now)
	}
	return nil
}

// deletePod deletes a pod. One that no scheduler has seen disappears at once, and another one terminates first.
func (x *situation) deletePod(pod *corev1.Pod) {
	if podgroup.IsGated(pod) || podgroup.IsTerminal(pod) {
		x.putPod(pod, nil)
		return
	}
	after := pod.DeepCopy()
	after.DeletionTimestamp = new(x.Timestamp())
	x.putPod(pod, after)
}

func (x *situation) ungate(u podgang.Ungate) error {
	now := x.gangs.pods[u.Before.Name]
	switch {
	case now == nil:
		return nil
	case now.UID != u.Before.UID || now.ResourceVersion != u.Before.ResourceVersion:
		return manager.ErrConflict
	}
	x.putPod(now, u.After.DeepCopy())
	return nil
}
