package simulator

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
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
	x.followPlan(g, slices.Concat(snapshot.Workloads, step.Create))
	w := &gangWriter{x}
	switch err := step.Write(w.writer()); {
	case errors.Is(err, errGangCut):
		x.Restart()
		x.forget()
		return
	case errors.Is(err, errGangConflict):
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

var (
	// errGangCut ends a Step of a manager that dies in the middle of it, and errGangConflict one that meets a conflict.
	errGangCut      = errors.New("the manager dies")
	errGangConflict = errors.New("the object has changed since it was read")
)

// A gangWriter writes the Steps of gangs. Kueue's groups have no object to which a report or a timeout is written.
type gangWriter struct{ *situation }

func (w *gangWriter) writer() *podgang.Writer {
	none := func(*podgang.Step) error { return nil }
	return &podgang.Writer{
		NoteTimeout: none, Evict: w.evict, DeletePods: w.deletePods, Progress: w.progress, Reclaim: w.reclaim, ReleaseQuota: w.releaseQuota,
		RemoveFinalizers: w.removeFinalizers, DeleteWorkloads: w.deleteWorkloads, Create: w.create, Change: w.change, Ungate: w.ungate,
		Report: none, KeepStatus: none,
	}
}

// eachOf writes objects one by one. It stops where the manager is to die, and at the first write that fails.
func eachOf[T any](w *gangWriter, all []T, write func(T) error) error {
	for _, one := range all {
		if w.Writes == w.DiesAfter {
			w.DiesAfter = -1
			return errGangCut
		}
		w.Writes++
		if w.Writes-1 != w.FailsAfter {
			if err := write(one); err != nil {
				return err
			}
			continue
		}
		w.FailsAfter = -1
		if w.LosesAnswer {
			return errors.Join(write(one), errGangConflict)
		}
		return errGangConflict
	}
	return nil
}

// onCurrent changes the current version of a quota Workload: of the same UID, or of the same version. It does nothing if that has disappeared.
func (w *gangWriter) onCurrent(read *kueue.Workload, isLocked bool, change func(now *kueue.Workload) *kueue.Workload) error {
	now := w.Workloads[cluster.KeyOf(read)]
	switch {
	case now == nil:
		return nil
	case now.UID != read.UID, isLocked && now.ResourceVersion != read.ResourceVersion:
		return errGangConflict
	}
	w.PutWorkload(change(now))
	return nil
}

func (w *gangWriter) evict(step *podgang.Step) error {
	return eachOf(w, step.Evict, func(e podgang.Evict) error {
		return w.onCurrent(e.Workload, true, func(now *kueue.Workload) *kueue.Workload {
			status := workloadstatus.Evicted(now, e.Why, w.Time())
			status.RequeueState = cmp.Or(e.Requeue, status.RequeueState)
			return workloadstatus.Merge(now, &status)
		})
	})
}

func (w *gangWriter) deletePods(step *podgang.Step) error {
	return eachOf(w, step.Delete, func(d podgang.Delete) error {
		if now := w.gangs.pods[d.Pod.Name]; now != nil && now.UID == d.Pod.UID {
			w.deletePod(now)
		}
		return nil
	})
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

func (w *gangWriter) progress(step *podgang.Step) error {
	return eachOf(w, step.Progress, func(p podgang.Progress) error {
		return w.onCurrent(p.Workload, p.Finished != nil, func(now *kueue.Workload) *kueue.Workload {
			after := now.DeepCopy()
			for _, c := range workloadstatus.Progress(p.Workload, p.Ready, p.Finished, w.Time()).Conditions {
				apimeta.SetStatusCondition(&after.Status.Conditions, c)
			}
			return after
		})
	})
}

func (w *gangWriter) reclaim(step *podgang.Step) error {
	return eachOf(w, step.Reclaim, func(r podgang.Reclaim) error {
		return w.onCurrent(r.Workload, true, func(now *kueue.Workload) *kueue.Workload {
			after := now.DeepCopy()
			after.Status.ReclaimablePods = r.Pods
			return after
		})
	})
}

func (w *gangWriter) releaseQuota(step *podgang.Step) error {
	return eachOf(w, step.ReleaseQuota, func(workload *kueue.Workload) error {
		return w.onCurrent(workload, true, func(now *kueue.Workload) *kueue.Workload {
			status := workloadstatus.QuotaReleased(now, w.Time())
			return workloadstatus.Merge(now, &status)
		})
	})
}

func (w *gangWriter) removeFinalizers(step *podgang.Step) error {
	return eachOf(w, step.RemoveFinalizer, w.removeFinalizer)
}

func (w *gangWriter) removeFinalizer(read *kueue.Workload) error {
	now := w.Workloads[cluster.KeyOf(read)]
	switch {
	case now == nil || len(read.Finalizers) == 0:
		return nil
	case now.UID != read.UID:
		return errGangConflict
	}
	w.RemoveFinalizer(now)
	return nil
}

func (w *gangWriter) deleteWorkloads(step *podgang.Step) error {
	for _, workload := range step.DeleteWorkloads {
		remove := func(read *kueue.Workload) error {
			now := w.Workloads[cluster.KeyOf(read)]
			switch {
			case now == nil || !read.DeletionTimestamp.IsZero():
				return nil
			case now.UID != read.UID || now.ResourceVersion != read.ResourceVersion:
				return errGangConflict
			}
			w.DeleteWorkload(now)
			return nil
		}
		if err := eachOf(w, []*kueue.Workload{workload}, remove); err != nil {
			return err
		}
		if err := eachOf(w, []*kueue.Workload{workload}, w.removeFinalizer); err != nil {
			return err
		}
	}
	return nil
}

func (w *gangWriter) create(step *podgang.Step) error {
	return eachOf(w, step.Create, func(workload *kueue.Workload) error {
		if w.Workloads[cluster.KeyOf(workload)] == nil {
			w.PutWorkload(workload.DeepCopy())
		}
		return nil
	})
}

func (w *gangWriter) change(step *podgang.Step) error {
	return eachOf(w, step.Change, func(c podgang.Change) error {
		isSameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
		isLocked := !equality.Semantic.DeepEqual(c.Before.Spec.PodSets, c.After.Spec.PodSets) ||
			!slices.EqualFunc(c.Before.OwnerReferences, c.After.OwnerReferences, isSameOwner)
		var failed error
		err := w.onCurrent(c.Before, isLocked, func(now *kueue.Workload) *kueue.Workload {
			after, err := cluster.Patched(c.Before, c.After, now)
			failed = err
			if err == nil && !equality.Semantic.DeepEqual(now.Spec, after.Spec) {
				after.Generation++
			}
			return cmp.Or(after, now)
		})
		return errors.Join(err, failed)
	})
}

func (w *gangWriter) ungate(step *podgang.Step) error {
	return eachOf(w, step.Ungate, func(u podgang.Ungate) error {
		now := w.gangs.pods[u.Before.Name]
		switch {
		case now == nil:
			return nil
		case now.UID != u.Before.UID || now.ResourceVersion != u.Before.ResourceVersion:
			return errGangConflict
		}
		w.putPod(now, u.After.DeepCopy())
		return nil
	})
}
