package parameters_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/parameters"
	"github.com/tranche-dev/tranche/config/policies"
	"github.com/tranche-dev/tranche/config/rbac"
	"github.com/tranche-dev/tranche/manifest"
)

// The manager may read each policy that has a parameter.
func TestRights(t *testing.T) {
	wanted := map[string][]string{}
	for _, policy := range withConstants(t) {
		resource := map[string]string{"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "MutatingAdmissionPolicy": "mutatingadmissionpolicies"}[policy.GetKind()]
		wanted[resource] = append(wanted[resource], policy.GetName())
	}
	roles, err := manifest.Objects(rbac.Files)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, role := range roles {
		rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
		for _, rule := range rules {
			resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
			if len(resources) == 1 && wanted[resources[0]] != nil && role.GetName() == "tranche-manager" {
				got[resources[0]], _, _ = unstructured.NestedStringSlice(rule.(map[string]any), "resourceNames")
			}
		}
	}
	for resource, names := range wanted {
		slices.Sort(names)
		slices.Sort(got[resource])
		if diff := cmp.Diff(names, got[resource]); diff != "" {
			t.Errorf("resourceNames of %s in config/rbac/manager_role.yaml (-policies with parameters +role):\n%s", resource, diff)
		}
	}
}

// The manifests have the values of the ConfigMap, which an installation of config/policies alone has.
func TestDefaults(t *testing.T) {
	objects, err := manifest.Objects(policies.Files)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]string{}
	for _, object := range objects {
		if object.GetKind() == "ConfigMap" {
			written, _, _ = unstructured.NestedStringMap(object.Object, "data")
		}
	}
	found := map[string]string{}
	for _, policy := range withConstants(t) {
		for name, value := range policies.Constants(policy) {
			found[name] = value
			if value != written[name] {
				t.Errorf("the parameter %s is %q in %s, but %q in the ConfigMap", name, value, policy.GetName(), written[name])
			}
		}
	}
	if len(found) != len(written) {
		t.Errorf("the policies have %d parameters, and the ConfigMap %d", len(found), len(written))
	}
}

func withConstants(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	wanted, err := parameters.WithConstants(configapi.ModeInstead)
	if err != nil {
		t.Fatal(err)
	}
	return wanted
}
