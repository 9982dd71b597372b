// Package rest reports whether a simulated cluster is at rest: whether nothing happens at one time on which the engine or pods depend.
package rest

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// IsEnding reports whether pods terminate, or a quota Workload waits for AdmissionChecks: how long that takes is an estimate.
func IsEnding(cl *cluster.Cluster) bool {
	for _, p := range cl.Pods {
		if p.Terminating > 0 {
			return true
		}
	}
	for _, j := range cl.PlainJobs {
		if j.Plain.IsStopping {
			return true
		}
	}
	for _, w := range cl.Workloads {
		if quotaworkload.HoldsQuota(w) && !quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !cluster.IsFinished(w) {
			return true
		}
	}
	return false
}

// A Watch notes what happens in a cluster.
type Watch struct {
	cl      *cluster.Cluster
	observe func(admission.Event)
	pods    map[types.UID]pods
	// before are the quota Workloads of the beginning.
	before map[admission.StageKey]*kueue.Workload
	// hasObserved is true if the engine has observed anything on which its decisions depend.
	hasObserved bool
}

// pods are the numbers of pods of a Job.
type pods struct{ running, ready, succeeded, terminating int32 }

// Begin begins to watch a cluster.
func Begin(cl *cluster.Cluster, config *configapi.WaitForPodsReady) *Watch {
	w := &Watch{cl: cl, observe: cl.Observe, pods: podsOf(cl), before: maps.Clone(cl.Workloads)}
	awaitsReadiness := ptr.Deref(config.Enable, false)
	cl.Observe = func(event admission.Event) {
		if o, is := event.(admission.WorkloadObserved); !is || awaitsReadiness || !w.isReadiness(o.Workload) {
			w.hasObserved = true
		}
		w.observe(event)
	}
	return w
}

// isReadiness reports whether nothing of a quota Workload has changed but whether its pods are ready. If it is admitted with others, they depend on that.
func (w *Watch) isReadiness(object *kueue.Workload) bool {
	before := w.before[cluster.KeyOf(object)]
	return before != nil && object.Labels[apis.AdmitTogetherLabel] == "" && equality.Semantic.DeepEqual(withoutReadiness(before), withoutReadiness(object))
}

func withoutReadiness(object *kueue.Workload) *kueue.Workload {
	rest := *object
	rest.ResourceVersion = ""
	rest.Status.Conditions = slices.DeleteFunc(slices.Clone(object.Status.Conditions), func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
	return &rest
}

// End ends the Watch. It reports whether anything has happened on which decisions of the engine or the course of pods of JobSets depend.
func (w *Watch) End() (hasChanged bool) {
	w.cl.Observe = w.observe
	return w.hasObserved || !maps.Equal(w.pods, podsOf(w.cl))
}

// podsOf counts the pods of the Jobs that have any.
func podsOf(cl *cluster.Cluster) map[types.UID]pods {
	all := map[types.UID]pods{}
	for uid, p := range cl.Pods {
		counts := pods{p.Count(cluster.IsRunning), p.Count(cluster.IsReady), p.Count(cluster.HasSucceeded), p.Terminating}
		if counts != (pods{}) {
			all[uid] = counts
		}
	}
	return all
}
