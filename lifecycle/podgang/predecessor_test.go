package podgang_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// startTrain starts a gang of two pods that are ready, in which further pods are additional ones.
func startTrain(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, "ReplicaSet", 2)
	f.settings[apis.KoordinatorPrefix+"name"] = "train"
	f.settings[apis.KoordinatorPrefix+"min-available"] = "2"
	f.tick(1)
	for _, pod := range f.pods {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return f
}

// TestRetryLimitOfSlowPods: a pod waits until the one that it replaces has ended, however long its grace period is, so that retries are limited.
func TestRetryLimitOfSlowPods(t *testing.T) {
	for _, grace := range []time.Duration{time.Minute, 4 * time.Minute, time.Hour} {
		for _, kind := range []string{"ReplicaSet", "StatefulSet"} {
			f := newFleet(t, kind, 1)
			f.grace = grace
			if f.run(6 * time.Hour); f.evictions != limit+1 {
				t.Errorf("%s, grace period %s: %d evictions, want %d", kind, grace, f.evictions, limit+1)
			}
		}
		f := startTrain(t)
		f.grace, f.replicas = grace, 3
		if f.run(6 * time.Hour); f.evictions != limit+1 {
			t.Errorf("additional pod, grace period %s: %d evictions, want %d", grace, f.evictions, limit+1)
		}
	}
}

// TestFurtherPodsDoNotWait: while an evicted pod terminates, one pod waits for its quota Workload. Others of the same controller ask for quota of their own.
func TestFurtherPodsDoNotWait(t *testing.T) {
	f := newFleet(t, "ReplicaSet", 1)
	f.grace = 10 * time.Minute
	f.tick(1)
	f.now = f.now.Add(time.Minute)
	f.settle()
	f.replicas = 3
	f.tick(1)
	if got := f.standing(); got != "Rgrr" {
		t.Errorf("pods %q, want Rgrr: the second waits for the first", got)
	}
	if f.run(6 * time.Hour); f.evictions != 3*(limit+1) {
		t.Errorf("%d evictions, want %d", f.evictions, 3*(limit+1))
	}
}

// TestRolesOfOneController: a pod does not take over the quota Workload of another role, which may have been deactivated.
func TestRolesOfOneController(t *testing.T) {
	f := newFleet(t, "RayCluster", 1)
	f.run(15 * time.Minute)
	f.pods = nil
	f.replace()
	f.pods[0].Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("2")}
	f.tick(1)
	f.expectRunning(1)
}

// TestReplacementOfLostPod: a pod does not wait for one that does not end after its grace period, because its node is lost.
func TestReplacementOfLostPod(t *testing.T) {
	f := newFleet(t, "ReplicaSet", 1)
	f.grace = 10 * time.Minute
	f.tick(1)
	f.now = f.now.Add(time.Minute)
	f.settle()
	f.replace()
	f.now = f.now.Add(f.grace + time.Minute)
	f.settle()
	if got := len(f.workloads); got != 1 {
		t.Fatalf("%d quota Workloads a minute after the grace period, want 1", got)
	}
	f.now = f.now.Add(2 * time.Minute)
	f.settle()
	if got := len(f.workloads); got != 2 {
		t.Errorf("%d quota Workloads, want another one for the pod that waits", got)
	}
}

// TestExtraPassesOnWhenItsPodHasEnded: another client removes the admission of an evicted quota Workload while its pod terminates. The pod that replaces that one
// waits until it has ended.
func TestExtraPassesOnWhenItsPodHasEnded(t *testing.T) {
	f := startTrain(t)
	f.grace, f.replicas = 10*time.Minute, 3
	f.tick(1)
	f.expectRunning(3)
	f.now = f.now.Add(time.Minute)
	f.settle()
	var extra *kueue.Workload
	for _, x := range f.workloads {
		if x.Labels[apis.ExtraLabel] != "" {
			extra = x.DeepCopy()
		}
	}
	status := workloadstatus.QuotaReleased(extra, f.now)
	f.put(workloadstatus.Merge(extra, &status))
	f.t = mute{} // the other client does not keep the rules
	f.replace()
	f.settle()
	f.t = t
	if got, want := f.find(extra).Labels[apis.ExtraLabel], string(f.pods[2].UID); got != want {
		t.Errorf("the quota Workload passes to pod %q while pod %q runs", got, want)
	}
	f.vanish(f.pods[2])
	f.settle()
	if got, want := f.find(extra).Labels[apis.ExtraLabel], string(f.pods[2].UID); got != want {
		t.Errorf("the quota Workload belongs to pod %q, want %q, which replaces its pod", got, want)
	}
}

// mute hides failures.
type mute struct{}

func (mute) Helper()               {}
func (mute) Errorf(string, ...any) {}
func (mute) Fatalf(string, ...any) {}

// TestKindsOfOtherGroups: a kind of another API group with a name that Kubernetes uses is a kind about which nothing is known.
func TestKindsOfOtherGroups(t *testing.T) {
	for name, want := range map[string]bool{
		"apps/v1 StatefulSet": false, "apps.kruise.io/v1beta1 StatefulSet": true, "apps/v1 ReplicaSet": true, "v1 Pod": false, "example.com/v1 Pod": true,
	} {
		f := newFleet(t, "ReplicaSet", 1)
		f.tick(1)
		f.now = f.now.Add(time.Minute)
		f.settle()
		w := f.workloads[0].DeepCopy()
		version, kind, _ := strings.Cut(name, " ")
		w.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: "web", UID: "web"}}
		if got := len(podgang.ControllersOfReplaced(w)) > 0; got != want {
			t.Errorf("pods of %s take over quota Workloads of others: %t, want %t", name, got, want)
		}
	}
}
