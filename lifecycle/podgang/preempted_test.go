package podgang_test

import (
	"testing"
	"time"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
)

// release reconciles until the quota Workload of an evicted pod has released its quota, as if the engine decided right then.
func (f *fleet) release(name string) {
	f.t.Helper()
	for range 10 {
		for _, ref := range f.refs() {
			f.reconcile(ref)
			for _, x := range f.workloads {
				if x.Name == name && !quotaworkload.HoldsQuota(x) {
					return
				}
			}
		}
	}
	f.t.Fatalf("quota Workload %q still holds quota, or is gone", name)
}

// TestNoAdmissionWithoutPods: a quota Workload is gated when it releases the quota of a preempted pod, so that it is not admitted before the pod is recreated. The
// recreated pod has no retries and no back-off.
func TestNoAdmissionWithoutPods(t *testing.T) {
	for _, kind := range []string{"StatefulSet", "RayCluster", "ReplicaSet"} {
		t.Run(kind, func(t *testing.T) {
			f := newFleet(t, kind, 1)
			f.tick(1)
			f.preempt(f.workloads[0])
			f.settle()
			f.vanish(f.pods[0])
			f.release(f.workloads[0].Name)
			if f.admit(f.workloads[0]) {
				t.Error("the quota Workload of a preempted pod can be admitted before its pod is recreated")
			}
			f.settle()
			f.replace()
			f.settle()
			for _, x := range f.workloads {
				f.admit(x)
			}
			f.settle()
			f.expectRunning(1)
			for _, x := range f.workloads {
				if x.Status.RequeueState != nil {
					t.Errorf("quota Workload %s has retries: %+v", x.Name, x.Status.RequeueState)
				}
			}
		})
	}
}

// TestNoAdmissionOfExtraWithoutPod: nor is the quota Workload of an additional pod whose back-off ended while the pod terminated.
func TestNoAdmissionOfExtraWithoutPod(t *testing.T) {
	f := startTrain(t)
	f.replicas = 3
	f.tick(30)
	f.expectRunning(3)
	f.now = f.now.Add(time.Minute)
	f.settle() // the pod is evicted, and terminates
	f.now = f.now.Add(time.Minute)
	for i, x := range f.workloads {
		if x.Labels[apis.ExtraLabel] != "" {
			f.vanish(f.pods[2])
			f.release(x.Name)
			if f.admit(f.workloads[i]) {
				t.Error("the quota Workload of an additional pod can be admitted before the pod is recreated")
			}
		}
	}
	f.settle()
	f.replace()
	f.tick(60)
	f.expectRunning(3)
}
