package admission_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// positions formats pending stages as NAME LOCALQUEUE in-cluster-queue/in-local-queue.
func positions(all []admission.Pending) []string {
	var lines []string
	for _, p := range all {
		lines = append(lines, fmt.Sprintf("%s %s %d/%d", p.Stage.Name, p.LocalQueue.Name, p.InClusterQueue, p.InLocalQueue))
	}
	return lines
}

func TestPositions(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.engine.Apply(admission.LocalQueueObserved{LocalQueue: localQueue("second", "q")})
	w.lone("q", "runs", "gpu=4")
	w.wantAdmitted("runs")
	w.lone("q", "a", "gpu=1")
	w.lone("second", "b", "gpu=2")
	w.lone("q", "c", "gpu=2")
	w.lone("second", "d", "gpu=2")
	w.important("q", "e", "gpu=1", 9)
	w.submit("q", "js", twoStages("gpu=1", "Ready", "gpu=1")...)
	w.wantAdmitted()
	const most = int(^uint(0) >> 1)
	for name, tc := range map[string]struct {
		localQueue string
		page       admission.Page
		want       []string
	}{
		"all of the ClusterQueue":      {"", admission.Page{Limit: 10}, []string{"e q 0/0", "a q 1/1", "b second 2/0", "c q 3/2", "d second 4/1", "js-first q 5/3"}},
		"a page of the ClusterQueue":   {"", admission.Page{Offset: 2, Limit: 2}, []string{"b second 2/0", "c q 3/2"}},
		"all of the LocalQueue":        {"second", admission.Page{Limit: 10}, []string{"b second 2/0", "d second 4/1"}},
		"a page of the LocalQueue":     {"q", admission.Page{Offset: 1, Limit: 2}, []string{"a q 1/1", "c q 3/2"}},
		"after the end":                {"", admission.Page{Offset: 6, Limit: 10}, nil},
		"after the end of LocalQueue":  {"second", admission.Page{Offset: 2, Limit: 10}, nil},
		"nothing":                      {"", admission.Page{}, nil},
		"nothing of a LocalQueue":      {"q", admission.Page{}, nil},
		"as much as there may ever be": {"second", admission.Page{Offset: 1, Limit: most}, []string{"d second 4/1"}},
		"far behind the end":           {"", admission.Page{Offset: most, Limit: most}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ask := func() ([]admission.Pending, bool) { return w.engine.PendingInClusterQueue("q", tc.page) }
			if tc.localQueue != "" {
				ask = func() ([]admission.Pending, bool) { return w.engine.PendingInLocalQueue(keyOf(tc.localQueue), tc.page) }
			}
			if all, ok := ask(); !ok || !slices.Equal(positions(all), tc.want) {
				t.Errorf("got %v, %v, want %v", positions(all), ok, tc.want)
			}
		})
	}
	if p, ok := w.engine.PendingStage(keyOf("d")); !ok || positions([]admission.Pending{p})[0] != "d second 4/1" {
		t.Errorf("d: %+v, %v", p, ok)
	}
	if p, _ := w.engine.PendingStage(keyOf("e")); p.Priority != 9 || p.UID != "wl-e" || !p.Created.Equal(w.workloads[keyOf("e")].CreationTimestamp.Time) {
		t.Errorf("e: %+v", p)
	}
	for _, name := range []string{"runs", "js-second", "absent"} {
		if p, ok := w.engine.PendingStage(keyOf(name)); ok {
			t.Errorf("%s is in line: %+v", name, p)
		}
	}
}

func TestPositionsInUnknownQueues(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.engine.Apply(admission.LocalQueueObserved{LocalQueue: localQueue("leads-nowhere", "nowhere")})
	w.lone("leads-nowhere", "lost", "gpu=1")
	w.wantAdmitted()
	if all, ok := w.engine.PendingInClusterQueue("nowhere", admission.Page{Limit: 1}); ok {
		t.Errorf("there is no ClusterQueue nowhere, but: %v", all)
	}
	if all, ok := w.engine.PendingInLocalQueue(keyOf("unknown"), admission.Page{Limit: 1}); ok {
		t.Errorf("there is no LocalQueue unknown, but: %v", all)
	}
	if all, ok := w.engine.PendingInLocalQueue(keyOf("leads-nowhere"), admission.Page{Limit: 1}); !ok || !slices.Equal(positions(all), []string{"lost leads-nowhere 0/0"}) {
		t.Errorf("got %v, %v", positions(all), ok)
	}
}

// TestPositionAfterABackOff: an Engine that decides nothing gets the time from its callers.
func TestPositionAfterABackOff(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: gpu=4")
	w.lone("q", "backs-off", "gpu=1", func(wl *kueue.Workload) {
		at := metav1.NewTime(start().Add(time.Hour))
		wl.Status.RequeueState = &kueue.RequeueState{RequeueAt: &at}
	})
	for _, tc := range []struct {
		now      time.Time
		wantLine bool
	}{
		{start(), false}, {start().Add(time.Hour), true}, {start(), true},
	} {
		w.engine.Advance(tc.now)
		if _, ok := w.engine.PendingStage(keyOf("backs-off")); ok != tc.wantLine {
			t.Errorf("at %s: in line %v", tc.now, ok)
		}
	}
}

func localQueue(name, clusterQueue string) *kueue.LocalQueue {
	lq := &kueue.LocalQueue{Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}}
	lq.Namespace, lq.Name, lq.UID = "ns", name, types.UID("lq-"+name)
	return lq
}
