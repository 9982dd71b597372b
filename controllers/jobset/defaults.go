package jobset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/internal/podcost"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

// withClusterDefaults returns the spec of the JobSet with the fields that the API server will add to its pods: the init container in which
// the pods of a group wait for each other, the overhead of their RuntimeClasses, and the defaults of the LimitRanges of the namespace.
// Quota must count them. Resource claims are replaced by the resources that are charged for their devices; problem says why that is
// impossible. withClusterDefaults does not change the JobSet. If nothing is added, it returns the spec of the JobSet and copies nothing: the engine keeps what
// it returns.
func (r *Reconciler) withClusterDefaults(ctx context.Context, js *jobsetapi.JobSet) (spec *jobsetapi.JobSetSpec, problem string, err error) {
	costs := podcost.Reader{Client: r.config.Client, Devices: r.config.Devices}
	limits, err := costs.Limits(ctx, js.Namespace)
	if err != nil {
		return nil, "", err
	}
	waits := func(job *jobsetapi.ReplicatedJob) bool {
		return r.config.Waiting != nil && job.Template.Annotations[apis.GroupStartAnnotation] != ""
	}
	if !slices.ContainsFunc(js.Spec.ReplicatedJobs, func(job jobsetapi.ReplicatedJob) bool {
		return waits(&job) || podcost.Changes(&job.Template.Spec.Template, limits)
	}) {
		return &js.Spec, "", nil
	}
	spec = js.Spec.DeepCopy()
	for i := range spec.ReplicatedJobs {
		pod := &spec.ReplicatedJobs[i].Template.Spec.Template.Spec
		if waits(&spec.ReplicatedJobs[i]) {
			pod.InitContainers = slices.Insert(pod.InitContainers, 0, *r.config.Waiting.DeepCopy())
		}
		if err := costs.AddDefaults(ctx, pod, limits); err != nil {
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

// chargeDevices replaces the resource claims of a ReplicatedJob by the resources that are charged for their devices, or returns why it
// cannot. The charge stays if a ResourceClaimTemplate is deleted while its JobSet runs.
func (r *Reconciler) chargeDevices(ctx context.Context, js *jobsetapi.JobSet, job *jobsetapi.ReplicatedJob) (*device.Problem, error) {
	pod := &job.Template.Spec.Template
	costs := podcost.Reader{Client: r.config.Client, Devices: r.config.Devices}
	problem, err := costs.ChargeDevices(ctx, js.Namespace, pod)
	if err != nil {
		return nil, fmt.Errorf("charge ReplicatedJob %q: %w", job.Name, err)
	}
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
