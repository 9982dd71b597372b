package podgang_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A world has the objects of one gang, and simulates what others do to them.
type world struct {
	t         failer
	ref       podgroup.Ref
	object    *podgroup.Object
	settings  map[string]string
	pods      []*corev1.Pod
	workloads []*kueue.Workload
	jobs      []*batchv1.Job
	peers     []podgang.Peer
	devices   podgroup.Devices
	gone      map[types.UID]bool
	retention configapi.WorkloadRetentionPolicy
	now       time.Time
	made      int
	// grace is the grace period of all pods.
	grace time.Duration
	// stops is Settings.StopsAfterTimeout.
	stops bool
	last  *podgang.Step
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func newWorld(t failer, ref podgroup.Ref) *world {
	return &world{t: t, ref: ref, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), settings: map[string]string{}}
}

// add creates a gated pod that asks for some CPUs.
func (w *world) add(cpus int) *corev1.Pod {
	w.made++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ml", Name: fmt.Sprintf("pod-%02d", w.made), UID: types.UID(fmt.Sprintf("pod-%02d", w.made)), CreationTimestamp: metav1.NewTime(w.now),
		Labels:      map[string]string{apis.QueueLabel: "main", apis.PodGroupMemberLabel: apis.PodGroupMemberValue},
		Annotations: map[string]string{},
	}}
	maps.Copy(pod.Annotations, w.settings)
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": *resource.NewQuantity(int64(cpus), resource.DecimalSI)},
	}}}
	w.pods = append(w.pods, pod)
	return pod
}

func (w *world) seen() *podgang.Snapshot {
	pods, unclaimed := w.devices.Charge(w.pods)
	gang, problems := podgroup.New(w.ref, w.object, pods, podgroup.Settings{Wait: 10 * time.Minute, StopsAfterTimeout: w.stops})
	s := &podgang.Snapshot{Gang: gang, Problems: append(problems, unclaimed...), Workloads: slices.Clone(w.workloads), Jobs: w.jobs, Peers: w.peers, Gone: w.gone, Charged: map[types.UID]bool{}, Retention: w.retention}
	s.Flavors = map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{
		"spot": {Spec: kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": "spot"}, Tolerations: []corev1.Toleration{{Key: "spot"}}}},
	}
	s.Backoff = func(count int32) time.Duration { return time.Duration(count) * time.Minute }
	for _, x := range w.workloads {
		s.Charged[x.UID] = quotaworkload.HoldsQuota(x)
	}
	return s
}

// settle takes steps until there is nothing left to do.
func (w *world) settle() {
	w.t.Helper()
	const most = 40
	for range most {
		w.last = podgang.Next(w.seen(), w.now)
		if !w.apply(w.last) {
			w.check()
			return
		}
		w.check()
	}
	w.t.Fatalf("%d steps did not come to an end, the last: %+v", most, w.last)
}

// apply writes a step, and reports whether there was anything to write.
func (w *world) apply(step *podgang.Step) bool {
	w.write(step, len(step.Writes)+len(step.Delete)+len(step.Ungate)+1)
	return len(step.Writes)+len(step.Delete)+len(step.Ungate) > 0
}

// interrupt takes the first writes of a step only, as a manager that ends meanwhile.
func (w *world) interrupt(writes int) {
	w.write(podgang.Next(w.seen(), w.now), writes)
	w.check()
}

// write takes the first writes of a step. Timeouts count as one.
func (w *world) write(step *podgang.Step, writes int) {
	keep := func() error {
		if writes--; writes < 0 {
			return errors.New("the manager ended")
		}
		return nil
	}
	none := func(*podgang.Step) error { return nil }
	// The error says where it ended.
	_ = step.Write(&podgang.Writer{
		NoteTimeout: func(*podgang.Step) error {
			err := keep()
			if err == nil {
				w.noteTimeout(step)
			}
			return err
		},
		DeletePods: func(*podgang.Step) error {
			return each(step.Delete, keep, func(d podgang.Delete) { w.pod(d.Pod.UID).DeletionTimestamp = new(metav1.NewTime(w.now.Add(w.grace))) })
		},
		Quota: func(all []quotastep.Write) error { return each(all, keep, w.writeQuota) },
		Ungate: func(*podgang.Step) error {
			return each(step.Ungate, keep, func(u podgang.Ungate) {
				// A patch writes the differences between the two, and the devices are equal in both.
				before := w.pod(u.Before.UID)
				claims, overhead := before.Spec.ResourceClaims, before.Spec.Overhead
				*before = *u.After.DeepCopy()
				before.Spec.ResourceClaims, before.Spec.Overhead = claims, overhead
			})
		},
		Report: none, KeepStatus: none,
	})
}

// each makes writes one by one as long as keep returns no error.
func each[T any](all []T, keep func() error, write func(T)) error {
	for _, one := range all {
		if err := keep(); err != nil {
			return err
		}
		write(one)
	}
	return nil
}

func (w *world) noteTimeout(step *podgang.Step) {
	for _, pod := range step.TimeOut {
		after := pod.DeepCopy()
		after.Annotations[apis.KoordinatorTimeoutAnnotation] = "true"
		w.pods[slices.IndexFunc(w.pods, func(there *corev1.Pod) bool { return there.UID == pod.UID })] = after
	}
	if step.TimeOutObject || step.ClearObject {
		w.object.Annotations = maps.Clone(w.object.Annotations)
		delete(w.object.Annotations, apis.KoordinatorTimeoutAnnotation)
		if step.TimeOutObject {
			w.object.Annotations = map[string]string{apis.KoordinatorTimeoutAnnotation: "true"}
		}
	}
}

func (w *world) writeQuota(write quotastep.Write) {
	x := write.Workload
	isThere := slices.ContainsFunc(w.workloads, func(there *kueue.Workload) bool { return there.Name == x.Name })
	switch {
	case isThere == (write.Kind == quotastep.Create):
	case write.Kind == quotastep.Create:
		w.made++
		x = x.DeepCopy()
		x.UID, x.Generation, x.CreationTimestamp = types.UID(fmt.Sprintf("workload-%02d", w.made)), 1, metav1.NewTime(w.now)
		w.workloads = append(w.workloads, x)
	case write.Kind == quotastep.Delete:
		w.remove(x)
	default:
		after := write.Result(w.find(x), w.now)
		w.put(after)
		if after.DeletionTimestamp != nil && len(after.Finalizers) == 0 {
			w.remove(after)
		}
	}
}

func (w *world) pod(uid types.UID) *corev1.Pod {
	i := slices.IndexFunc(w.pods, func(pod *corev1.Pod) bool { return pod.UID == uid })
	return w.pods[i]
}

func (w *world) find(x *kueue.Workload) *kueue.Workload {
	i := slices.IndexFunc(w.workloads, func(there *kueue.Workload) bool { return there.UID == x.UID })
	if i < 0 {
		w.t.Fatalf("there is no quota Workload %s", x.Name)
	}
	return w.workloads[i]
}

func (w *world) put(x *kueue.Workload) {
	i := slices.IndexFunc(w.workloads, func(there *kueue.Workload) bool { return there.UID == x.UID })
	w.workloads[i] = x
}

func (w *world) remove(x *kueue.Workload) {
	w.workloads = slices.DeleteFunc(w.workloads, func(there *kueue.Workload) bool { return there.UID == x.UID })
}

// admit admits a quota Workload if it asks for quota, as the engine would, and reports whether it did.
func (w *world) admit(x *kueue.Workload) bool {
	later := x.Status.RequeueState != nil && x.Status.RequeueState.RequeueAt != nil && x.Status.RequeueState.RequeueAt.After(w.now)
	if quotaworkload.HoldsQuota(x) || quotaworkload.IsTrue(x, kueue.WorkloadFinished) || x.DeletionTimestamp != nil || later || x.Annotations[apis.AdmissionGatedByAnnotation] != "" {
		return false
	}
	a := &kueue.Admission{ClusterQueue: "research"}
	for i := range x.Spec.PodSets {
		p := &x.Spec.PodSets[i]
		a.PodSetAssignments = append(a.PodSetAssignments, kueue.PodSetAssignment{
			Name: p.Name, Count: &p.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "spot"},
		})
	}
	status := workloadstatus.Admitted(x, a, w.now)
	w.put(workloadstatus.Merge(x, &status))
	return true
}

func (w *world) admitAll() {
	for _, x := range slices.Clone(w.workloads) {
		w.admit(x)
	}
	w.settle()
}

func (w *world) preempt(x *kueue.Workload) {
	status := workloadstatus.Evicted(x, workloadstatus.Eviction{Reason: kueue.WorkloadEvictedByPreemption, Message: "for another"}, w.now)
	w.put(workloadstatus.Merge(x, &status))
}

// vanish removes a pod.
func (w *world) vanish(pod *corev1.Pod) {
	w.pods = slices.DeleteFunc(w.pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
}

// standing returns one letter for each pod: g for gated, r for running, s for succeeded, f for failed, and a capital if it is being deleted.
func (w *world) standing() string {
	var b strings.Builder
	for _, pod := range w.pods {
		letter := "r"
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			letter = "s"
		case pod.Status.Phase == corev1.PodFailed:
			letter = "f"
		case podgroup.IsGated(pod):
			letter = "g"
		}
		if pod.DeletionTimestamp != nil {
			letter = strings.ToUpper(letter)
		}
		b.WriteString(letter)
	}
	return b.String()
}

// check checks what must hold at every moment.
func (w *world) check() {
	w.t.Helper()
	if why := w.unpaid(); why != "" {
		w.t.Errorf("%s, %s", why, w.standing())
	}
	for _, pod := range w.pods {
		if !podgroup.IsGated(pod) && pod.Annotations[apis.KoordinatorTimeoutAnnotation] != "" {
			w.t.Errorf("pod %s was released with the annotation of a gang that timed out", pod.Name)
		}
	}
}

// unpaid names a running pod that no quota Workload pays for, or for which more would be paid than was admitted, or is empty.
func (w *world) unpaid() string {
	paid := map[string]int32{}
	for _, x := range w.workloads {
		for podSet, charged := range ledger.Charged(x) {
			paid[fmt.Sprintf("%s.%s/%s", x.UID, cmp.Or(x.Annotations[apis.RoundAnnotation], "0"), podSet)] = int32(charged[corev1.ResourcePods] / 1000)
		}
	}
	for _, pod := range w.pods {
		if podgroup.IsGated(pod) || podgroup.IsTerminal(pod) {
			continue
		}
		by := pod.Annotations[apis.AdmissionAnnotation]
		if _, known := paid[by]; known && strings.HasSuffix(by, "/reserved") {
			continue // a reservation is a sum, and not for a number of pods
		}
		if paid[by]--; paid[by] < 0 {
			return fmt.Sprintf("pod %s runs without quota: its admission is %q, and there are %v", pod.Name, by, paid)
		}
	}
	return ""
}

// TestGangs: whatever happens to a gang, its steps end, and running pods are paid for.
func TestGangs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "train"})
		least := rapid.IntRange(1, 4).Draw(t, "least")
		w.settings[apis.KoordinatorPrefix+"name"] = "train"
		w.settings[apis.KoordinatorPrefix+"min-available"] = fmt.Sprint(least)
		w.settings[apis.KoordinatorPrefix+"total-number"] = fmt.Sprint(least + rapid.IntRange(0, 2).Draw(t, "more"))
		w.settings[apis.KoordinatorPrefix+"mode"] = rapid.SampledFrom([]string{"Strict", "NonStrict"}).Draw(t, "mode")
		w.stops = rapid.Bool().Draw(t, "stops")
		pod := func() *corev1.Pod { return w.pods[rapid.IntRange(0, len(w.pods)-1).Draw(t, "pod")] }
		workload := func() *kueue.Workload { return w.workloads[rapid.IntRange(0, len(w.workloads)-1).Draw(t, "workload")] }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if len(w.pods) < 8 {
					w.add(rapid.IntRange(1, 2).Draw(t, "cpus"))
				}
			},
			"vanish": func(*rapid.T) {
				if len(w.pods) > 0 {
					w.vanish(pod())
				}
			},
			"end": func(t *rapid.T) {
				if len(w.pods) > 0 {
					if p := pod(); !podgroup.IsGated(p) && !podgroup.IsTerminal(p) {
						p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}).Draw(t, "phase")
					}
				}
			},
			"admit": func(*rapid.T) {
				if len(w.workloads) > 0 {
					w.admit(workload())
				}
			},
			"evict": func(t *rapid.T) {
				if len(w.workloads) > 0 {
					if x := workload(); quotaworkload.HoldsQuota(x) && !quotaworkload.IsTrue(x, kueue.WorkloadEvicted) && !quotaworkload.IsTrue(x, kueue.WorkloadFinished) {
						w.preempt(x)
						if rapid.Bool().Draw(t, "backs off") {
							after := w.find(x).DeepCopy()
							after.Status.RequeueState = workloadstatus.Until(workloadstatus.NextTry(after), w.now.Add(time.Minute))
							w.put(after)
						}
					}
				}
			},
			"delete": func(*rapid.T) {
				if len(w.workloads) > 0 {
					if x := workload(); len(x.Finalizers) > 0 {
						x.DeletionTimestamp = new(metav1.NewTime(w.now))
					}
				}
			},
			"time out": func(t *rapid.T) {
				if len(w.pods) > 0 {
					if p := pod(); podgroup.IsGated(p) {
						p.Annotations[apis.KoordinatorTimeoutAnnotation] = rapid.SampledFrom([]string{"true", "false"}).Draw(t, "timeout")
					}
				}
			},
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "seconds")) * time.Second)
			},
			"interrupt": func(t *rapid.T) { w.interrupt(rapid.IntRange(1, 11).Draw(t, "writes")) },
			"": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "settle") {
					w.settle()
				}
			},
		})
		// Admit all that ask: then a gang that has all of its pods starts.
		for range 2 * (least + 2) {
			for _, p := range slices.Clone(w.pods) {
				if p.DeletionTimestamp != nil {
					w.vanish(p)
				}
			}
			w.now = w.now.Add(time.Hour)
			w.admitAll()
		}
		// Succeeded pods may be of an earlier run.
		for strings.Count(w.standing(), "g")+strings.Count(w.standing(), "r") < least {
			w.add(1)
		}
		for range 4 {
			for _, p := range w.pods {
				delete(p.Annotations, apis.KoordinatorTimeoutAnnotation)
			}
			w.now = w.now.Add(time.Hour)
			w.admitAll()
		}
		isDeleted := slices.ContainsFunc(w.workloads, func(x *kueue.Workload) bool { return x.DeletionTimestamp != nil })
		if !isDeleted && strings.Contains(w.standing(), "g") && strings.Count(w.standing(), "f") == 0 {
			t.Errorf("pods stay gated although there is quota for all: %s, %s", w.standing(), w.last.Message.Text)
		}
	})
}
