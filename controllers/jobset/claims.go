package jobset

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/device"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

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

// jobSetsThatClaim maps a ResourceClaimTemplate to the JobSets that name it.
func jobSetsThatClaim(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, template client.Object) []reconcile.Request {
		var list jobsetapi.JobSetList
		if err := reader.List(ctx, &list, client.InNamespace(template.GetNamespace())); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing JobSets", "because of", template.GetName())
			return nil
		}
		var requests []reconcile.Request
		for i := range list.Items {
			if list.Items[i].Status.TerminalState == "" && claims(&list.Items[i], template.GetName()) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
			}
		}
		return requests
	}
}

func claims(js *jobsetapi.JobSet, template string) bool {
	return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(job jobsetapi.ReplicatedJob) bool {
		return device.Names(&job.Template.Spec.Template.Spec, template)
	})
}
