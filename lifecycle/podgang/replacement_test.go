package podgang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// limit is the backoffLimitCount of the tests: a quota Workload is evicted as often, and then once more to be deactivated.
const limit = 3

// A fleet is pods that no user makes ready unless the test does, their quota Workloads and the controller that replaces the pods. Each pod is a gang, or all are one.
type fleet struct {
	world
	// kind is the kind of the controller of the pods, or empty if a user recreates them.
	kind     string
	replicas int
	// group is the group that the pods name, or empty.
	group     string
	evictions int
}

func newFleet(t failer, kind string, replicas int) *fleet {
	return &fleet{world: *newWorld(t, podgroup.Ref{}), kind: kind, replicas: replicas}
}

func podsReady() *configapi.WaitForPodsReady {
	return &configapi.WaitForPodsReady{
		Enable: new(true), Timeout: &metav1.Duration{Duration: time.Minute}, RecoveryTimeout: &metav1.Duration{},
		RequeuingStrategy: configapi.RequeuingStrategy{BackoffLimitCount: new(int32(limit)), BackoffBaseSeconds: new(int32(30)), BackoffMaxSeconds: new(int32(3600))},
	}
}

func apiVersion(kind string) string {
	return map[string]string{"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1", "RayCluster": "ray.io/v1"}[kind]
}

// replace creates pods until there are enough of them, as their controller does. A StatefulSet waits until a pod is gone whose name it needs.
func (f *fleet) replace() {
	live := 0
	for _, pod := range f.pods {
		if pod.DeletionTimestamp == nil && !podgroup.IsTerminal(pod) || f.kind == "StatefulSet" {
			live++
		}
	}
	for ; live < f.replicas; live++ {
		pod := f.add(1)
		if f.kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion(f.kind), Kind: f.kind, Name: "web", UID: "web", Controller: new(true)}}
		}
		if f.kind == "StatefulSet" {
			for i := 0; ; i++ {
				name := fmt.Sprintf("web-%d", i)
				if !slices.ContainsFunc(f.pods, func(p *corev1.Pod) bool { return p.Name == name }) {
					pod.Name = name
					break
				}
			}
		}
		if f.group != "" {
			pod.Labels[apis.PodGroupNameLabel] = f.group
			pod.Annotations[apis.PodGroupTotalCountAnnotation] = fmt.Sprint(f.replicas)
		}
	}
}

// collect is the garbage collector: it deletes quota Workloads whose owners are gone.
func (f *fleet) collect() {
	for _, x := range f.workloads {
		isThere := func(o metav1.OwnerReference) bool {
			return o.Kind != "Pod" || slices.ContainsFunc(f.pods, func(p *corev1.Pod) bool { return p.UID == o.UID })
		}
		if len(x.OwnerReferences) > 0 && !slices.ContainsFunc(x.OwnerReferences, isThere) && x.DeletionTimestamp == nil {
			x.DeletionTimestamp = new(metav1.NewTime(f.now))
		}
	}
}

func refOf(x *kueue.Workload) podgroup.Ref {
	ref, _ := podgroup.ParseRef(x.Namespace, x.Annotations[apis.PodGroupKey])
	return ref
}

// refs returns the gangs of all pods and quota Workloads.
func (f *fleet) refs() []podgroup.Ref {
	var refs []podgroup.Ref
	for _, pod := range f.pods {
		ref, _ := podgroup.RefOf(pod)
		refs = append(refs, ref)
	}
	for _, x := range f.workloads {
		refs = append(refs, refOf(x))
	}
	slices.SortFunc(refs, func(a, b podgroup.Ref) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(refs)
}

// reconcile takes one step for a gang, and reports whether anything changed.
func (f *fleet) reconcile(ref podgroup.Ref) bool {
	one := newWorld(f.t, ref)
	one.now, one.made, one.grace = f.now, f.made, f.grace
	var others []*kueue.Workload
	var predecessors []podgang.Predecessor
	for _, x := range f.workloads {
		switch {
		case refOf(x) == ref:
			one.workloads = append(one.workloads, x)
		default:
			others = append(others, x)
			p := podgang.Predecessor{Workload: x}
			if i := slices.IndexFunc(f.pods, func(p *corev1.Pod) bool { return p.Name == refOf(x).Name }); i >= 0 {
				p.Pod = f.pods[i]
			}
			if len(podgang.ControllersOfReplaced(x)) > 0 && (p.Pod == nil || p.Pod.DeletionTimestamp != nil || podgroup.IsTerminal(p.Pod)) {
				predecessors = append(predecessors, p)
			}
		}
	}
	for _, pod := range f.pods {
		if named, _ := podgroup.RefOf(pod); named == ref {
			one.pods = append(one.pods, pod)
		}
	}
	seen := one.seen()
	if len(one.pods) == 1 && len(podgang.ControllerOfReplacement(one.pods[0])) > 0 {
		seen.Predecessors = predecessors
		for _, pod := range f.pods[:slices.Index(f.pods, one.pods[0])] {
			hasWorkload := slices.ContainsFunc(f.workloads, func(x *kueue.Workload) bool { return refOf(x).Name == pod.Name })
			if len(podgang.ControllerOfReplacement(pod)) > 0 && !hasWorkload {
				seen.OlderSiblings++
			}
		}
	}
	step := podgang.Next(seen, f.now)
	one.workloads = append(one.workloads, others...)
	isChanged := one.apply(step)
	f.workloads, f.made = one.workloads, one.made
	one.check()
	return isChanged
}

// settle reconciles all gangs and quota Workloads until nothing changes.
func (f *fleet) settle() {
	for range 200 {
		isChanged := false
		f.collect()
		for _, ref := range f.refs() {
			isChanged = f.reconcile(ref) || isChanged
		}
		for _, x := range slices.Clone(f.workloads) {
			step := workloadstatus.Next(&workloadstatus.Snapshot{Workload: x}, podsReady(), f.now)
			if step.Deactivate {
				after := x.DeepCopy()
				after.Spec.Active = new(false)
				f.put(after)
				isChanged = true
			}
			if step.Status != nil && workloadstatus.Differs(x, step.Status) {
				if _, evicts := step.Transition.(workloadstatus.EvictedTransition); evicts {
					f.evictions++
				}
				f.put(workloadstatus.Merge(x, step.Status))
				isChanged = true
			}
		}
		if !isChanged {
			return
		}
	}
	f.t.Fatalf("the steps do not come to an end: %s, %d quota Workloads", f.standing(), len(f.workloads))
}

// tick lets some time pass, in which pods are replaced, terminate and are admitted.
func (f *fleet) tick(seconds int) {
	f.now = f.now.Add(time.Duration(seconds) * time.Second)
	f.replace()
	f.settle()
	for _, x := range slices.Clone(f.workloads) {
		if *x.Spec.Active {
			f.admit(x)
		}
	}
	f.settle()
	f.pods = slices.DeleteFunc(f.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && p.DeletionTimestamp.Time.Before(f.now) })
	f.settle()
}

func (f *fleet) run(d time.Duration) {
	const seconds = 20
	for range int(d.Seconds()) / seconds {
		f.tick(seconds)
	}
}

// TestRetryLimitOfReplacedPods: pods that are never ready back off, and are deactivated after backoffLimitCount retries, also if a user recreates them.
func TestRetryLimitOfReplacedPods(t *testing.T) {
	for name, tc := range map[string]struct {
		kind, group string
		workloads   int
	}{
		"ReplicaSet":            {"ReplicaSet", "", 2},
		"StatefulSet":           {"StatefulSet", "", 2},
		"Job":                   {"Job", "", 2},
		"RayCluster":            {"RayCluster", "", 2},
		"group of a ReplicaSet": {"ReplicaSet", "train", 1},
		"group of a user":       {"", "train", 1},
		"parts of a user":       {"", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, tc.kind, 2)
			if f.group = tc.group; tc.kind+tc.group == "" {
				for key, value := range map[string]string{"name": "train", "min-available": "2", "mode": "NonStrict"} {
					f.settings[apis.KoordinatorPrefix+key] = value
				}
			}
			f.run(15 * time.Minute)
			if want := tc.workloads * (limit + 1); f.evictions != want {
				t.Errorf("%d evictions, want %d", f.evictions, want)
			}
			if got := f.standing(); got != "gg" || len(f.workloads) != tc.workloads {
				t.Errorf("pods %q, %d quota Workloads, want gg, %d", got, len(f.workloads), tc.workloads)
			}
			for _, x := range f.workloads {
				reason := quotaworkload.FindTrue(x, kueue.WorkloadEvicted).Reason
				if *x.Spec.Active || reason != "DeactivatedDueToRequeuingLimitExceeded" {
					t.Errorf("quota Workload %s is active: %t, evicted: %s", x.Name, *x.Spec.Active, reason)
				}
			}

			// Activated again, they count from the beginning.
			for _, x := range slices.Clone(f.workloads) {
				after := x.DeepCopy()
				after.Spec.Active = new(true)
				f.put(after)
			}
			f.tick(1)
			f.expectRunning(2)
			if f.run(15 * time.Minute); f.evictions != 2*tc.workloads*(limit+1) {
				t.Errorf("%d evictions after an activation, want %d", f.evictions, 2*tc.workloads*(limit+1))
			}
		})
	}
}

func (f *fleet) expectRunning(pods int) {
	f.t.Helper()
	if got := strings.Count(f.standing(), "r"); got != pods {
		f.t.Errorf("pods %q, want %d running", f.standing(), pods)
	}
}

// TestBackoffGoesWithItsPods: the quota Workload of pods that are not recreated is deleted some time after its back-off, also if their controller stays.
func TestBackoffGoesWithItsPods(t *testing.T) {
	for name, tc := range map[string]struct{ kind, group string }{"ReplicaSet": {"ReplicaSet", ""}, "group of a user": {"", "train"}, "pod of a user": {"", ""}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, tc.kind, 1)
			f.group = tc.group
			f.tick(1)
			f.now = f.now.Add(time.Minute)
			f.replicas = 0
			f.settle()
			f.pods = nil
			f.settle()
			if len(f.workloads) != 1 || f.workloads[0].Status.RequeueState == nil || quotaworkload.HoldsQuota(f.workloads[0]) {
				t.Fatalf("want a quota Workload that backs off, got %+v", f.workloads)
			}
			if f.run(2*time.Minute + 20*time.Second); len(f.workloads) != 1 {
				t.Error("the quota Workload was deleted too early")
			}
			if f.run(time.Minute); len(f.workloads) != 0 {
				t.Errorf("the quota Workload is left behind: %+v", f.workloads[0].Status)
			}
		})
	}
}

// TestReadyPodsStartAgain: a replacement that becomes ready runs on, and nothing of its predecessor is left.
func TestReadyPodsStartAgain(t *testing.T) {
	f := newFleet(t, "ReplicaSet", 1)
	f.run(2 * time.Minute)
	f.expectRunning(1)
	if got := f.workloads[0].Status.RequeueState; got == nil || *got.Count != 1 {
		t.Errorf("requeueState is %+v, want a count of 1", got)
	}
	last := f.pods[len(f.pods)-1]
	last.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	f.run(20 * time.Minute)
	if f.evictions != 1 || len(f.workloads) != 1 {
		t.Errorf("%d evictions and %d quota Workloads, want 1 and 1", f.evictions, len(f.workloads))
	}
	f.vanish(last)
	f.tick(1)
	if got := f.workloads[0].Status.RequeueState; len(f.workloads) != 1 || got != nil {
		t.Errorf("a pod that was ready was replaced, and %d quota Workloads have requeueState %+v", len(f.workloads), got)
	}
}

// TestReplacements: whatever tenants do to the pods of a controller, those that are never ready are evicted as often as the limit allows, each pod has at
// most one quota Workload, and none is left behind.
func TestReplacements(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t, rapid.SampledFrom([]string{"ReplicaSet", "StatefulSet", "RayCluster", ""}).Draw(t, "kind"), rapid.IntRange(1, 4).Draw(t, "replicas"))
		f.group = rapid.SampledFrom([]string{"", "train"}).Draw(t, "group")
		if f.kind == "" {
			f.group = "train"
		}
		f.tick(1)
		replicas := f.replicas
		if f.group != "" {
			replicas = 1
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { f.tick(rapid.IntRange(1, 70).Draw(t, "seconds")) },
			"delete pods that wait": func(t *rapid.T) {
				f.pods = slices.DeleteFunc(f.pods, func(p *corev1.Pod) bool { return podgroup.IsGated(p) && rapid.Bool().Draw(t, "deleted") })
				f.tick(1)
			},
			"delete pods that terminate": func(t *rapid.T) {
				f.pods = slices.DeleteFunc(f.pods, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil && rapid.Bool().Draw(t, "deleted") })
				f.tick(1)
			},
			"": func(t *rapid.T) {
				gangs := map[podgroup.Ref]int{}
				for _, x := range f.workloads {
					gangs[refOf(x)]++
				}
				for ref, n := range gangs {
					if n > 1 {
						t.Errorf("gang %s has %d quota Workloads", ref, n)
					}
				}
				if most := replicas * (limit + 1); f.evictions > most {
					t.Errorf("%d evictions, at most %d are allowed", f.evictions, most)
				}
			},
		})
		f.run(15 * time.Minute)
		if want := replicas * (limit + 1); f.evictions != want {
			t.Errorf("%d evictions, want %d", f.evictions, want)
		}
		f.replicas, f.pods = 0, nil
		f.run(10 * time.Minute)
		isKept := f.kind != "" && (f.kind == "StatefulSet" || f.group != "") // as long as the controller
		if isLeft := len(f.workloads) > 0; isLeft != isKept {
			t.Errorf("%d quota Workloads are left without pods", len(f.workloads))
		}
	})
}

// TestRetryLimitOfExtras: the quota Workload of an additional pod of a started gang passes to the pod that replaces it, with its retries, and goes when none comes.
func TestRetryLimitOfExtras(t *testing.T) {
	for name, isRecreated := range map[string]bool{"recreated": true, "not recreated": false} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, "ReplicaSet", 2)
			f.settings[apis.KoordinatorPrefix+"name"] = "train"
			f.settings[apis.KoordinatorPrefix+"min-available"] = "2"
			f.tick(1)
			for _, pod := range f.pods {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			}
			f.replicas = 3
			f.tick(30)
			f.expectRunning(3)
			if !isRecreated {
				f.now = f.now.Add(time.Minute)
				f.settle()
				f.replicas = 2
				if f.run(2 * time.Minute); f.evictions != 1 || len(f.workloads) != 2 {
					t.Errorf("%d evictions, %d quota Workloads, want 1 and 2", f.evictions, len(f.workloads))
				}
				if f.run(3 * time.Minute); len(f.workloads) != 1 {
					t.Errorf("%d quota Workloads are left, want 1", len(f.workloads))
				}
				return
			}
			if f.run(15 * time.Minute); f.evictions != limit+1 || f.standing() != "rrg" || len(f.workloads) != 2 {
				t.Errorf("%d evictions, pods %q, %d quota Workloads, want %d, rrg, 2", f.evictions, f.standing(), len(f.workloads), limit+1)
			}
		})
	}
}
