package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// findKueue determines whether the queues belong to Kueue: then their finalizers and CRDs are not removed. The ConfigMap of the policies says so, but it
// has usually been deleted with them; Kueue's webhooks say so as well.
func (c *cluster) findKueue(ctx context.Context, found *inventory) error {
	var guards corev1.ConfigMap
	err := c.Get(ctx, client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}, &guards)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read ConfigMap %s: %w", apis.GuardsConfigMap, err)
	}
	webhooks, err := listWebhooks(ctx, c)
	if err != nil {
		return err
	}
	found.hasKueue = guards.Data["kueueManager"] != "" || slices.ContainsFunc(webhooks, isOfKueue)
	return nil
}

// isOfKueue reports whether webhooks validate queues: Tranche has none.
func isOfKueue(config admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	return slices.ContainsFunc(config.Webhooks, validatesQueues)
}

func validatesQueues(w admissionregistrationv1.ValidatingWebhook) bool {
	return slices.ContainsFunc(w.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, kueue.SchemeGroupVersion.Group) && slices.Contains(r.Resources, "clusterqueues")
	})
}

// isFinalizer reports whether the manager sets a finalizer.
func isFinalizer(name string) bool {
	return name == kueue.ResourceInUseFinalizerName || name == apis.QuotaInUseFinalizer
}

// namesOfFinalizers lists the finalizers of objects that the manager has set.
func namesOfFinalizers(objects []client.Object) string {
	var names []string
	for _, object := range objects {
		for _, name := range object.GetFinalizers() {
			if isFinalizer(name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " or ")
}

// isPinned reports whether the finalizer of an object has to be removed. Beside Kueue, only the quota Workloads of stages are Tranche's.
func (found *inventory) isPinned(object client.Object) bool {
	if !slices.ContainsFunc(object.GetFinalizers(), isFinalizer) {
		return false
	}
	_, isWorkload := object.(*kueue.Workload)
	return !found.hasKueue || isWorkload && metav1.HasLabel(metav1.ObjectMeta{Labels: object.GetLabels()}, apis.StageLabel)
}

// findChecked finds the ClusterQueues of Kueue whose jobs would wait for the manager.
func (c *cluster) findChecked(ctx context.Context, found *inventory) error {
	if !found.hasKueue {
		return nil
	}
	var checks kueue.AdmissionCheckList
	if err := c.List(ctx, &checks); err != nil {
		return ignoreUnserved(err)
	}
	var queues kueue.ClusterQueueList
	if err := c.List(ctx, &queues); err != nil {
		return ignoreUnserved(err)
	}
	found.dependent = dependentQueues(queues.Items, checks.Items)
	return nil
}

// dependentQueues describes each ClusterQueue in which nothing is admitted without the manager: Tranche admits in it, or it has an AdmissionCheck of Tranche.
func dependentQueues(queues []kueue.ClusterQueue, checks []kueue.AdmissionCheck) []string {
	var lines []string
	for i := range queues {
		q := &queues[i]
		if q.Annotations[apis.EngineAnnotation] == apis.EngineTranche {
			lines = append(lines, fmt.Sprintf("ClusterQueue %s: it was taken over from Kueue; hand its cohort tree back with tranche hand-back, before the manager is gone", q.Name))
		}
		if q.Spec.AdmissionChecksStrategy == nil {
			continue
		}
		for _, rule := range q.Spec.AdmissionChecksStrategy.AdmissionChecks {
			isOurs := slices.ContainsFunc(checks, func(check kueue.AdmissionCheck) bool {
				return check.Name == string(rule.Name) && check.Spec.ControllerName == apis.StageSafetyController
			})
			if isOurs {
				lines = append(lines, fmt.Sprintf("ClusterQueue %s: remove AdmissionCheck %s from spec.admissionChecksStrategy; without the manager, its jobs wait indefinitely",
					q.Name, rule.Name))
			}
		}
	}
	return lines
}

// kueueOutcome describes what stays because it is Kueue's.
func (found *inventory) kueueOutcome() []string {
	if !found.hasKueue {
		return nil
	}
	return append([]string{"Kueue is installed: its queues, its Workloads and the CRDs of kueue.x-k8s.io stay as they are"}, found.dependent...)
}
