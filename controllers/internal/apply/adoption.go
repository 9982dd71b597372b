package apply

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
)

// PoliciesSince returns when the binding of the policy was created that holds queued Jobs or JobSets. An upgrade keeps the binding, and an
// installation after a removal creates another one.
func PoliciesSince(ctx context.Context, live client.Reader, binding string) (time.Time, error) {
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"}}
	if err := live.Get(ctx, types.NamespacedName{Name: binding}, object); err != nil {
		return time.Time{}, fmt.Errorf("read MutatingAdmissionPolicyBinding %q, which says since when objects are held: %w", binding, err)
	}
	return object.CreationTimestamp.Time, nil
}

// AdoptionTarget reads where the pods of an object are charged that ran before Tranche was installed. If the LocalQueue or its ClusterQueue does not
// exist, the Target has no Queue, and missing says so.
func AdoptionTarget(ctx context.Context, c client.Reader, kind string, localQueue types.NamespacedName, charges charge.Rules) (target *adoption.Target, missing string, err error) {
	target = &adoption.Target{Flavors: map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{}, Charges: charges}
	var local kueue.LocalQueue
	err = c.Get(ctx, localQueue, &local)
	switch {
	case apierrors.IsNotFound(err):
		return target, adoption.Unresolved(kind, localQueue.Name, ""), nil
	case err != nil:
		return nil, "", fmt.Errorf("read LocalQueue %s: %w", localQueue, err)
	}
	var queue kueue.ClusterQueue
	err = c.Get(ctx, types.NamespacedName{Name: string(local.Spec.ClusterQueue)}, &queue)
	switch {
	case apierrors.IsNotFound(err):
		return target, adoption.Unresolved(kind, localQueue.Name, local.Spec.ClusterQueue), nil
	case err != nil:
		return nil, "", fmt.Errorf("read ClusterQueue %q: %w", local.Spec.ClusterQueue, err)
	}
	target.Queue = &queue
	for i := range queue.Spec.ResourceGroups {
		for j := range queue.Spec.ResourceGroups[i].Flavors {
			name := queue.Spec.ResourceGroups[i].Flavors[j].Name
			var flavor kueue.ResourceFlavor
			err := c.Get(ctx, types.NamespacedName{Name: string(name)}, &flavor)
			if client.IgnoreNotFound(err) != nil {
				return nil, "", fmt.Errorf("read ResourceFlavor %q: %w", name, err)
			}
			if err == nil {
				target.Flavors[name] = &flavor
			}
		}
	}
	return target, "", nil
}
