package jobset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/admission/podresources"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// withClusterDefaults returns the spec of the JobSet with the fields that the API server will add to its pods: the init container in which
// the pods of a group wait for each other, the overhead of their RuntimeClasses, and the defaults of the LimitRanges of the namespace.
// Quota must count them. Resource claims are replaced by the resources that are charged for their devices; problem says why that is
// impossible. withClusterDefaults does not change the JobSet.
func (r *Reconciler) withClusterDefaults(ctx context.Context, js *jobsetapi.JobSet) (spec *jobsetapi.JobSetSpec, problem string, err error) {
	var ranges corev1.LimitRangeList
	if err := r.config.Client.List(ctx, &ranges, client.InNamespace(js.Namespace)); err != nil {
		return nil, "", fmt.Errorf("list LimitRanges of namespace %s: %w", js.Namespace, err)
	}
	all := make([]*corev1.LimitRange, len(ranges.Items))
	for i := range ranges.Items {
		all[i] = &ranges.Items[i]
	}
	limits := podresources.Merge(all)
	spec = js.Spec.DeepCopy()
	for i := range spec.ReplicatedJobs {
		pod := &spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		if r.config.Waiting != nil && spec.ReplicatedJobs[i].Template.Annotations[apis.GroupStartAnnotation] != "" {
			pod.InitContainers = slices.Insert(pod.InitContainers, 0, *r.config.Waiting.DeepCopy())
		}
		overhead, err := r.overheadOf(ctx, pod)
		if err != nil {
			return nil, "", err
		}
		*pod = *limits.Effective(pod, overhead)
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

// overheadOf returns the overhead of the RuntimeClass of a pod, if it has one.
func (r *Reconciler) overheadOf(ctx context.Context, pod *corev1.PodSpec) (corev1.ResourceList, error) {
	var class nodev1.RuntimeClass
	if pod.RuntimeClassName != nil {
		// If the RuntimeClass does not exist, the API server rejects the pods and reports why.
		err := r.config.Client.Get(ctx, types.NamespacedName{Name: *pod.RuntimeClassName}, &class)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read RuntimeClass %q: %w", *pod.RuntimeClassName, err)
		}
	}
	if class.Overhead == nil {
		class.Overhead = &nodev1.Overhead{}
	}
	return class.Overhead.PodFixed, nil
}
