package podgang

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/test/discovery"
)

func TestServedAPIs(t *testing.T) {
	got, withStatus, err := servedAPIs(discovery.Served{
		"scheduling.k8s.io/v1alpha2": {"podgroups", "workloads"}, "scheduling.k8s.io/v1alpha3": {"podgroups"}, "scheduling.k8s.io/v1beta1": {"priorityclasses"},
		"scheduling.volcano.sh/v1beta1": {"podgroups", "podgroups/status"}, "scheduling.incubator.k8s.io/v1alpha1": {"podgroups"},
		"incubator.scheduling.k8s.io/v1alpha1": {"podgroups"}, "scheduling.x-k8s.io/v1alpha1": {"elasticquotas"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := podGroupAPIs{
		podgroup.Core: {{Group: "scheduling.k8s.io", Version: "v1alpha3", Kind: "PodGroup"}},
		podgroup.GroupName: {
			{Group: "scheduling.volcano.sh", Version: "v1beta1", Kind: "PodGroup"},
			{Group: "scheduling.incubator.k8s.io", Version: "v1alpha1", Kind: "PodGroup"},
			{Group: "incubator.scheduling.k8s.io", Version: "v1alpha1", Kind: "PodGroup"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(sets.New(want[podgroup.GroupName][0]), withStatus); diff != "" {
		t.Errorf("APIs with a subresource (-want +got):\n%s", diff)
	}
	if _, _, err := servedAPIs(discovery.Served{"scheduling.x-k8s.io/v1alpha1": nil}); !errors.Is(err, discovery.ErrUnavailable) {
		t.Errorf("error %v, want that of the API server", err)
	}
}

func TestObjectOf(t *testing.T) {
	type counts struct {
		Min, Timeout int64
		CPU          string
	}
	cases := map[string]struct {
		spec map[string]any
		want counts
	}{
		"Coscheduling": {
			spec: map[string]any{"minMember": int64(3), "minResources": map[string]any{"cpu": "1500m"}, "scheduleTimeoutSeconds": int64(60)},
			want: counts{Min: 3, Timeout: 60, CPU: "1500m"},
		},
		"the document of kube-batch": {spec: map[string]any{"minMembers": int64(2), "totalResources": map[string]any{"cpu": int64(4)}}, want: counts{Min: 2, CPU: "4"}},
		"Kubernetes":                 {spec: map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(5)}}}, want: counts{Min: 5}},
		"Kubernetes, no gang":        {spec: map[string]any{"schedulingPolicy": map[string]any{"basic": map[string]any{}}}},
		"of another form":            {spec: map[string]any{"minMember": "many", "minResources": "all", "scheduleTimeoutSeconds": "soon"}},
		"an amount of another form":  {spec: map[string]any{"minResources": map[string]any{"cpu": "lots"}}},
		"none":                       {},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := objectOf(&unstructured.Unstructured{Object: map[string]any{"spec": c.spec}})
			got := counts{Min: o.MinMember, Timeout: o.TimeoutSeconds}
			if q, ok := o.MinResources["cpu"]; ok {
				got.CPU = q.String()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStripPod: the reduced pod in the cache gives the same gang as the whole pod.
func TestStripPod(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ml", Name: "pod", UID: "1", ResourceVersion: "2", Labels: map[string]string{"kueue.x-k8s.io/pod-group-name": "train"},
		Annotations: map[string]string{"kueue.x-k8s.io/pod-group-total-count": "1"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
	}}
	pod.Spec = corev1.PodSpec{
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}, NodeSelector: map[string]string{"a": "b"}, NodeName: "node",
		Containers: []corev1.Container{{
			Name: "main", Command: []string{"train"}, Env: []corev1.EnvVar{{Name: "A"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		}},
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled}, {Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: "m"}}
	object, err := stripPod(pod)
	stripped, ok := object.(*corev1.Pod)
	if err != nil || !ok {
		t.Fatalf("stripPod returned %T, %v", object, err)
	}
	if stripped.ManagedFields != nil || stripped.Spec.Containers[0].Command != nil || stripped.Spec.Containers[0].Env != nil {
		t.Errorf("kept too much: %+v", stripped)
	}
	step := func(pod *corev1.Pod) *podgang.Step {
		ref, _ := podgroup.RefOf(pod)
		gang, problems := podgroup.New(ref, nil, []*corev1.Pod{pod}, podgroup.Settings{Wait: 10 * time.Minute})
		gang.Queue = "main"
		return podgang.Next(&podgang.Snapshot{Gang: gang, Problems: problems}, metav1.Now().Time)
	}
	if diff := cmp.Diff(step(pod), step(stripped)); diff != "" || len(step(pod).Of(quotastep.Create)) != 1 {
		t.Errorf("steps (-whole +stripped):\n%s", diff)
	}
	if len(stripped.Status.Conditions) != 1 || stripped.Status.Conditions[0].Type != corev1.PodReady {
		t.Errorf("conditions are %+v", stripped.Status.Conditions)
	}
}

func TestIsOfJobSet(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "train", UID: "1", Controller: new(true)}
	job := owner
	job.Kind = "Job"
	cases := map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"no owner":           {},
		"a Job's":            {meta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{job}}},
		"a JobSet's":         {meta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}, want: true},
		"a JobSet's, by us":  {meta: metav1.ObjectMeta{Labels: map[string]string{apis.JobSetLabel: "train"}}, want: true},
		"with another label": {meta: metav1.ObjectMeta{Labels: map[string]string{apis.QueueLabel: "main"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := isOfJobSet(&metav1.PartialObjectMetadata{ObjectMeta: c.meta}); got != c.want {
				t.Errorf("isOfJobSet is %t, want %t", got, c.want)
			}
		})
	}
}
