package podgang_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

func hour() *metav1.Duration { return &metav1.Duration{Duration: time.Hour} }

// TestFinishedExpires: the quota Workload of a finished gang is deleted after an hour. The gang is still finished, and asks for nothing.
func TestFinishedExpires(t *testing.T) {
	for name, tc := range map[string]struct {
		phase corev1.PodPhase
		want  string
	}{
		"succeeded": {corev1.PodSucceeded, "All pods of the gang have succeeded"},
		"failed":    {corev1.PodFailed, "All pods of the gang have terminated, not all of them succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStarted(t, 2)
			w.retention.AfterFinished = hour()
			for _, pod := range w.pods {
				pod.Status.Phase = tc.phase
			}
			w.settle()
			w.now = w.now.Add(3 * time.Minute) // failed pods do not use the quota
			w.settle()
			w.expect(w.standing(), 1, tc.want)
			if w.last.RequeueAfter <= 0 || w.last.RequeueAfter > time.Hour {
				t.Errorf("requeues after %s, want an hour at most", w.last.RequeueAfter)
			}
			w.now = w.now.Add(w.last.RequeueAfter)
			w.settle()
			w.expect(w.standing(), 0, tc.want)

			// Another run of the same name.
			w.add(1)
			w.add(1)
			w.settle()
			w.admitAll()
			if got := w.standing()[2:]; got != "rr" || len(w.workloads) != 1 {
				t.Errorf("the next run is %q with %d quota Workloads", got, len(w.workloads))
			}
		})
	}
}

// TestReservedStaysFinished: a PodGroup that asks for quota before its pods exist asks for it once.
func TestReservedStaysFinished(t *testing.T) {
	w := newGroup(t, 1)
	w.object.MinResources = corev1.ResourceList{"cpu": resource.MustParse("1")}
	w.retention.AfterFinished = &metav1.Duration{}
	w.settle()
	w.admitAll()
	w.add(1)
	w.settle()
	w.pods[0].Status.Phase = corev1.PodSucceeded
	w.settle()
	w.now = w.now.Add(24 * time.Hour)
	w.settle()
	w.expect("s", 1, "All pods of the gang have succeeded")
	if !quotaworkload.IsTrue(w.workloads[0], kueue.WorkloadFinished) {
		t.Error("it asks for quota again")
	}
}

// TestDeactivatedExpires: an hour after the manager has deactivated a gang its pods are deleted, except those that a controller would recreate.
func TestDeactivatedExpires(t *testing.T) {
	for name, tc := range map[string]struct {
		cause      kueue.EvictionUnderlyingCause
		controlled bool
		want       string
	}{
		"by the manager":              {cause: "AdmissionCheck", want: "GG"},
		"pods that have a controller": {cause: "AdmissionCheck", controlled: true, want: "gg"},
		"by a user":                   {want: "gg"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGang(t, 2, "min-available", "2")
			w.retention.AfterDeactivatedByKueue = hour()
			if tc.controlled {
				owned(w.pods, "job")
			}
			x := w.workloads[0].DeepCopy()
			x.Spec.Active = new(false)
			status := workloadstatus.Evicted(x, workloadstatus.Eviction{Reason: kueue.WorkloadDeactivated, Cause: tc.cause, Message: "it is deactivated"}, w.now)
			w.put(workloadstatus.Merge(x, &status))
			w.settle()
			again := time.Duration(0)
			if tc.want == "GG" {
				again = time.Hour
			}
			if w.standing() != "gg" || w.last.RequeueAfter != again {
				t.Errorf("pods are %q, requeues after %s; want gg, %s", w.standing(), w.last.RequeueAfter, again)
			}
			w.now = w.now.Add(time.Hour)
			w.settle()
			if got := w.standing(); got != tc.want {
				t.Errorf("pods are %q, want %q", got, tc.want)
			}
		})
	}
}

// TestDeactivatedKeepsNewPods: a pod that was created long after the manager has deactivated its gang waits for as long as the others did.
func TestDeactivatedKeepsNewPods(t *testing.T) {
	w := newGroup(t, 1)
	w.retention.AfterDeactivatedByKueue = hour()
	w.add(1)
	w.settle()
	x := w.workloads[0].DeepCopy()
	x.Spec.Active = new(false)
	status := workloadstatus.Evicted(x, workloadstatus.Eviction{Reason: kueue.WorkloadDeactivated, Cause: "AdmissionCheck", Message: "it is deactivated"}, w.now)
	w.put(workloadstatus.Merge(x, &status))
	w.now = w.now.Add(24 * time.Hour)
	w.add(1).CreationTimestamp = metav1.NewTime(w.now)
	w.settle()
	if got := w.standing(); got != "Gg" {
		t.Errorf("pods are %q, want Gg", got)
	}
	w.now = w.now.Add(time.Hour)
	w.settle()
	if got := w.standing(); !strings.HasSuffix(got, "G") {
		t.Errorf("pods are %q an hour later, want both deleted", got)
	}
}
