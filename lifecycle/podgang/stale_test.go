package podgang_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A lab is a world with stale caches, objects with versions, a garbage collector, and writes as in controllers/podgang.
type lab struct {
	*world
	version         int
	cachedPods      []*corev1.Pod
	cachedWorkloads []*kueue.Workload
	cachedObject    *podgroup.Object
	controllers     []types.UID
	log             []string
}

func (l *lab) say(f string, a ...any) { l.log = append(l.log, fmt.Sprintf(f, a...)) }

func clone[T interface{ DeepCopy() T }](all []T) []T {
	var out []T
	for _, x := range all {
		out = append(out, x.DeepCopy())
	}
	return out
}

// addPod creates a pod, by one of the controllers if there are any.
func (l *lab) addPod(t *rapid.T, cpus int) *corev1.Pod {
	p := l.add(cpus)
	if len(l.controllers) > 0 {
		owned([]*corev1.Pod{p}, rapid.SampledFrom(l.controllers).Draw(t, "controller"))
	}
	l.stamp(p)
	return p
}

func (l *lab) syncPods()      { l.cachedPods = clone(l.pods) }
func (l *lab) syncWorkloads() { l.cachedWorkloads = clone(l.workloads) }
func (l *lab) syncObject() {
	l.cachedObject = nil
	if l.object != nil {
		o := *l.object
		l.cachedObject = &o
	}
}

func (l *lab) stamp(o metav1.Object) { l.version++; o.SetResourceVersion(strconv.Itoa(l.version)) }

func (l *lab) live(x *kueue.Workload) *kueue.Workload {
	i := slices.IndexFunc(l.workloads, func(w *kueue.Workload) bool { return w.UID == x.UID })
	if i < 0 {
		return nil
	}
	return l.workloads[i]
}

func (l *lab) store(x *kueue.Workload) {
	l.stamp(x)
	i := slices.IndexFunc(l.workloads, func(w *kueue.Workload) bool { return w.UID == x.UID })
	if x.DeletionTimestamp != nil && len(x.Finalizers) == 0 {
		l.workloads = slices.Delete(l.workloads, i, i+1)
		return
	}
	l.workloads[i] = x
}

func (l *lab) see(object *podgroup.Object, pods []*corev1.Pod, workloads []*kueue.Workload) *podgang.Snapshot {
	w := *l.world
	w.object, w.pods, w.workloads = object, clone(pods), clone(workloads)
	s := w.seen()
	s.Charged = map[types.UID]bool{}
	for _, x := range l.workloads {
		s.Charged[x.UID] = quotaworkload.HoldsQuota(x)
	}
	return s
}

// pass is one reconcile of the controller. It may be interrupted after a number of writes. It reports whether it wrote.
func (l *lab) pass(most int) bool {
	step := podgang.Next(l.see(l.cachedObject, l.cachedPods, l.cachedWorkloads), l.now)
	if step.NeedsLive() {
		step = podgang.Next(l.see(l.object, l.pods, l.workloads), l.now)
	}
	l.last = step
	return l.write(step, most)
}

func (l *lab) write(step *podgang.Step, most int) bool {
	n := 0
	did := func(f string, a ...any) bool { n++; l.say("  write "+f, a...); return n >= most }
	// quota makes writes to quota Workloads, and reports whether the step ends.
	quota := func(kinds ...quotastep.Kind) bool {
		for _, write := range step.Of(kinds...) {
			if !l.writeQuota(&write) || did("%d %s: %+v", write.Kind, write.Workload.UID, write.Eviction) {
				return true
			}
		}
		return false
	}
	if quota(quotastep.Evict) {
		return true
	}
	for _, d := range step.Delete {
		for _, p := range l.pods {
			if p.UID == d.Pod.UID && p.DeletionTimestamp == nil {
				p.DeletionTimestamp = new(metav1.NewTime(l.now))
				l.stamp(p)
				if did("delete %s", p.UID) {
					return true
				}
			}
		}
	}
	if quota(quotastep.Progress, quotastep.Reclaim, quotastep.Release, quotastep.RemoveFinalizer, quotastep.Delete, quotastep.Create, quotastep.Change) {
		return true
	}
	for _, u := range step.Ungate {
		i := slices.IndexFunc(l.pods, func(pod *corev1.Pod) bool { return pod.UID == u.Before.UID })
		if i < 0 || l.pods[i].ResourceVersion != u.Before.ResourceVersion {
			continue
		}
		after := u.After.DeepCopy()
		l.stamp(after)
		l.pods[i] = after
		if did("release %s by %s", after.UID, after.Annotations[apis.AdmissionAnnotation]) {
			return true
		}
	}
	return n > 0
}

// writeQuota makes one write to a quota Workload, and reports whether the API server accepts it.
func (l *lab) writeQuota(write *quotastep.Write) bool {
	x, now := write.Workload, l.live(write.Workload)
	switch {
	case write.Kind == quotastep.Create:
		if slices.ContainsFunc(l.workloads, func(there *kueue.Workload) bool { return there.Name == x.Name }) {
			return true
		}
		l.made++
		x = x.DeepCopy()
		x.UID, x.Generation, x.CreationTimestamp = types.UID(fmt.Sprintf("workload-%02d", l.made)), 1, metav1.NewTime(l.now)
		l.stamp(x)
		l.workloads = append(l.workloads, x)
		return true
	case now == nil:
		return true
	case write.IsLocked() && now.ResourceVersion != x.ResourceVersion:
		l.say("  conflict %s", x.Name)
		return false
	case write.Kind == quotastep.Delete:
		i := slices.Index(l.workloads, now)
		l.workloads = slices.Delete(l.workloads, i, i+1)
		return true
	}
	after := write.Result(now, l.now)
	if quotaworkload.HoldsQuota(now) && write.Kind == quotastep.Change && !equality.Semantic.DeepEqual(now.Spec.PodSets, after.Spec.PodSets) {
		l.say("  refused by the API server: pod sets of what holds quota")
		return false
	}
	l.store(after)
	return true
}

func (l *lab) collect() {
	for _, x := range l.workloads {
		gone := len(x.OwnerReferences) > 0
		for _, o := range x.OwnerReferences {
			switch o.Kind {
			case "PodGroup":
				gone = gone && (l.object == nil || l.object.UID != o.UID)
			case "Job":
				gone = false // it outlives its pods
			default:
				gone = gone && !slices.ContainsFunc(l.pods, func(p *corev1.Pod) bool { return p.UID == o.UID })
			}
		}
		if gone && x.DeletionTimestamp == nil {
			l.say("gc deletes %s", x.UID)
			if len(x.Finalizers) == 0 {
				continue
			}
			x.DeletionTimestamp = new(metav1.NewTime(l.now))
			l.stamp(x)
		}
	}
	l.workloads = slices.DeleteFunc(l.workloads, func(x *kueue.Workload) bool { return x.DeletionTimestamp != nil && len(x.Finalizers) == 0 })
}

func (l *lab) checkPaid(t *rapid.T) {
	if why := l.unpaid(); why != "" {
		t.Fatalf("%s, %s\n%s", why, l.standing(), strings.Join(l.log, "\n"))
	}
}

func (l *lab) quiet(t *rapid.T, why string) {
	for i := 0; ; i++ {
		l.collect()
		l.syncPods()
		l.syncWorkloads()
		l.syncObject()
		if !l.pass(1000) {
			return
		}
		l.checkPaid(t)
		if i > 60 {
			t.Fatalf("%s: no end: %s %+v\n%s", why, l.standing(), l.last, strings.Join(l.log, "\n"))
		}
	}
}

// TestStale: whatever happens to a gang, in whichever order the caches show it and wherever a reconcile is interrupted, no pod runs unpaid, its
// steps end, evicted quota is released, and gangs for which there is quota start.
func TestStale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]podgroup.Kind{podgroup.Lightweight, podgroup.Koordinator, podgroup.Kueue, podgroup.Coscheduling}).Draw(t, "kind")
		w := newWorld(t, podgroup.Ref{Kind: kind, Namespace: "ml", Name: "train"})
		l := &lab{world: w, controllers: rapid.SampledFrom([][]types.UID{nil, {"a"}, {"a", "b"}}).Draw(t, "controllers")}
		least := rapid.IntRange(1, 4).Draw(t, "least")
		uids := 1
		object := func() *podgroup.Object {
			uids++
			return &podgroup.Object{
				APIVersion: "v1", Name: "train", UID: types.UID(fmt.Sprint("group-", uids)), MinMember: int64(least), Annotations: map[string]string{},
				Labels: map[string]string{apis.QueueLabel: "main"},
			}
		}
		reserve := false
		switch kind { //nolint:exhaustive // the others have PodGroups
		case podgroup.Lightweight:
			w.settings[apis.KoordinatorPrefix+"name"] = "train"
			w.settings[apis.KoordinatorPrefix+"min-available"] = fmt.Sprint(least)
			w.settings[apis.KoordinatorPrefix+"mode"] = rapid.SampledFrom([]string{"Strict", "NonStrict"}).Draw(t, "mode")
		case podgroup.Kueue:
			w.settings[apis.PodGroupTotalCountAnnotation] = fmt.Sprint(least)
		default:
			if kind == podgroup.Koordinator {
				w.settings[apis.KoordinatorPrefix+"mode"] = rapid.SampledFrom([]string{"Strict", "NonStrict"}).Draw(t, "mode")
				w.settings[apis.KoordinatorPrefix+"total-number"] = fmt.Sprint(least + rapid.IntRange(0, 2).Draw(t, "more"))
			}
			w.object = object()
			if reserve = rapid.Bool().Draw(t, "reserve"); reserve {
				w.object.MinResources = corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(rapid.IntRange(1, 6).Draw(t, "cpus")))}
			}
		}
		pod := func() *corev1.Pod { return l.pods[rapid.IntRange(0, len(l.pods)-1).Draw(t, "pod")] }
		workload := func() *kueue.Workload { return l.workloads[rapid.IntRange(0, len(l.workloads)-1).Draw(t, "workload")] }
		act := map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if len(l.pods) < 8 {
					p := l.addPod(t, rapid.IntRange(1, 2).Draw(t, "cpus"))
					l.say("add %s", p.UID)
				}
			},
			"vanish": func(*rapid.T) {
				if len(l.pods) > 0 {
					p := pod()
					if podgroup.IsGated(p) || podgroup.IsTerminal(p) || p.DeletionTimestamp != nil {
						l.say("gone %s", p.UID)
						l.vanish(p)
					} else {
						l.say("going %s", p.UID)
						p.DeletionTimestamp = new(metav1.NewTime(l.now))
						l.stamp(p)
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(l.pods) > 0 {
					if p := pod(); !podgroup.IsGated(p) && !podgroup.IsTerminal(p) {
						p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
						l.say("end %s %s", p.UID, p.Status.Phase)
						l.stamp(p)
					}
				}
			},
			"admit": func(*rapid.T) {
				if len(l.workloads) > 0 {
					x := workload()
					if l.admit(x) {
						l.say("admit %s", x.UID)
						l.stamp(l.live(x))
					}
				}
			},
			"preempt": func(*rapid.T) {
				if len(l.workloads) > 0 {
					if x := workload(); quotaworkload.HoldsQuota(x) && !quotaworkload.IsTrue(x, kueue.WorkloadEvicted) && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
						l.say("preempt %s", x.UID)
						l.preempt(x)
						l.stamp(l.live(x))
					}
				}
			},
			"delete": func(*rapid.T) {
				if len(l.workloads) > 0 {
					if x := workload(); len(x.Finalizers) > 0 && rapid.IntRange(0, 3).Draw(t, "seldom") == 0 {
						l.say("delete %s", x.UID)
						x.DeletionTimestamp = new(metav1.NewTime(l.now))
						l.stamp(x)
					}
				}
			},
			"regroup": func(*rapid.T) {
				if l.ref.HasObject() && rapid.IntRange(0, 3).Draw(t, "seldom") == 0 {
					if l.object != nil && rapid.Bool().Draw(t, "delete") {
						l.say("delete PodGroup")
						l.object = nil
						return
					}
					l.object = object()
					if reserve {
						l.object.MinResources = corev1.ResourceList{"cpu": resource.MustParse("3")}
					}
					l.say("new PodGroup %s", l.object.UID)
				}
			},
			"edit": func(*rapid.T) {
				if l.object != nil {
					o := *l.object
					o.MinMember = rapid.Int64Range(1, 4).Draw(t, "min")
					l.object = &o
					l.say("min %d", o.MinMember)
				}
			},
			"gc":     func(*rapid.T) { l.collect() },
			"pods":   func(*rapid.T) { l.syncPods() },
			"loads":  func(*rapid.T) { l.syncWorkloads() },
			"object": func(*rapid.T) { l.syncObject() },
			"pass": func(t *rapid.T) {
				l.say("pass")
				l.pass(rapid.SampledFrom([]int{1, 2, 3, 1000}).Draw(t, "most"))
			},
			"pass2": func(t *rapid.T) { l.say("pass"); l.syncWorkloads(); l.pass(1000) },
			"pass3": func(t *rapid.T) { l.say("pass"); l.syncWorkloads(); l.syncObject(); l.syncPods(); l.pass(1000) },
			"wait": func(t *rapid.T) {
				l.now = l.now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "seconds")) * time.Second)
			},
			"": func(t *rapid.T) { l.checkPaid(t) },
		}
		t.Repeat(act)
		// Evicted gangs release their quota, and gangs that fit start.
		if l.ref.HasObject() && l.object == nil {
			l.object = object()
		}
		for range 12 {
			l.now = l.now.Add(time.Hour)
			l.quiet(t, "at the end")
			for _, p := range slices.Clone(l.pods) {
				if p.DeletionTimestamp != nil {
					l.vanish(p)
				}
			}
			for _, x := range slices.Clone(l.workloads) {
				if quotaworkload.HoldsQuota(x) && quotaworkload.IsTrue(x, kueue.WorkloadEvicted) {
					l.quiet(t, "evicted")
					for _, p := range slices.Clone(l.pods) {
						if p.DeletionTimestamp != nil {
							l.vanish(p)
						}
					}
				}
			}
			for _, x := range slices.Clone(l.workloads) {
				if l.live(x) != nil && l.admit(x) {
					l.stamp(l.live(x))
				}
			}
			if len(l.standing())-strings.Count(l.standing(), "f")-strings.Count(l.standing(), "F") < max(least, 4) {
				l.addPod(t, 1)
			}
			// Pods without a controller that have succeeded for a deleted PodGroup do not count for the one that has replaced it.
			if gated := strings.Count(l.standing(), "g"); gated > 0 && gated < least && !strings.ContainsAny(l.standing(), "rR") {
				l.addPod(t, 1)
			}
		}
		l.quiet(t, "at last")
		for _, x := range l.workloads {
			if quotaworkload.HoldsQuota(x) && quotaworkload.IsTrue(x, kueue.WorkloadEvicted) && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
				t.Fatalf("evicted, and never given back: %s %s\n%s", x.UID, l.standing(), strings.Join(l.log, "\n"))
			}
		}
		isDeleted := slices.ContainsFunc(l.workloads, func(x *kueue.Workload) bool { return x.DeletionTimestamp != nil })
		if !isDeleted && strings.Contains(l.standing(), "g") {
			t.Fatalf("pods stay gated although there is quota for all: %s, %s\n%s", l.standing(), l.last.Message.Text, strings.Join(l.log, "\n"))
		}
	})
}
