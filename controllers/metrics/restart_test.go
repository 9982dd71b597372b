package metrics_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// step is the next event of a stage with one GPU, and what the controller of its JobSet notes before.
func (l *life) step(step string) {
	switch step {
	case "reserved":
		l.set(0, "QuotaReserved=True QuotaReserved", "Admitted=True Admitted", "Evicted=False QuotaReserved")
		l.workload.Status.Admission.PodSetAssignments = []kueue.PodSetAssignment{{
			Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{"nvidia.com/gpu": "a100"},
			ResourceUsage: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
		}}
	case "ready":
		l.set(0, "PodsReady=True Started")
	case "pod lost":
		if jobsetstatus.IsReadyUncounted(&l.timeline, "train", l.workload) {
			l.note(jobsetstatus.Hold{})
		}
		l.set(0, "PodsReady=False WaitForRecovery")
	case "recovered":
		l.set(0, "PodsReady=True Recovered")
	case "closed":
		l.note(jobsetstatus.Hold{Closes: true})
		l.change(0, func(w *kueue.Workload) { apimeta.RemoveStatusCondition(&w.Status.Conditions, kueue.WorkloadPodsReady) })
	case "opened":
		l.set(0, "PodsReady=False WaitForStart")
	case "evicted":
		l.set(0, "Evicted=True Preempted")
	case "held":
		if apimeta.IsStatusConditionTrue(l.workload.Status.Conditions, kueue.WorkloadPodsReady) {
			l.note(jobsetstatus.Hold{})
		}
		l.set(0, "PodsReady=False WaitForStart")
	case "given back":
		l.note(jobsetstatus.Hold{})
		l.set(0, "QuotaReserved=False Pending")
	case "finished":
		l.set(0, "Finished=True Succeeded")
		l.note(jobsetstatus.Hold{})
	}
}

// TestMetricsAndTimelineAgree: for any sequence of events, and any restarts of the manager, the metrics of all managers together agree with
// the timeline. Ten seconds pass before each step.
func TestMetricsAndTimelineAgree(t *testing.T) {
	for name, c := range map[string]struct {
		steps      []string
		held, idle int
	}{
		"runs through":                              {[]string{"reserved", "ready", "finished"}, 20, 10},
		"never ready":                               {[]string{"reserved", "finished"}, 10, 10},
		"loses a pod and recovers":                  {[]string{"reserved", "ready", "pod lost", "recovered", "finished"}, 40, 10},
		"loses pods again and again":                {[]string{"reserved", "ready", "pod lost", "recovered", "pod lost", "recovered", "pod lost", "finished"}, 70, 10},
		"evicted while ready":                       {[]string{"reserved", "ready", "evicted", "held", "given back", "reserved", "ready", "finished"}, 60, 20},
		"evicted before it is ready":                {[]string{"reserved", "evicted", "given back", "reserved", "ready", "finished"}, 40, 30},
		"evicted while it recovers":                 {[]string{"reserved", "ready", "pod lost", "evicted", "given back"}, 40, 10},
		"suspended while ready":                     {[]string{"reserved", "ready", "held", "given back"}, 30, 10},
		"reopened, and runs through":                {[]string{"reserved", "ready", "closed", "opened", "ready", "finished"}, 50, 30},
		"reopened, and suspended before it is":      {[]string{"reserved", "ready", "closed", "opened", "held", "given back"}, 50, 40},
		"reopened, and evicted before it is":        {[]string{"reserved", "ready", "closed", "opened", "evicted", "given back"}, 50, 40},
		"closed, and evicted before it is reopened": {[]string{"reserved", "ready", "closed", "evicted", "given back"}, 40, 30},
		"reopened, ready and evicted":               {[]string{"reserved", "ready", "closed", "opened", "ready", "evicted", "held", "given back"}, 70, 30},
		"reopened, ready, and loses a pod":          {[]string{"reserved", "ready", "closed", "opened", "ready", "pod lost", "recovered", "finished"}, 70, 30},
		"reopened, ready, and fails for a pod":      {[]string{"reserved", "ready", "closed", "opened", "ready", "pod lost", "finished"}, 60, 30},
		"reopened twice":                            {[]string{"reserved", "ready", "closed", "opened", "closed", "opened", "ready", "finished"}, 70, 50},
		"closed after it lost a pod":                {[]string{"reserved", "ready", "pod lost", "closed", "opened", "ready", "finished"}, 60, 30},
		"reopened in a later hold, before it is ready": {
			[]string{"reserved", "ready", "held", "given back", "reserved", "closed", "opened", "held", "given back"}, 70, 50,
		},
		"reopened, and its quota is another one since": {
			[]string{"reserved", "ready", "closed", "evicted", "given back", "reserved", "ready", "held", "given back"}, 70, 40,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for cut := range c.steps {
				queue := fmt.Sprintf("agree %s %d", name, cut)
				l := newLife(queue, metrics.Replica{Elected: elected()})
				for i, step := range c.steps {
					if i == cut {
						l.restart()
					}
					l.clock = l.clock.Add(10 * time.Second)
					l.step(step)
				}
				l.wantSome(t, queue, "tranche_idle", fmt.Sprintf("tranche_idle_quota_seconds_total NotReady a100 nvidia.com/gpu %d", c.idle))
				if got := l.heldSeconds(t, queue); got != c.held {
					t.Errorf("metrics say held for %ds, want %ds, with a restart before step %d", got, c.held, cut)
				}
				got := l.timeline.Stages[0]
				if got.Held["nvidia.com/gpu"] != int64(c.held) || got.Idle["nvidia.com/gpu"] != int64(c.idle) {
					t.Errorf("the timeline says held %v, idle %v; want %d, %d", got.Held, got.Idle, c.held, c.idle)
				}
			}
		})
	}
}

// heldSeconds adds up tranche_stage_hold_seconds.
func (l *life) heldSeconds(t *testing.T, queue string) int {
	t.Helper()
	total := 0
	for line := range slices.Values(recorded(t, l.metrics, queue)) {
		var outcome string
		var count, seconds int
		if n, _ := fmt.Sscanf(line, "tranche_stage_hold_seconds %s %d in %ds", &outcome, &count, &seconds); n == 3 {
			total += seconds
		}
	}
	return total
}
