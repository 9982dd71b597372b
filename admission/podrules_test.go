package admission_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

// The status of a stage that waits says what it asks for, also when only that changes.
func TestRefusalFollowsLimitRange(t *testing.T) {
	w := newWorld(t, admission.Config{})
	w.queue("q", "a100: cpu=4", func(q *kueue.ClusterQueue) { q.Spec.StopPolicy = new(kueue.Hold) })
	w.lone("q", "a", "gpu=1", func(wl *kueue.Workload) {
		wl.Spec.PodSets[0].Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	})
	for _, cpu := range []string{"1", "2"} {
		limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "defaults", UID: "defaults", ResourceVersion: cpu}}
		limits.Spec.Limits = []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}
		w.engine.Apply(admission.LimitRangeObserved{LimitRange: limits})
		var asked []string
		for _, d := range w.engine.Decide(w.now()) {
			if r, ok := d.(admission.Refuse); ok {
				amount := r.Wait().Requests[0].Resources[corev1.ResourceCPU]
				asked = append(asked, amount.String())
			}
		}
		if len(asked) != 1 || asked[0] != cpu {
			t.Errorf("refused with requests %v, want %s cpu once", asked, cpu)
		}
	}
}
