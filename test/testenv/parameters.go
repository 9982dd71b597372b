package testenv

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/config/policies"
)

// SetParameters writes values of parameters into the admission policies and into the ConfigMap from which they are rendered, and returns the values that they
// replace. The API server acts on them a moment later.
func SetParameters(ctx context.Context, admin client.Client, values map[string]string) (before map[string]string, err error) {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); err != nil {
		return nil, fmt.Errorf("read the parameters: %w", err)
	}
	before = map[string]string{}
	for name := range values {
		before[name] = configMap.Data[name]
	}
	maps.Copy(configMap.Data, values)
	if err := admin.Update(ctx, configMap); err != nil {
		return nil, fmt.Errorf("write the parameters: %w", err)
	}
	for _, kind := range []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"} {
		var list unstructured.UnstructuredList
		list.SetAPIVersion("admissionregistration.k8s.io/v1")
		list.SetKind(kind + "List")
		if err := admin.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("list the policies: %w", err)
		}
		for i := range list.Items {
			if err := setConstants(ctx, admin, &list.Items[i], values); err != nil {
				return nil, fmt.Errorf("write parameters into %s %s: %w", kind, list.Items[i].GetName(), err)
			}
		}
	}
	return before, nil
}

// setConstants writes values into a policy that has them. The API server writes the status of a policy at the same time.
func setConstants(ctx context.Context, admin client.Client, policy *unstructured.Unstructured, values map[string]string) error {
	constants := policies.Constants(policy)
	isChanged := false
	for name, value := range values {
		old, has := constants[name]
		isChanged = isChanged || has && old != value
	}
	if !isChanged {
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		policies.SetConstants(policy, values)
		return admin.Update(ctx, policy)
	})
}
