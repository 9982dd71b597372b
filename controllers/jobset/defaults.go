package jobset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/admission/podresources"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
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
	return ptr.Deref(class.Overhead, nodev1.Overhead{}).PodFixed, nil
}

// chargeDevices replaces the resource claims of a ReplicatedJob by the resources that are charged for their devices, or returns why it
// cannot. The charge stays if a ResourceClaimTemplate is deleted while its JobSet runs.
func (r *Reconciler) chargeDevices(ctx context.Context, js *jobsetapi.JobSet, job *jobsetapi.ReplicatedJob) (*device.Problem, error) {
	pod := &job.Template.Spec.Template
	device.Forget(pod)
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil, nil //nolint:nilnil // there is no problem
	}
	templates := map[string]device.Template{}
	for i := range pod.Spec.ResourceClaims {
		name := ptr.Deref(pod.Spec.ResourceClaims[i].ResourceClaimTemplateName, "")
		if name == "" || len(r.config.Devices) == 0 {
			continue
		}
		var template resourcev1.ResourceClaimTemplate
		err := r.config.Client.Get(ctx, types.NamespacedName{Namespace: js.Namespace, Name: name}, &template)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ResourceClaimTemplate %q of ReplicatedJob %q: %w", name, job.Name, err)
		}
		templates[name] = device.Template{UID: template.UID, Spec: template.Spec.Spec}
	}
	problem := r.config.Devices.Charge(pod, templates)
	if problem == nil || !problem.IsMissing || !jobsetstate.IsStarted(js) {
		return problem, nil
	}
	charged, err := r.chargedTemplate(ctx, js, job.Name)
	if err != nil || charged == nil {
		return problem, err
	}
	device.Inherit(pod, charged)
	return nil, nil //nolint:nilnil // there is no problem
}

// chargedTemplate returns the pod template of a ReplicatedJob for which quota is charged, or nil.
func (r *Reconciler) chargedTemplate(ctx context.Context, js *jobsetapi.JobSet, replicatedJob string) (*corev1.PodTemplateSpec, error) {
	var workloads kueue.WorkloadList
	if err := r.config.Client.List(ctx, &workloads, client.InNamespace(js.Namespace), client.MatchingFields{indexJobSetUID: string(js.UID)}); err != nil {
		return nil, fmt.Errorf("list quota Workloads of JobSet %s: %w", client.ObjectKeyFromObject(js), err)
	}
	for i := range workloads.Items {
		podSets := workloads.Items[i].Spec.PodSets
		for j := range podSets {
			if podSets[j].Name == kueue.NewPodSetReference(replicatedJob) && podSets[j].Template.Annotations[apis.ClaimTemplatesAnnotation] != "" {
				return &podSets[j].Template, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // there is none
}

func claims(js *jobsetapi.JobSet, template string) bool {
	return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(job jobsetapi.ReplicatedJob) bool {
		return device.Names(&job.Template.Spec.Template.Spec, template)
	})
}
