package integration_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/podresources"
)

// Each pod is created in a namespace with each LimitRange, as a dry run. Its quota Workload would be refused exactly if the API server rejects it.
var _ = Describe("A prediction that the API server rejects a pod", func() {
	list := func(text string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for word := range strings.FieldsSeq(text) {
			name, amount, _ := strings.Cut(word, "=")
			all[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
		return all
	}
	resources := func(requests, limits string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
	}
	item := func(kind corev1.LimitType, change func(*corev1.LimitRangeItem)) corev1.LimitRangeItem {
		i := corev1.LimitRangeItem{Type: kind}
		change(&i)
		return i
	}
	maximum := func(i *corev1.LimitRangeItem) { i.Max = list("cpu=2") }
	minimum := func(i *corev1.LimitRangeItem) { i.Min = list("cpu=1") }
	ratio := func(i *corev1.LimitRangeItem) { i.MaxLimitRequestRatio = list("cpu=1500m") }
	memory := func(i *corev1.LimitRangeItem) { i.Min, i.Max = list("memory=1Gi"), list("memory=2Gi") }
	ranges := map[string][]corev1.LimitRangeItem{
		"none":               nil,
		"container maximum":  {item(corev1.LimitTypeContainer, maximum)},
		"container minimum":  {item(corev1.LimitTypeContainer, minimum)},
		"container ratio":    {item(corev1.LimitTypeContainer, ratio)},
		"container memory":   {item(corev1.LimitTypeContainer, memory)},
		"container defaults": {item(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.Default, i.DefaultRequest = list("cpu=2"), list("cpu=500m") })},
		"default request":    {item(corev1.LimitTypeContainer, func(i *corev1.LimitRangeItem) { i.DefaultRequest = list("cpu=1") })},
		"pod maximum":        {item(corev1.LimitTypePod, maximum)},
		"pod minimum":        {item(corev1.LimitTypePod, minimum)},
		"pod ratio":          {item(corev1.LimitTypePod, ratio)},
		"pod memory":         {item(corev1.LimitTypePod, memory)},
		"both": {
			item(corev1.LimitTypeContainer, minimum),
			item(corev1.LimitTypePod, func(i *corev1.LimitRangeItem) { maximum(i); ratio(i) }),
		},
	}
	// pods have containers, init containers, sidecars and pod-level resources of these kinds.
	pods := func(runtimeClass string) map[string]corev1.PodSpec {
		amounts := map[string]corev1.ResourceRequirements{
			"nothing": {}, "1": resources("cpu=1", ""), "-1": resources("", "cpu=1"), "1-1": resources("cpu=1", "cpu=1"), "1-2": resources("cpu=1", "cpu=2"),
			"2-2": resources("cpu=2", "cpu=2"), "3": resources("cpu=3", ""), "-3": resources("", "cpu=3"), "2-1": resources("cpu=2", "cpu=1"), "memory": resources("cpu=1 memory=1Gi", "memory=1Gi"),
			"fine": resources("cpu=2000100u", "cpu=2001m"), "zero": resources("cpu=0", "cpu=1"),
		}
		container := func(name string, r corev1.ResourceRequirements) corev1.Container {
			return corev1.Container{Name: name, Image: "example.com/main", Resources: *r.DeepCopy()}
		}
		all := map[string]corev1.PodSpec{}
		add := func(name string, init []corev1.Container, ofPod *corev1.ResourceRequirements, containers ...corev1.Container) {
			all[name] = corev1.PodSpec{InitContainers: init, Containers: containers, Resources: ofPod}
		}
		for name, r := range amounts {
			one, main := container("one", resources("cpu=1", "cpu=1")), container("main", r)
			sidecar := container("sidecar", r)
			sidecar.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			add(name, nil, nil, main)
			add("two of "+name, nil, nil, main, container("other", r))
			add("init "+name, []corev1.Container{container("init", r)}, nil, one)
			add("sidecar "+name, []corev1.Container{sidecar}, nil, one)
			add("pod-level "+name, nil, r.DeepCopy(), one)
			add("pod-level 2-2 of "+name, nil, new(resources("cpu=2", "cpu=2")), main)
			add("pod-level -2 of two "+name, nil, new(resources("", "cpu=2")), main, container("other", corev1.ResourceRequirements{}))
			add("pod-level 3 of "+name, nil, new(resources("cpu=3", "")), main)
			add("overhead "+name, nil, nil, main)
			withOverhead := all["overhead "+name]
			withOverhead.RuntimeClassName = &runtimeClass
			all["overhead "+name] = withOverhead
		}
		return all
	}

	It("is right for every LimitRange and pod", func(ctx SpecContext) {
		class := &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "limits-"}, Handler: "kata", Overhead: &nodev1.Overhead{PodFixed: list("cpu=1 memory=1Gi")},
		}
		Expect(env.adminClient.Create(ctx, class)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.adminClient.Delete(ctx, class)).To(Succeed()) })
		for name, items := range ranges {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "limits-"}}
			Expect(env.adminClient.Create(ctx, namespace)).To(Succeed())
			limitRange := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: items}}
			Expect(env.adminClient.Create(ctx, limitRange)).To(Succeed())
			limits := podresources.Merge([]*corev1.LimitRange{limitRange})
			wrong, rejections := []string{}, 0
			for form, spec := range pods(class.Name) {
				var overhead corev1.ResourceList
				if spec.RuntimeClassName != nil {
					overhead = class.Overhead.PodFixed
				}
				violation := limits.Violation([]podresources.PodSet{{Name: "main", Spec: limits.Effective(&spec, overhead)}})
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "pod"}, Spec: *spec.DeepCopy()}
				err := env.adminClient.Create(ctx, pod, client.DryRunAll)
				if isRejected := apierrors.IsForbidden(err) || apierrors.IsInvalid(err); isRejected != (violation != "") || (err != nil) != isRejected {
					wrong = append(wrong, fmt.Sprintf("%s: the API server returns %v, and the prediction is %q", form, err, violation))
				}
				if err != nil {
					rejections++
				}
			}
			Expect(wrong).To(BeEmpty(), name)
			Expect(rejections).To(BeNumerically(">", 0), name)
		}
	}, SpecTimeout(patience))
})
