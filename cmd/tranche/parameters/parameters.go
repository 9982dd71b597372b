// Package parameters reads the values of the parameters from the admission policies of a cluster.
package parameters

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/manifest"
)

// ModeLabel is on the policies of one mode.
const ModeLabel = "tranche.dev/mode"

// Policies of both modes.
const (
	// holdJobSets is in the release before, too: there it has a ConfigMap as parameter.
	holdJobSets = "tranche-hold-jobsets"
	// knowsKueue has the user name of Kueue's manager.
	knowsKueue = "tranche-guard-jobsets"
)

// Read returns the values of all parameters: those in the policies of a mode, by which the API server goes. Policies that differ from each other, or from
// the ConfigMap from which they were rendered, are an error.
func Read(ctx context.Context, reader client.Reader, mode configapi.Mode) (map[string]string, error) {
	if values, err := ofReleaseBefore(ctx, reader); values != nil || err != nil {
		return values, err
	}
	wanted, err := WithConstants(mode)
	if err != nil {
		return nil, err
	}
	found, from := map[string]string{}, map[string]string{}
	for _, policy := range wanted {
		if err := get(ctx, reader, policy); err != nil {
			return nil, err
		}
		for name, value := range policies.Constants(policy) {
			at := policy.GetKind() + " " + policy.GetName()
			if other, isKnown := found[name]; isKnown && other != value {
				return nil, fmt.Errorf("the parameter %s is %q in %s, but %q in %s: %s", name, other, from[name], value, at, cure)
			}
			found[name], from[name] = value, at
		}
	}
	written, err := readConfigMap(ctx, reader)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if value, isSet := written[name]; isSet && value != found[name] {
			return nil, fmt.Errorf("the parameter %s is %q in %s, but %q in ConfigMap %s, which the policies do not read: %s", name, found[name], from[name], value, configMapKey, cure)
		}
	}
	return found, nil
}

// cure is what to do if policies were rendered from other values than the ConfigMap has.
const cure = "apply all of it again, rendered by a kustomization with transformers: [config/policies/parameters], or by the chart"

// KueueManager returns the user name of Kueue's manager in the policies. It is empty without policies, and where Tranche admits.
func KueueManager(ctx context.Context, reader client.Reader) (string, error) {
	if values, err := ofReleaseBefore(ctx, reader); values != nil || err != nil {
		return values["kueueManager"], err
	}
	policy := newPolicy("ValidatingAdmissionPolicy", knowsKueue)
	if err := get(ctx, reader, policy); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return policies.Constants(policy)["kueueManager"], nil
}

// ofReleaseBefore returns the ConfigMap that the policies of the release before have as parameter, or nil if they are not those: in an upgrade, a manager may
// start before the policies are replaced.
func ofReleaseBefore(ctx context.Context, reader client.Reader) (map[string]string, error) {
	policy := newPolicy("MutatingAdmissionPolicy", holdJobSets)
	if err := get(ctx, reader, policy); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if kind, _, _ := unstructured.NestedString(policy.Object, "spec", "paramKind", "kind"); kind != "ConfigMap" {
		return nil, nil //nolint:nilnil // there is none
	}
	values, err := readConfigMap(ctx, reader)
	if err == nil && values == nil {
		return nil, fmt.Errorf("ConfigMap %s does not exist, and %s %s needs it: install config/policies again, or upgrade the chart", configMapKey, policy.GetKind(), policy.GetName())
	}
	return values, err
}

var configMapKey = client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}

// readConfigMap returns nil if the ConfigMap does not exist.
func readConfigMap(ctx context.Context, reader client.Reader) (map[string]string, error) {
	var configMap corev1.ConfigMap
	if err := reader.Get(ctx, configMapKey, &configMap); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", configMapKey, err)
	}
	return configMap.Data, nil
}

func newPolicy(kind, name string) *unstructured.Unstructured {
	policy := &unstructured.Unstructured{}
	policy.SetAPIVersion("admissionregistration.k8s.io/v1")
	policy.SetKind(kind)
	policy.SetName(name)
	return policy
}

func get(ctx context.Context, reader client.Reader, policy *unstructured.Unstructured) error {
	name := policy.GetName()
	if err := reader.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
		return fmt.Errorf("read %s %s: %w; install config/policies and config/rbac first, or upgrade the chart", policy.GetKind(), name, err)
	}
	return nil
}

// WithConstants returns the policies of a mode that have parameters, as in this version.
func WithConstants(mode configapi.Mode) ([]*unstructured.Unstructured, error) {
	all, err := manifest.Objects(policies.Files)
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		of := o.GetLabels()[ModeLabel]
		return of != "" && of != string(mode) || len(policies.Constants(o)) == 0
	}), err
}
