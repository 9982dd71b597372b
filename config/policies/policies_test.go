package policies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/config/policies"
)

// With a limit that is no number, the policies would refuse all JobSets.
func TestLimits(t *testing.T) {
	for value, isRefused := range map[string]bool{"1": false, "5000": false, "0": true, "-1": true, "5e3": true, "": true, "3000000000": true} {
		err := policies.CheckLimits(map[string]string{"maxPods": value, "maxTerminationGracePeriod": "1h"})
		if (err != nil) != isRefused || err != nil && !strings.Contains(err.Error(), "parameter maxPods") {
			t.Errorf("maxPods %q: %v", value, err)
		}
	}
	if err := policies.CheckLimits(map[string]string{"maxTerminationGracePeriod": "0s"}); err == nil {
		t.Error("a grace period of 0s is accepted")
	}
	if err := policies.CheckLimits(nil); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// A text is between quotes, and any other value is the whole expression.
func TestConstants(t *testing.T) {
	entry := func(name, expression string) any { return map[string]any{"name": name, "expression": expression} }
	policy := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"variables": []any{
			entry("maxJobs", "5000"), entry("accelerators", "r''''''"), entry("maxTerminationGracePeriod", "duration(r'''1h''')"), entry("isNew", "request.operation == 'CREATE'"),
		},
		"matchConditions": []any{entry("not-the-manager", "request.userInfo.username != r'''a'''"), entry("other", "true")},
	}}}
	want := map[string]string{"maxJobs": "5000", "accelerators": "", "maxTerminationGracePeriod": "1h", "manager": "a"}
	if diff := cmp.Diff(want, policies.Constants(policy)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want = map[string]string{"maxJobs": "1", "accelerators": "b\nc", "maxTerminationGracePeriod": "90s", "manager": `d\e`}
	policies.SetConstants(policy, want)
	if diff := cmp.Diff(want, policies.Constants(policy)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	conditions, _, _ := unstructured.NestedSlice(policy.Object, "spec", "matchConditions")
	if diff := cmp.Diff([]any{entry("not-the-manager", `request.userInfo.username != r'''d\e'''`), entry("other", "true")}, conditions); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
