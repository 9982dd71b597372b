package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// A pod set of which no pod has still to be created violates no LimitRange.
func TestPodSetsWithoutPods(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: cpu=16")
	four := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "most", UID: "most"}}
	limits.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: four, Default: four}}
	w.engine.Apply(admission.LimitRangeObserved{LimitRange: limits})
	large := func(count int32) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Spec.PodSets = append(wl.Spec.PodSets, kueue.PodSet{Name: "large", Count: count, Template: template("cpu=8")})
		}
	}
	w.lone("q", "none", "cpu=2", large(0))
	w.lone("q", "done", "cpu=2", large(1), func(wl *kueue.Workload) {
		wl.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "large", Count: 1}}
	})
	w.lone("q", "one", "cpu=2", large(1))
	w.wantAdmitted("none", "done")
	w.wantRefusal("one", "PodsAreValid", "Misconfigured", `of the pods of "large"`)

	w.submit("q", "js", job{name: "load", requests: "cpu=8"}, job{name: "train", requests: "cpu=2", after: []string{"load Complete"}})
	w.wantAdmitted()
	js := w.jobSets["js"]
	js.plan.Stages[0].PodSets[0].Count = 0
	w.putPlan(js)
	w.change("js-load", func(wl *kueue.Workload) { wl.Spec.PodSets[0].Count = 0 })
	w.wantAdmitted("js-load")
}
