package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/test/testenv"
)

const gpu = corev1.ResourceName("nvidia.com/gpu")

// An observer follows the cluster and adds up what is held and what is used, at every change.
type observer struct {
	mu      sync.Mutex
	began   time.Time
	last    time.Time
	ended   time.Time
	held    float64
	idle    float64
	objects map[string]client.Object
	stays   map[stageID]*stay
}

// A stageID names a stage of a JobSet, given as namespace/name.
type stageID struct{ jobSet, stage string }

// A stay is when a stage held quota, and from when on its pods were ready.
type stay struct{ admitted, ready, finished time.Time }

func observe(ctx context.Context, w *testenv.World) (*observer, error) {
	now := time.Now()
	o := &observer{began: now, last: now, objects: map[string]client.Object{}, stays: map[stageID]*stay{}}
	for _, list := range []client.ObjectList{&jobsetapi.JobSetList{}, &kueue.WorkloadList{}, &corev1.PodList{}} {
		watcher, err := w.Admin.Watch(ctx, list)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", list, err)
		}
		go func() {
			for event := range watcher.ResultChan() {
				o.see(event)
			}
		}()
	}
	return o, nil
}

func (o *observer) see(event watch.Event) {
	object, ok := event.Object.(client.Object)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.advance(time.Now())
	key := fmt.Sprintf("%T %s", object, object.GetUID())
	if event.Type == watch.Deleted {
		delete(o.objects, key)
	} else {
		o.objects[key] = object
	}
	if w, ok := object.(*kueue.Workload); ok {
		o.note(w)
	}
}

// note remembers when a stage was seen to be admitted, ready and finished.
func (o *observer) note(w *kueue.Workload) {
	if w.Labels[apis.GrowthLabel] != "" || w.Labels[apis.JobSetLabel] == "" {
		return // the stay is that of the stage, and Jobs of Kueue have none
	}
	id := stageID{w.Namespace + "/" + w.Labels[apis.JobSetLabel], w.Labels[apis.StageLabel]}
	s := o.stays[id]
	if s == nil {
		s = &stay{}
		o.stays[id] = s
	}
	for conditionType, at := range map[string]*time.Time{
		kueue.WorkloadAdmitted: &s.admitted, kueue.WorkloadPodsReady: &s.ready, kueue.WorkloadFinished: &s.finished,
	} {
		if at.IsZero() && apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType) {
			*at = o.last
		}
	}
}

// lengths returns how long a stage took from its admission until it was ready, and until it had finished.
func (o *observer) lengths(id stageID) (ready, finished time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stays[id]
	if s == nil || s.admitted.IsZero() || s.finished.IsZero() {
		return 0, 0
	}
	if s.ready.IsZero() {
		s.ready = s.finished
	}
	return s.ready.Sub(s.admitted), s.finished.Sub(s.admitted)
}

// advance charges the time since the last change. The clock of the observer begins with the first JobSet.
func (o *observer) advance(now time.Time) {
	if len(o.objects) == 0 {
		o.began = now
	}
	held, used := o.amounts()
	if held > 0 {
		o.ended = now
	}
	dt := now.Sub(o.last).Seconds()
	o.last = now
	o.held += float64(held) * dt
	o.idle += float64(max(0, held-used)) * dt
}

// amounts returns the GPUs that are reserved for JobSets, and those that their running pods have.
func (o *observer) amounts() (held, used int64) {
	for _, object := range o.objects {
		switch object := object.(type) {
		case *kueue.Workload:
			if object.Labels[apis.JobSetLabel] != "" {
				for _, charged := range ledger.Charged(object) {
					held += charged[gpu] / 1000
				}
			}
		case *corev1.Pod:
			if object.Status.Phase == corev1.PodRunning && object.Labels[jobset.JobSetUIDKey] != "" {
				used += new(ledger.Rules).AcceleratorsOf(&object.Spec)[gpu] / 1000
			}
		}
	}
	return held, used
}

// describe names flavors and amounts, such as "15 nvidia.com/gpu of a100". Memory follows CPUs and is left out.
func describe(held ledger.Sum) string {
	var parts []string
	for fr, amount := range held {
		if amount > 0 && fr.Resource != corev1.ResourceMemory {
			parts = append(parts, fmt.Sprintf("%d %s of %s", amount/1000, fr.Resource, fr.Flavor))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// A row is one line of the table.
type row struct {
	jobSet, stage, state, why string
	held                      ledger.Sum
	order                     string
	finished                  bool
}

// rows returns a line for each JobSet, and for each Job that Kueue manages, in the order of submission.
func (o *observer) rows() []row {
	o.mu.Lock()
	defer o.mu.Unlock()
	workloads := map[string][]*kueue.Workload{}
	var rows []row
	for _, object := range o.objects {
		if w, ok := object.(*kueue.Workload); ok {
			if owner := metav1.GetControllerOf(w); owner != nil && owner.Kind == "Job" {
				rows = append(rows, jobRow(w, owner))
			}
			workloads[w.Labels[apis.JobUIDLabel]] = append(workloads[w.Labels[apis.JobUIDLabel]], w)
		}
	}
	for _, object := range o.objects {
		if js, ok := object.(*jobsetapi.JobSet); ok {
			stages := workloads[string(js.UID)]
			slices.SortFunc(stages, func(a, b *kueue.Workload) int { return strings.Compare(a.Name, b.Name) })
			rows = append(rows, rowOf(js, stages))
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.order+a.jobSet, b.order+b.jobSet) })
	return rows
}

func rowOf(js *jobsetapi.JobSet, stages []*kueue.Workload) row {
	r := row{jobSet: js.Namespace + "/" + js.Name, state: "Queued", held: ledger.Sum{}, order: js.CreationTimestamp.UTC().Format(time.RFC3339)}
	done := len(stages) > 0
	for i, w := range stages {
		r.held.Add(w)
		done = done && apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
		if apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) || w.Annotations[apis.AdmissionGatedByAnnotation] != "" {
			continue
		}
		r.stage = fmt.Sprintf("%d/%d %s", i+1, len(stages), w.Labels[apis.StageLabel])
		r.state, r.why = stateOf(w)
	}
	if done {
		r.state = "Finishing"
	}
	if js.Status.TerminalState != "" {
		r.stage, r.state, r.why, r.finished = fmt.Sprintf("%d/%d", len(stages), len(stages)), js.Status.TerminalState, "", true
	}
	return r
}

func stateOf(w *kueue.Workload) (state, why string) {
	if apimeta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadPodsReady) {
		return "Running", ""
	}
	c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if waiting := apimeta.FindStatusCondition(w.Status.Conditions, apis.WaitingCondition); waiting != nil && waiting.Status == metav1.ConditionTrue {
		return "Waiting", waiting.Message // of a cohort that was taken over: Kueue says there that the queue is inactive
	}
	switch {
	case c != nil && c.Status == metav1.ConditionTrue:
		return "Starting", ""
	case c != nil:
		return "Waiting", c.Message
	default:
		return "Queued", ""
	}
}

// figures are what one way of admission costs.
type figures struct {
	makespan   time.Duration
	held, idle float64
	// never is how many JobSets could not be admitted at all.
	never int
}

func (o *observer) totals() figures {
	o.mu.Lock()
	defer o.mu.Unlock()
	return figures{makespan: o.ended.Sub(o.began), held: o.held, idle: o.idle}
}
