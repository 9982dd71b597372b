package podgang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

func newGang(t failer, pods int, settings ...string) *world {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "train"})
	w.settings[apis.KoordinatorPrefix+"name"] = "train"
	for i := 0; i < len(settings); i += 2 {
		w.settings[apis.KoordinatorPrefix+settings[i]] = settings[i+1]
	}
	for range pods {
		w.add(1)
	}
	w.settle()
	return w
}

func (w *world) expect(standing string, workloads int, told string) {
	w.t.Helper()
	if got := w.standing(); got != standing || len(w.workloads) != workloads || !strings.Contains(w.last.Message.Text, told) {
		w.t.Errorf("pods %q, %d quota Workloads, told %q; want %q, %d, %q", got, len(w.workloads), w.last.Message.Text, standing, workloads, told)
	}
}

// TestStrict: no quota is asked for before all pods exist, and no pod runs before all quota is admitted.
func TestStrict(t *testing.T) {
	w := newGang(t, 2, "min-available", "3")
	w.expect("gg", 0, "fewer than the 3 pods")
	w.add(2)
	w.settle()
	w.expect("ggg", 1, "waits for quota")
	if shapes := len(w.workloads[0].Spec.PodSets); shapes != 2 {
		t.Errorf("%d pod sets for two shapes of pods", shapes)
	}
	w.admitAll()
	w.expect("rrr", 1, "has started")
	pod := w.pods[0]
	if pod.Spec.NodeSelector["pool"] != "spot" || len(pod.Spec.Tolerations) != 1 || pod.Annotations[kueue.WorkloadAnnotation] != w.workloads[0].Name {
		t.Errorf("the ungated pod is %+v, %v", pod.Spec, pod.Annotations)
	}
	if !slices.ContainsFunc(w.workloads[0].Spec.PodSets, func(p kueue.PodSet) bool { return string(p.Name) == pod.Labels[apis.PodSetLabel] }) {
		t.Errorf("the ungated pod has label %s=%q, which is no pod set", apis.PodSetLabel, pod.Labels[apis.PodSetLabel])
	}
	for key, want := range map[string]string{
		apis.LocalQueueLabel: string(w.workloads[0].Spec.QueueName), apis.ClusterQueueLabel: string(w.workloads[0].Status.Admission.ClusterQueue),
	} {
		if got := pod.Labels[key]; got != want || want == "" {
			t.Errorf("the ungated pod has label %s=%q, want %q", key, got, want)
		}
	}

	pod.Status.Phase = corev1.PodSucceeded
	w.settle()
	if reclaimable := w.workloads[0].Status.ReclaimablePods; len(reclaimable) != 1 || reclaimable[0].Count != 1 {
		t.Errorf("reclaimable are %v, want the pod that has succeeded", reclaimable)
	}
	w.vanish(w.pods[1])
	w.add(1)
	w.settle()
	w.expect("srr", 1, "has started")
	w.add(1)
	w.settle()
	w.expect("srrg", 2, "has started")
	w.admitAll()
	w.expect("srrr", 2, "has started")
	for _, pod := range w.pods {
		pod.Status.Phase = corev1.PodSucceeded
	}
	w.settle()
	w.expect("ssss", 1, "All pods of the gang have succeeded")
	if !quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) {
		t.Errorf("all have succeeded, and the gang has not finished: %+v", w.workloads[0].Status)
	}
	w.pods = nil
	w.settle()
	w.expect("", 0, "")
}

// TestEviction: all pods terminate before the quota is released, and then the gang queues as a whole.
func TestEviction(t *testing.T) {
	w := newGang(t, 3, "min-available", "3")
	w.admitAll()
	w.pods[0].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.preempt(w.workloads[0])
	w.settle()
	w.expect("sRR", 1, "evicted")
	if !quotaworkload.HoldsQuota(w.workloads[0]) {
		t.Error("the quota was given back while pods run")
	}
	w.vanish(w.pods[2])
	w.vanish(w.pods[1])
	w.settle()
	if quotaworkload.HoldsQuota(w.workloads[0]) {
		t.Error("the quota was not given back")
	}
	w.add(1)
	w.add(1)
	w.settle()
	w.admitAll()
	w.expect("srr", 1, "has started")
	if got := w.workloads[0].Spec.PodSets[0].Count; got != 2 {
		t.Errorf("asked for %d pods, want those that are left", got)
	}
}

// TestGather: parts are kept until all are admitted, or the waiting time has expired.
func TestNonStrictGangIsAdmittedInParts(t *testing.T) {
	w := newGang(t, 20, "min-available", "20", "mode", "NonStrict", "waiting-time", "60s")
	w.expect(strings.Repeat("g", 20), 16, "waits for quota")
	plan := podgang.PlanOf(w.workloads)
	if len(plan.Stages.Stages) != 16 || plan.UID == "" {
		t.Errorf("the plan has %d stages and UID %q", len(plan.Stages.Stages), plan.UID)
	}
	for _, x := range w.workloads[:10] {
		w.admit(x)
	}
	w.settle()
	w.expect(strings.Repeat("g", 20), 16, "waits for quota")
	if w.last.RequeueAfter != time.Minute {
		t.Errorf("requeues after %s, want a minute", w.last.RequeueAfter)
	}
	w.now = w.now.Add(time.Minute)
	w.settle()
	for _, x := range w.workloads {
		if quotaworkload.HoldsQuota(x) || x.Annotations[apis.AdmissionGatedByAnnotation] != apis.GangGate {
			t.Errorf("%s holds quota or is open: %+v", x.Name, x.Status)
		}
	}
	w.now = w.now.Add(time.Minute)
	w.settle()
	w.admitAll()
	w.expect(strings.Repeat("r", 20), 16, "has started")
}

// TestTogether: a gang of a GangGroup asks for no quota without the others, and starts when all are admitted.
func TestTogether(t *testing.T) {
	w := newGang(t, 1, "min-available", "1", "groups", `["ml/train","x/b"]`)
	const stranger = `peer gang "x/b" of another namespace does not exist or lists other gangs`
	w.expect("g", 0, stranger)
	b := podgang.Peer{Ref: podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "x", Name: "b"}, Exists: true, IsWhole: true}
	w.peers = []podgang.Peer{b}
	w.settle()
	w.expect("g", 0, stranger)
	b.GangGroup = []string{"ml/train", "x/b"}
	w.peers = []podgang.Peer{b}
	w.settle()
	w.expect("g", 1, "waits for quota")
	if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] == "" || x.Annotations[apis.AdmitTogetherCountAnnotation] != "2" {
		t.Errorf("the quota Workload is not admitted together with others: %v %v", x.Labels, x.Annotations)
	}
	w.admitAll()
	w.expect("g", 1, `waits for the admission of peer gang "x/b"`)
	b.IsAdmitted = true
	w.peers = []podgang.Peer{b}
	w.settle()
	w.expect("r", 1, "has started")

	// From now on it is independent.
	w.preempt(w.workloads[0])
	w.settle()
	w.vanish(w.pods[0])
	w.add(1)
	w.peers = nil
	w.settle()
	w.admitAll()
	w.expect("r", 1, "has started")
	if x := w.workloads[0]; x.Labels[apis.AdmitTogetherLabel] != "" {
		t.Errorf("the quota Workload is still admitted together with others: %v", x.Labels)
	}
}

// TestPeer: a gang counts as admitted for those that start with it when the engine charges it.
func TestPeer(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admit(w.workloads[0])
	s := w.seen()
	if p := podgang.PeerOf(s); !p.Exists || !p.IsWhole || !p.IsAdmitted {
		t.Errorf("a gang that is admitted: %+v", p)
	}
	s.Charged = nil
	if p := podgang.PeerOf(s); p.IsAdmitted {
		t.Error("admitted, although the engine charges nothing")
	}
}

// TestReserve: quota by minResources, before the pods.
func TestReserve(t *testing.T) {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Coscheduling, Namespace: "ml", Name: "train"})
	w.object = &podgroup.Object{
		Name: "train", UID: "group", MinMember: 2, MinResources: corev1.ResourceList{"cpu": resource.MustParse("3")}, Labels: map[string]string{apis.QueueLabel: "main"},
	}
	w.settle()
	w.admitAll()
	w.expect("", 1, "waits for its pods")
	w.add(2)
	w.settle()
	w.expect("g", 1, "waits for its pods")
	w.add(1)
	w.add(1)
	w.settle()
	w.expect("rrg", 2, "has started")
	w.object = nil
	w.settle()
	w.expect("rrg", 2, `PodGroup "train" of scheduling.x-k8s.io does not exist`)
}

// TestReservedPods: a reserved sum is for as many pods as start together, also if they request nothing.
func TestReservedPods(t *testing.T) {
	w := newWorld(t, podgroup.Ref{Kind: podgroup.Coscheduling, Namespace: "ml", Name: "train"})
	w.object = &podgroup.Object{
		Name: "train", UID: "group", MinMember: 3, MinResources: corev1.ResourceList{"cpu": resource.MustParse("1")}, Labels: map[string]string{apis.QueueLabel: "main"},
	}
	w.settle()
	w.admitAll()
	cpus, pods := resource.Quantity{}, int32(0)
	for _, p := range w.workloads[0].Spec.PodSets {
		pods += p.Count
		q := p.Template.Spec.Containers[0].Resources.Requests["cpu"]
		q.Mul(int64(p.Count))
		cpus.Add(q)
	}
	if pods != 3 || cpus.Value() != 1 {
		t.Errorf("asked for %d pods and %s CPUs, want 3 and 1", pods, &cpus)
	}
	w.add(1)
	for range 5 {
		w.add(0)
	}
	w.settle()
	w.expect("rrrggg", 1+3, "has started")
	for _, pod := range w.pods[:3] {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	w.settle()
	if initial := w.workloads[0]; !quotaworkload.IsTrue(initial, kueue.WorkloadPodsReady) {
		t.Errorf("all pods are ready, and %s has conditions %+v", initial.Name, initial.Status.Conditions)
	}
	w.pods[1].Status.Phase = corev1.PodFailed
	w.settle()
	w.expect("rfrrgg", 1+2, "has started")
}

// TestShapes: more shapes than a quota Workload has room for are refused.
func TestShapes(t *testing.T) {
	w := newGang(t, 0, "min-available", "9")
	for i := range 9 {
		w.add(i + 1)
	}
	w.settle()
	w.expect(strings.Repeat("g", 9), 0, "9 different combinations")
	if w.last.Message.Reason != "Misconfigured" || !w.last.Message.IsWarning {
		t.Errorf("told as %+v", w.last.Message)
	}
}

// TestIdle: a gang whose pods are not recreated keeps no quota.
func TestIdle(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	for _, pod := range w.pods {
		pod.Status.Phase = corev1.PodFailed
	}
	w.settle()
	w.expect("ff", 1, "has started")
	w.now = w.now.Add(w.last.RequeueAfter)
	w.settle()
	if finished := fmt.Sprint(w.workloads[0].Status.Conditions); !strings.Contains(finished, "none was recreated") {
		t.Errorf("conditions are %s, want Finished", finished)
	}
	w.add(1)
	w.add(1)
	w.settle()
	w.admitAll()
	w.expect("ffrr", 1, "has started")
}

// TestClosedAfterReclaim: a gang that releases quota after some of its pods were reclaimed is gated until it asks for what it needs.
func TestClosedAfterReclaim(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	w.pods[0].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.preempt(w.workloads[0])
	w.vanish(w.pods[1])
	for quotaworkload.HoldsQuota(w.workloads[0]) {
		if !w.apply(podgang.Next(w.seen(), w.now)) {
			t.Fatal("the quota is not given back")
		}
	}
	w.add(1)
	if w.admit(w.workloads[0]) {
		t.Error("admitted for fewer pods than it needs")
	}
	w.settle()
	w.admitAll()
	w.expect("sr", 1, "has started")
}

// TestExtraFindsPlace: a pod that has waited for quota of its own takes the slot that another one has left, and asks for no more.
func TestExtraFindsPlace(t *testing.T) {
	w := newGang(t, 2, "min-available", "2")
	w.admitAll()
	w.add(1)
	w.settle()
	w.expect("rrg", 2, "has started")
	w.vanish(w.pods[0])
	w.settle()
	w.expect("rr", 1, "has started")
}
