package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A Preemption configures which stages are preempted, beyond the preemption policies of their ClusterQueues. Evictions for other reasons do not
// depend on it.
type Preemption struct {
	// MinimumRuntime is how long a stage runs, from its admission on, before it may be preempted, with the other stages of its JobSet that run. A
	// stage that fits into the nominal quota of its own ClusterQueue which others have borrowed, and that has waited as long, may take it back at
	// once. It is at most 8760h, and defaults to 0s. The annotation tranche.dev/minimum-runtime of the ClusterQueue of the stage that runs overrides it.
	MinimumRuntime *metav1.Duration `json:"minimumRuntime,omitempty"`

	// Notice is how long a stage that is preempted goes on running, with the other stages of its JobSet that run, so that it can save its work. Meanwhile
	// the condition PreemptionPending of its JobSet and of its quota Workload has the time at which its pods end, and its quota is promised to the
	// preemptor. It is at most 8760h, and defaults to 0s: the pods end at once. The annotation tranche.dev/preemption-notice of the ClusterQueue of the
	// stage that runs overrides it.
	Notice *metav1.Duration `json:"notice,omitempty"`

	// LeastWork is true if, among stages of equal priority, those are preempted first that lose the least time of accelerators: since their
	// admission, or since the time in the annotation tranche.dev/checkpointed-at of their JobSet. It defaults to false: those are preempted first that
	// were admitted last, as Kueue does.
	LeastWork *bool `json:"leastWork,omitempty"`
}

func (p *Preemption) setDefaults() {
	set(&p.MinimumRuntime, metav1.Duration{})
	set(&p.Notice, metav1.Duration{})
	set(&p.LeastWork, false)
}

func (p *Preemption) validate(path *field.Path) field.ErrorList {
	return append(span(path.Child("minimumRuntime"), p.MinimumRuntime), span(path.Child("notice"), p.Notice)...)
}
