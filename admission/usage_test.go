package admission_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func usageBased(q *kueue.ClusterQueue) {
	q.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
}

func (w *world) localQueue(name, clusterQueue, consumed string) {
	q := &kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("lq-" + name)},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)},
	}
	if consumed != "" {
		q.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.LocalQueueAdmissionFairSharingStatus{
			ConsumedResources: corev1.ResourceList{gpu: resource.MustParse(consumed)}, LastUpdate: metav1.NewTime(w.now()),
		}}
	}
	w.engine.Apply(admission.LocalQueueObserved{LocalQueue: q})
}

// TestLocalQueuesTakeTurns: of two LocalQueues the one that has used less is next, regardless of arrival; a restart does not change that.
func TestLocalQueuesTakeTurns(t *testing.T) {
	config := admission.Config{AdmissionFairSharing: &admission.UsagePolicy{
		UsageHalfLifeTime: time.Hour, UsageSamplingInterval: time.Minute,
	}}
	for name, tc := range map[string]struct {
		config   admission.Config
		scope    func(*kueue.ClusterQueue)
		consumed string
		want     []string
	}{
		"turns":                  {config, usageBased, "", []string{"a1", "b1"}},
		"not without the scope":  {config, func(*kueue.ClusterQueue) {}, "", []string{"a1", "a2"}},
		"not without the config": {admission.Config{}, usageBased, "", []string{"a1", "a2"}},
		"the past counts":        {config, usageBased, "5", []string{"b1", "b2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.config)
			w.queue("q", "a100: gpu=4", tc.scope)
			w.localQueue("a", "q", tc.consumed)
			w.localQueue("b", "q", "")
			for _, name := range []string{"a1", "a2", "b1", "b2"} {
				w.lone(name[:1], name, "gpu=2")
			}
			w.wantAdmitted(tc.want...)
		})
	}
}

// TestUsageIsReportedOncePerInterval: the status reports the usage once in each interval.
func TestUsageIsReportedOncePerInterval(t *testing.T) {
	w := newWorld(t, admission.Config{AdmissionFairSharing: &admission.UsagePolicy{
		UsageHalfLifeTime: time.Minute, UsageSamplingInterval: time.Minute,
	}})
	w.queue("q", "a100: gpu=8", usageBased)
	w.lone("q", "one", "gpu=8")
	w.wantAdmitted("one")
	w.decide()
	w.clock += 60
	if at, ok := w.engine.NextTime(); !ok || at.After(w.now()) {
		t.Fatalf("next time is %v, want %v at the latest", at, w.now())
	}
	w.decide()
	view, _ := w.engine.LocalQueue(types.NamespacedName{Namespace: "ns", Name: "q"})
	if view.FairSharing == nil {
		t.Fatal("nothing is told")
	}
	// Half of 8 for the interval for which the entry counts, and from there half of the way to 8.
	consumed := view.FairSharing.AdmissionFairSharingStatus.ConsumedResources[gpu]
	if got := consumed.AsApproximateFloat64(); got < 5.9 || got > 6.1 {
		t.Errorf("consumed %v, want about 6", got)
	}
}

// TestBlockAdmission admits one stage after the other as their pods become ready.
func TestBlockAdmission(t *testing.T) {
	w := newWorld(t, admission.Config{BlockAdmission: true})
	w.queue("p", "a100: gpu=4")
	w.queue("q", "a100: gpu=4")
	w.lone("p", "one", "gpu=1")
	w.lone("q", "two", "gpu=1")
	w.wantAdmitted("one")
	w.wantRefusal("two", "PodsAreReady", "WaitingForPodsReady", "")
	w.change("one", func(wl *kueue.Workload) { setCondition(wl, kueue.WorkloadPodsReady, metav1.ConditionTrue) })
	w.wantAdmitted("two")
}

// TestPlaceAfterEviction: a stage that was evicted for its own fault goes to the end of the queue.
func TestPlaceAfterEviction(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		config admission.Config
		want   string
	}{
		"preempted":                  {"Preempted", admission.Config{}, "older"},
		"not ready in time":          {"PodsReadyTimeout", admission.Config{}, "younger"},
		"not ready, keeps its place": {"PodsReadyTimeout", admission.Config{KeepPlaceAfterEviction: true}, "older"},
		"check asks to try again":    {"AdmissionCheck", admission.Config{}, "younger"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.config)
			w.queue("q", "a100: gpu=4")
			w.lone("q", "older", "gpu=4")
			w.lone("q", "younger", "gpu=4")
			w.change("older", func(wl *kueue.Workload) {
				wl.Status.Conditions = []metav1.Condition{{
					Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue, Reason: tc.reason, LastTransitionTime: metav1.NewTime(w.now().Add(time.Second)),
				}}
			})
			w.wantAdmitted(tc.want)
		})
	}
}
