package admission_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
)

func flavorOf(name kueue.ResourceFlavorReference, quotas map[corev1.ResourceName]string) kueue.ResourceGroup {
	g := kueue.ResourceGroup{Flavors: []kueue.FlavorQuotas{{Name: name}}}
	for r, q := range quotas {
		g.CoveredResources = append(g.CoveredResources, r)
		g.Flavors[0].Resources = append(g.Flavors[0].Resources, kueue.ResourceQuota{Name: r, NominalQuota: resource.MustParse(q)})
	}
	return g
}

// TestMalformedClusterQueue: a ClusterQueue that was stored before the API server refused it. Its quotas count as the condition says, and its
// status has no key twice.
func TestMalformedClusterQueue(t *testing.T) {
	many := make([]kueue.ResourceGroup, 16)
	for g := range many {
		many[g] = flavorOf("", map[corev1.ResourceName]string{"cpu": "1"})
		many[g].Flavors = nil
		for f := range 5 {
			many[g].Flavors = append(many[g].Flavors, flavorOf(kueue.ResourceFlavorReference(fmt.Sprintf("f-%d-%d", g, f)), map[corev1.ResourceName]string{"cpu": "1"}).Flavors...)
		}
	}
	for name, tc := range map[string]struct {
		groups      []kueue.ResourceGroup
		wantMessage string
		wantFlavors int
	}{
		"valid": {[]kueue.ResourceGroup{flavorOf("blue", map[corev1.ResourceName]string{"cpu": "4"})}, "Can admit new workloads", 1},
		"negative": {
			[]kueue.ResourceGroup{flavorOf("blue", map[corev1.ResourceName]string{"cpu": "-1"})},
			`Can admit new workloads, but correct spec.resourceGroups: nominalQuota "-1" of cpu in flavor "blue" counts as 0`, 1,
		},
		"overflowing": {
			[]kueue.ResourceGroup{flavorOf("blue", map[corev1.ResourceName]string{"memory": "7E"})},
			`Can admit new workloads, but correct spec.resourceGroups: nominalQuota "7E" of memory in flavor "blue" counts as no limit`, 1,
		},
		"one flavor in two resource groups": {
			[]kueue.ResourceGroup{flavorOf("blue", map[corev1.ResourceName]string{"cpu": "4"}), flavorOf("blue", map[corev1.ResourceName]string{"memory": "4"})},
			"Can admit new workloads", 1,
		},
		"one resource of a flavor twice": {
			[]kueue.ResourceGroup{flavorOf("blue", map[corev1.ResourceName]string{"cpu": "4"}), flavorOf("blue", map[corev1.ResourceName]string{"cpu": "2"})},
			`Can admit new workloads, but correct spec.resourceGroups: of several quotas of cpu in flavor "blue" the last one counts`, 1,
		},
		"more flavors than the status has room for": {many, "Can admit new workloads", 64},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := admission.New(admission.Config{})
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range tc.groups {
				for i := range g.Flavors {
					engine.Apply(admission.FlavorObserved{Flavor: &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: string(g.Flavors[i].Name)}}})
				}
			}
			engine.Apply(admission.ClusterQueueObserved{ClusterQueue: &kueue.ClusterQueue{
				ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: kueue.ClusterQueueSpec{ResourceGroups: tc.groups, CohortName: "all"},
			}})
			view, ok := engine.ClusterQueue("q")
			if !ok || view.Active.Status != metav1.ConditionTrue || view.Active.Message != tc.wantMessage {
				t.Errorf("Active is %+v, want the message %q", view.Active, tc.wantMessage)
			}
			for _, usages := range [][]kueue.FlavorUsage{view.FlavorsReservation, view.FlavorsUsage} {
				seen := map[string]bool{}
				for _, u := range usages {
					for _, r := range u.Resources {
						key := strings.Join([]string{string(u.Name), string(r.Name)}, "/")
						if seen[key] {
							t.Errorf("%s is listed twice", key)
						}
						seen[key] = true
					}
				}
				if len(usages) != tc.wantFlavors {
					t.Errorf("%d flavors are listed, want %d: %v", len(usages), tc.wantFlavors, usages)
				}
			}
		})
	}
}
