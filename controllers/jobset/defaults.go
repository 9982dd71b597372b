package jobset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// withClusterDefaults returns the JobSet with what the API server will add to its pods: the init container in which those of a group wait
// for each other, the overhead of their RuntimeClasses and the defaults of the LimitRanges of the namespace. Quota must count them. In the
// place of resource claims it has what quota is charged for their devices; problem says why it has not. The JobSet itself is not changed.
func (r *Reconciler) withClusterDefaults(ctx context.Context, js *jobsetapi.JobSet) (spec *jobsetapi.JobSetSpec, problem string, err error) {
	var ranges corev1.LimitRangeList
	if err := r.config.Client.List(ctx, &ranges, client.InNamespace(js.Namespace)); err != nil {
		return nil, "", fmt.Errorf("list LimitRanges of namespace %s: %w", js.Namespace, err)
	}
	limits, requests := containerDefaults(ranges.Items)
	spec = js.Spec.DeepCopy()
	for i := range spec.ReplicatedJobs {
		pod := &spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		if r.config.Waiting != nil && spec.ReplicatedJobs[i].Template.Annotations[apis.GroupStartAnnotation] != "" {
			pod.InitContainers = slices.Insert(pod.InitContainers, 0, *r.config.Waiting.DeepCopy())
		}
		setContainerDefaults(pod.InitContainers, limits, requests)
		setContainerDefaults(pod.Containers, limits, requests)
		if err := r.setOverhead(ctx, pod); err != nil {
			return nil, "", err
		}
		unpaid, err := r.chargeDevices(ctx, js, &spec.ReplicatedJobs[i])
		if err != nil {
			return nil, "", err
		}
		if unpaid != nil && problem == "" {
			problem = fmt.Sprintf("spec.replicatedJobs[%d].template.spec.template.spec.resourceClaims: %s", i, unpaid.Message)
		}
	}
	return spec, problem, nil
}

// containerDefaults merges the defaults for containers. Of several the first counts, as in the API server's admission.
func containerDefaults(ranges []corev1.LimitRange) (limits, requests corev1.ResourceList) {
	limits, requests = corev1.ResourceList{}, corev1.ResourceList{}
	for i := range ranges {
		for _, item := range ranges[i].Spec.Limits {
			if item.Type == corev1.LimitTypeContainer {
				addMissing(limits, item.Default)
				addMissing(requests, item.DefaultRequest)
			}
		}
	}
	return limits, requests
}

func addMissing(to, from corev1.ResourceList) {
	for name, quantity := range from {
		if _, ok := to[name]; !ok {
			to[name] = quantity
		}
	}
}

func withMissing(list, defaults corev1.ResourceList) corev1.ResourceList {
	if len(defaults) > 0 && list == nil {
		list = corev1.ResourceList{}
	}
	addMissing(list, defaults)
	return list
}

func setContainerDefaults(containers []corev1.Container, limits, requests corev1.ResourceList) {
	for i := range containers {
		r := &containers[i].Resources
		// A limit of the container's own is its request too, and comes before the default request.
		own := r.Limits
		r.Limits = withMissing(r.Limits, limits)
		if len(requests)+len(limits) > 0 {
			r.Requests = withMissing(withMissing(r.Requests, own), requests)
		}
	}
}

func (r *Reconciler) setOverhead(ctx context.Context, pod *corev1.PodSpec) error {
	if pod.RuntimeClassName == nil || pod.Overhead != nil {
		return nil
	}
	var class nodev1.RuntimeClass
	err := r.config.Client.Get(ctx, types.NamespacedName{Name: *pod.RuntimeClassName}, &class)
	if apierrors.IsNotFound(err) {
		return nil // the API server will refuse the pods and say why
	}
	if err != nil {
		return fmt.Errorf("read RuntimeClass %q: %w", *pod.RuntimeClassName, err)
	}
	if class.Overhead != nil {
		pod.Overhead = class.Overhead.PodFixed
	}
	return nil
}
