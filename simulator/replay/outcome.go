package replay

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// An Outcome is what follows from an Input under a policy.
type Outcome struct {
	// Results has a Result for each job that was submitted, in the order of namespace and name.
	Results []*Result
	// Inactive has why ClusterQueues admit nothing at the end, by name.
	Inactive map[string]string
}

// A Result is what happens to one job.
type Result struct {
	*Arrival
	// LeftOut says why the manager would refuse the JobSet or not manage it, or is empty.
	LeftOut string
	// Started is when its first quota Workload was admitted, and Finished when the job has finished. They are zero if that has not happened.
	Started, Finished time.Time
	// Holdings are the quota that it holds over time, and Executions when the Jobs of a JobSet run on it.
	Holdings   []Holding
	Executions []Execution
	// Unsafe are the stages that fitted once, and waited because admitting them could have led to a deadlock.
	Unsafe []string
	// Evictions counts those of its quota Workloads.
	Evictions int
}

// A Holding is quota that is held for some time.
type Holding struct {
	From, To time.Time
	Held     map[corev1.ResourceName]float64
}

// An openHolding has not ended.
type openHolding struct {
	Holding
	owner   types.NamespacedName
	podSets []kueue.PodSetReference
}

// watch records what happens to quota Workloads from now on.
func (r *run) watch() {
	observe := r.Observe
	r.Observe = func(event admission.Event) {
		switch event := event.(type) {
		case admission.WorkloadObserved:
			r.record(event.Workload)
		case admission.WorkloadGone:
			r.release(event.Key)
		}
		observe(event)
	}
	r.Decided = r.decided
}

// ownerOf returns the job of a quota Workload.
func ownerOf(key admission.StageKey, w *kueue.Workload) types.NamespacedName {
	if w != nil && w.Labels[apis.JobSetLabel] != "" {
		return types.NamespacedName{Namespace: key.Namespace, Name: w.Labels[apis.JobSetLabel]}
	}
	return key
}

// record compares a quota Workload with its last version.
func (r *run) record(w *kueue.Workload) {
	key := cluster.KeyOf(w)
	result := r.results[ownerOf(key, w)]
	if result == nil {
		return
	}
	if result.Started.IsZero() && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) {
		result.Started = r.Time()
	}
	if result.JobSet == nil && result.Finished.IsZero() && cluster.IsFinished(w) {
		result.Finished = r.Time()
	}
	held := map[corev1.ResourceName]float64{}
	for fr, amount := range cluster.Usage(w) {
		held[fr.Resource] += amount.AsApproximateFloat64()
	}
	switch before := r.holdings[key]; {
	case len(held) == 0:
		r.release(key)
	case before == nil || !maps.Equal(before.Held, held):
		if before != nil {
			r.end(before)
		}
		holding := &openHolding{Holding: Holding{From: r.Time(), Held: held}, owner: ownerOf(key, w)}
		for i := range w.Spec.PodSets {
			holding.podSets = append(holding.podSets, w.Spec.PodSets[i].Name)
		}
		r.holdings[key] = holding
	}
}

// release ends what a quota Workload has held and run.
func (r *run) release(key admission.StageKey) {
	before := r.holdings[key]
	if before == nil {
		return
	}
	r.end(before)
	delete(r.holdings, key)
	if result := r.results[before.owner]; result != nil {
		result.stop(before.podSets, r.Time())
	}
}

// end ends a holding.
func (r *run) end(h *openHolding) {
	h.To = r.Time()
	if result := r.results[h.owner]; result != nil && h.To.After(h.From) {
		result.Holdings = append(result.Holdings, h.Holding)
	}
}

// decided notes the decisions that the outcome reports.
func (r *run) decided(decision admission.Decision) {
	switch d := decision.(type) {
	case admission.Refuse:
		w := r.Workloads[d.Stage]
		if w == nil || d.Refusal.Check != stageUnsafe {
			return
		}
		if result := r.results[ownerOf(d.Stage, w)]; result != nil && !slices.Contains(result.Unsafe, w.Labels[apis.StageLabel]) {
			result.Unsafe = append(result.Unsafe, w.Labels[apis.StageLabel])
		}
	case admission.Evict:
		if result := r.results[ownerOf(d.Stage, r.Workloads[d.Stage])]; result != nil {
			result.Evictions++
		}
	case admission.Notice:
	}
}

// stageUnsafe is the check that refuses stages whose admission could lead to a deadlock.
const stageUnsafe = "StageUnsafe"

// outcome returns what was recorded.
func (r *run) outcome() *Outcome {
	for _, key := range slices.SortedFunc(maps.Keys(r.holdings), cluster.CompareKeys) {
		r.release(key)
	}
	o := &Outcome{Inactive: map[string]string{}}
	for _, key := range slices.SortedFunc(maps.Keys(r.results), cluster.CompareKeys) {
		result := r.results[key]
		if js := r.JobSets[key]; js != nil && result.JobSet != nil {
			result.Finished = finishedAt(js)
		}
		o.Results = append(o.Results, result)
	}
	for name := range r.ClusterQueues {
		if view, exists := r.Engine.ClusterQueue(name); exists && view.Active.Status != metav1.ConditionTrue {
			o.Inactive[name] = view.Active.Sentence(name)
		}
	}
	return o
}

// finishedAt returns when a JobSet has finished, or zero.
func finishedAt(js *jobsetapi.JobSet) time.Time {
	for _, c := range js.Status.Conditions {
		if (c.Type == string(jobset.JobSetCompleted) || c.Type == string(jobset.JobSetFailed)) && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
