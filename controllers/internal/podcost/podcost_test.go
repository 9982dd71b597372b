package podcost_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/podresources"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/internal/podcost"
)

// A sandbox is a cluster in which every RuntimeClass has the overhead of a CPU.
type sandbox struct{ client.Reader }

// Get implements client.Reader.
func (sandbox) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if class, ok := object.(*nodev1.RuntimeClass); ok {
		class.Overhead = &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	}
	return nil
}

// TestChanges: a pod template of which Changes reports nothing stays as it is.
func TestChanges(t *testing.T) {
	costs := podcost.Reader{Client: sandbox{}}
	limits := podresources.Merge([]*corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
	}}}}})
	for name, c := range map[string]struct {
		change func(*corev1.PodTemplateSpec)
		want   bool
	}{
		"complete":                      {change: func(*corev1.PodTemplateSpec) {}},
		"without a request":             {change: func(pod *corev1.PodTemplateSpec) { pod.Spec.Containers[0].Resources.Requests = nil }, want: true},
		"of a RuntimeClass":             {change: func(pod *corev1.PodTemplateSpec) { pod.Spec.RuntimeClassName = new("sandbox") }, want: true},
		"that seems to have devices":    {change: func(pod *corev1.PodTemplateSpec) { pod.Annotations[apis.DevicesAnnotation] = "gpu" }, want: true},
		"that seems to have a template": {change: func(pod *corev1.PodTemplateSpec) { pod.Annotations[apis.ClaimTemplatesAnnotation] = "" }, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"team": "a"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{
					{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}},
				}},
			}
			c.change(pod)
			got, before := podcost.Changes(pod, limits), pod.DeepCopy()
			if err := costs.AddDefaults(t.Context(), &pod.Spec, limits); err != nil {
				t.Fatal(err)
			}
			if _, err := costs.ChargeDevices(t.Context(), "ml", pod); err != nil {
				t.Fatal(err)
			}
			if changed := cmp.Diff(before, pod); got != c.want || (changed != "") != c.want {
				t.Errorf("Changes() = %v, want %v; the change is:\n%s", got, c.want, changed)
			}
		})
	}
}
