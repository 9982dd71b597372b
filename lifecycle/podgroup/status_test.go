package podgroup_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

const (
	coscheduling = "scheduling.x-k8s.io/v1alpha1"
	koordinator  = "scheduling.sigs.k8s.io/v1alpha1"
	kubeBatch    = "scheduling.incubator.k8s.io/v1alpha1"
	document     = "incubator.scheduling.k8s.io/v1alpha1"
)

func statusTime() time.Time { return time.Unix(1000, 0) }

// statusGang has a pod for each letter: g is gated, l ungated, n has a node, r runs, s has succeeded and f failed; S and F have, too, because
// they are deleted, and R is deleted and runs.
func statusGang(api, pods string, least int64) *podgroup.Gang {
	gang := &podgroup.Gang{Object: &podgroup.Object{APIVersion: api, MinMember: least}}
	for i, how := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))}}
		pod.Spec.NodeName = "node"
		switch how {
		case 'g':
			pod.Spec.NodeName = ""
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
		case 'l':
			pod.Spec.NodeName = ""
		case 'r', 'R':
			pod.Status.Phase = corev1.PodRunning
		case 's', 'S':
			pod.Status.Phase = corev1.PodSucceeded
		case 'f', 'F':
			pod.Status.Phase = corev1.PodFailed
		}
		if how < 'a' {
			pod.DeletionTimestamp = &metav1.Time{Time: statusTime()}
		}
		gang.Pods = append(gang.Pods, pod)
	}
	return gang
}

func TestStatusAfter(t *testing.T) {
	const now = 1000
	cases := map[string]struct {
		api, pods string
		least     int64
		before    podgroup.Status
		want      podgroup.Status
	}{
		"no pods":         {api: coscheduling, least: 2, want: podgroup.Status{Phase: "Pending"}},
		"waits for quota": {api: coscheduling, pods: "gg", least: 2, want: podgroup.Status{Phase: "Pending"}},
		"ungated":         {api: coscheduling, pods: "ll", least: 2, want: podgroup.Status{Phase: "Scheduling", Started: now}},
		"ungated in part": {api: coscheduling, pods: "lg", least: 2, want: podgroup.Status{Phase: "Pending"}},
		"runs in part":    {api: coscheduling, pods: "rl", least: 2, want: podgroup.Status{Phase: "Scheduling", Running: 1, Started: now}},
		"keeps its start": {
			api: coscheduling, pods: "rrl", least: 2, before: podgroup.Status{Phase: "Scheduling", Started: 7},
			want: podgroup.Status{Phase: "Running", Running: 2, Started: 7},
		},
		"runs and has succeeded": {api: coscheduling, pods: "rs", least: 2, want: podgroup.Status{Phase: "Running", Running: 1, Succeeded: 1, Started: now}},
		"finished": {
			api: coscheduling, pods: "ssf", least: 2, want: podgroup.Status{Phase: "Finished", Succeeded: 2, Failed: 1, Started: now},
		},
		"failed":              {api: coscheduling, pods: "rf", least: 2, want: podgroup.Status{Phase: "Failed", Running: 1, Failed: 1, Started: now}},
		"one failed of three": {api: coscheduling, pods: "lrf", least: 3, want: podgroup.Status{Phase: "Scheduling", Running: 1, Failed: 1, Started: now}},
		"evicted":             {api: coscheduling, pods: "SFR", least: 2, want: podgroup.Status{Phase: "Pending", Running: 1}},
		"lost its pods": {
			api: coscheduling, least: 2, before: podgroup.Status{Phase: "Running", Running: 2, Started: 7}, want: podgroup.Status{Phase: "Pending", Started: 7},
		},
		"no minimum": {api: coscheduling, pods: "r", want: podgroup.Status{Phase: "Running", Running: 1, Started: now}},
		"used again": {
			api: coscheduling, pods: "gg", least: 2, before: podgroup.Status{Phase: "Finished", Succeeded: 2, Started: 7},
			want: podgroup.Status{Phase: "Finished", Succeeded: 2, Started: 7},
		},
		"failed, and runs again": {api: koordinator, pods: "rr", least: 2, before: podgroup.Status{Phase: "Failed"}, want: podgroup.Status{Phase: "Failed"}},

		"Koordinator, ungated":           {api: koordinator, pods: "ll", least: 2, want: podgroup.Status{Phase: "PreScheduling", Started: now}},
		"Koordinator, a node":            {api: koordinator, pods: "nl", least: 2, want: podgroup.Status{Phase: "Scheduling", Scheduled: 1, Started: now}},
		"Koordinator, nodes":             {api: koordinator, pods: "nr", least: 2, want: podgroup.Status{Phase: "Scheduled", Scheduled: 2, Running: 1, Started: now}},
		"Koordinator, runs":              {api: koordinator, pods: "rr", least: 2, want: podgroup.Status{Phase: "Running", Scheduled: 2, Running: 2, Started: now}},
		"Koordinator, waits for quota":   {api: koordinator, pods: "gg", least: 2, want: podgroup.Status{Phase: "Pending"}},
		"the document":                   {api: document, pods: "glrsf", least: 2, want: podgroup.Status{Admitted: 4, Running: 1, Succeeded: 1, Failed: 1}},
		"kube-batch":                     {api: kubeBatch, pods: "glrsf", least: 2, want: podgroup.Status{Admitted: 4, Running: 1, Succeeded: 1, Failed: 1}},
		"Kubernetes keeps its own":       {api: "scheduling.k8s.io/v1alpha2", pods: "r", want: podgroup.Status{}},
		"Volcano keeps its own":          {api: "scheduling.volcano.sh/v1beta1", pods: "r", want: podgroup.Status{}},
		"an API whose name begins alike": {api: "scheduling.x-k8s.io.example.com/v1", pods: "r", want: podgroup.Status{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := statusGang(c.api, c.pods, c.least).StatusAfter(c.before, statusTime())
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatusStays: the status is stable while nothing changes, whatever the time, and a finished status stays forever.
func TestStatusStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		api := rapid.SampledFrom([]string{coscheduling, koordinator, kubeBatch, document}).Draw(t, "api")
		var before podgroup.Status
		for i := range rapid.IntRange(1, 8).Draw(t, "changes") {
			gang := statusGang(api, rapid.StringMatching("[glnrsfSFR]{0,6}").Draw(t, "pods"), rapid.Int64Range(0, 5).Draw(t, "least"))
			now := statusTime().Add(time.Duration(i) * time.Hour)
			after := gang.StatusAfter(before, now)
			if again := gang.StatusAfter(after, now.Add(time.Minute)); again != after {
				t.Fatalf("said %+v, and of the same pods %+v", after, again)
			}
			if over := before.Phase == podgroup.PhaseFinished || before.Phase == podgroup.PhaseFailed; over && after != before {
				t.Fatalf("had ended with %+v, and says %+v", before, after)
			}
			if before.Started != 0 && after.Started != before.Started {
				t.Fatalf("had started at %d, and says %d", before.Started, after.Started)
			}
			before = after
		}
	})
}
