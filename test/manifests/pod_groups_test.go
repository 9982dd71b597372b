package manifests_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

// TestPoliciesKnowTheSameGroups: the policies that gate and guard the pods of groups each contain the keys by which a pod names its group, because they
// cannot share that. The manager reads the same.
func TestPoliciesKnowTheSameGroups(t *testing.T) {
	all := objects(t, kustomize(t, "config/policies"))
	want := map[string][]string{
		"groupLabels": {
			"kueue.x-k8s.io/pod-group-name", "pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name", "scheduling.x-k8s.io/pod-group",
		},
		"groupAnnotations": {"gang.scheduling.koordinator.sh/name", "kueue.x-k8s.io/pod-group-name", "scheduling.k8s.io/group-name"},
	}
	for _, key := range []string{
		"MutatingAdmissionPolicy//tranche-gate-pods", "ValidatingAdmissionPolicy//tranche-guard-pod-groups", "ValidatingAdmissionPolicy//tranche-guard-pod-group-joins",
	} {
		if all[key] == nil {
			t.Fatalf("there is no %s", key)
		}
		got := map[string][]string{}
		for _, v := range field(t, all[key], "spec", "variables").([]any) {
			variable := v.(map[string]any)
			if name := variable["name"].(string); strings.HasPrefix(name, "group") {
				for _, quoted := range regexp.MustCompile(`'[^']+'`).FindAllString(variable["expression"].(string), -1) {
					got[name] = append(got[name], strings.Trim(quoted, "'"))
				}
				slices.Sort(got[name])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	for variable, names := range want {
		for _, name := range names {
			pod := &corev1.Pod{}
			if keys := map[string]string{name: "g"}; variable == "groupLabels" {
				pod.Labels = keys
			} else {
				pod.Annotations = keys
			}
			if ref, ok := podgroup.RefOf(pod); !ok || ref.Name != "g" {
				t.Errorf("the manager does not read %s: %v", name, ref)
			}
		}
	}
	for _, key := range []string{
		"ValidatingAdmissionPolicy//tranche-require-queue", "ValidatingAdmissionPolicy//tranche-require-local-queue", "MutatingAdmissionPolicy//tranche-default-pod-queue",
		"MutatingAdmissionPolicy//tranche-default-pod-group", "ValidatingAdmissionPolicy//tranche-guard-single-pods",
	} {
		conditions := field(t, all[key], "spec", "matchConditions").([]any)
		named := slices.IndexFunc(conditions, func(c any) bool {
			name := c.(map[string]any)["name"].(string)
			return strings.HasPrefix(name, "names-") || name == "waits-by-itself"
		})
		labels, annotations, _ := strings.Cut(conditions[named].(map[string]any)["expression"].(string), "labels[?k]")
		for keys, part := range map[string]string{"groupLabels": labels, "groupAnnotations": annotations} {
			for _, name := range want[keys] {
				if !strings.Contains(part, "'"+name+"'") {
					t.Errorf("%s does not know %s", key, name)
				}
			}
		}
	}
}
