package flavor_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
)

// FuzzObjection feeds pods and flavors that no API server has validated: selectors, affinity, tolerations, labels and taints. Pods with the same
// signature must get the same answer.
func FuzzObjection(f *testing.F) {
	f.Add([]byte(`{"nodeSelector":{"a":"b","c":"d"}}`), []byte(`{"nodeSelector":{"a":"b c:d"}}`), []byte(`{"nodeLabels":{"a":"b","c":"d"}}`))
	f.Add([]byte(`{}`), []byte(`{}`), []byte(`{"nodeTaints":[{"key":"k","effect":"NoSchedule"}]}`))
	f.Add([]byte(`{"nodeSelector":{"a":"b","c":"d"},"tolerations":[{"operator":"Exists"}]}`),
		[]byte(`{"nodeSelector":{"a":"b c:d"},"tolerations":[{"key":"k","operator":"Gt","value":"1"}]}`), []byte(`{"nodeLabels":{"a":"b c:d","c":"d"}}`))
	f.Add([]byte(`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]}]}}}}`),
		[]byte(`{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]}]},{},{"matchFields":[{"key":"metadata.name"}]}]}}}}`),
		[]byte(`{"nodeLabels":{"a":"b"},"tolerations":[{"key":"k"}]}`))
	f.Fuzz(func(t *testing.T, one, other, flavorSpec []byte) {
		var specs [2]corev1.PodSpec
		var resourceFlavor kueue.ResourceFlavor
		if json.Unmarshal(one, &specs[0]) != nil || json.Unmarshal(other, &specs[1]) != nil || json.Unmarshal(flavorSpec, &resourceFlavor.Spec) != nil {
			return
		}
		resourceFlavor.Name = "f"
		subject := flavor.New(&resourceFlavor)
		if !subject.Same(flavor.New(resourceFlavor.DeepCopy())) {
			t.Fatal("a flavor differs from its copy")
		}
		keys := map[string]struct{}{"zone": {}}
		for key := range maps.Keys(resourceFlavor.Spec.NodeLabels) {
			keys[key] = struct{}{}
		}
		var objections [2]string
		var pods [2]flavor.Pod
		for i := range specs {
			pods[i] = flavor.NewPod(&specs[i])
			objections[i] = subject.Objection(&pods[i], keys)
			checkWithoutRequirements(t, subject, &specs[i], objections[i])
		}
		if pods[0].Signature() == pods[1].Signature() && objections[0] != objections[1] {
			t.Fatalf("pods have the same signature %q, and %q is not %q", pods[0].Signature(), objections[0], objections[1])
		}
	})
}

// checkWithoutRequirements: pods without requirements are refused only because of taints.
func checkWithoutRequirements(t *testing.T, f *flavor.Flavor, spec *corev1.PodSpec, objection string) {
	t.Helper()
	free := flavor.NewPod(&corev1.PodSpec{Tolerations: slices.Clone(spec.Tolerations)})
	if got := f.Objection(&free, nil); got != "" && got != objection {
		t.Fatalf("refused with %q with requirements, and with %q without", objection, got)
	} else if got != "" && !strings.Contains(got, "taint") {
		t.Fatalf("refused with %q without requirements", got)
	}
}
