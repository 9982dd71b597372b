// Package namespace feeds the labels of Namespaces to the engine, for the namespaceSelector of ClusterQueues.
package namespace

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/controllers/engine"
)

// SetupWithManager starts to watch Namespaces.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, runner *engine.Runner) error {
	return engine.Watch(ctx, mgr, runner, &corev1.Namespace{}, engine.Source[*corev1.Namespace]{
		Observed: func(ns *corev1.Namespace) admission.Event {
			return admission.NamespaceObserved{Name: ns.Name, Labels: ns.Labels}
		},
		Differs: func(before, after *corev1.Namespace) bool { return !maps.Equal(before.Labels, after.Labels) },
		Gone:    func(ns *corev1.Namespace) admission.Event { return admission.NamespaceGone{Name: ns.Name} },
	})
}
