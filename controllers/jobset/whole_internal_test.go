package jobset

import (
	"testing"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

func TestStartsInOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy *jobsetapi.StartupPolicy
		want   bool
	}{
		{"dependsOn alone", nil, true},
		{"AnyOrder", &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.AnyOrder}, true},
		{"InOrder", &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}, false},
		{"rules", &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: make([]jobsetapi.StartupPolicyRule, 1)}, false},
	} {
		js := &jobsetapi.JobSet{}
		js.Spec.StartupPolicy = c.policy
		if got := startsInOrder(js); got != c.want {
			t.Errorf("%s: the JobSet controller starts the stages in order: %t", c.name, got)
		}
	}
}
