package adoption_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/charge"
	"github.com/tranche-dev/tranche/lifecycle/adoption"
)

// TestIsOlder: API servers enforce a policy some seconds after it was created. What was created later cannot be adopted.
func TestIsOlder(t *testing.T) {
	since := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for after, want := range map[time.Duration]bool{-time.Hour: true, 0: true, 59 * time.Second: true, time.Minute: false, time.Hour: false} {
		created := &metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(since.Add(after))}
		if got := adoption.IsOlder(created, since); got != want {
			t.Errorf("created %s after the binding: %t, want %t", after, got, want)
		}
	}
}

func flavors(labels map[string]map[string]string) map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor {
	all := map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{}
	for name, nodeLabels := range labels {
		all[kueue.ResourceFlavorReference(name)] = &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.ResourceFlavorSpec{NodeLabels: nodeLabels}}
	}
	all["tainted"] = &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: "tainted"},
		Spec:       kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}},
	}
	return all
}

// TestAdmission: the pods are charged to the flavor that they run on, as far as that can be known, and never refused.
func TestAdmission(t *testing.T) {
	group := func(resources []corev1.ResourceName, names ...kueue.ResourceFlavorReference) kueue.ResourceGroup {
		g := kueue.ResourceGroup{CoveredResources: resources}
		for _, name := range names {
			g.Flavors = append(g.Flavors, kueue.FlavorQuotas{Name: name})
		}
		return g
	}
	cpu := []corev1.ResourceName{"cpu"}
	for name, tc := range map[string]struct {
		groups      []kueue.ResourceGroup
		selector    map[string]string
		charges     charge.Rules
		wantFlavors map[corev1.ResourceName]kueue.ResourceFlavorReference
		wantAmounts map[corev1.ResourceName]string
	}{
		"the flavor that they select": {
			groups: []kueue.ResourceGroup{group(cpu, "any", "slow", "fast")}, selector: map[string]string{"pool": "fast", "zone": "a"},
			wantFlavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "fast"}, wantAmounts: map[corev1.ResourceName]string{"cpu": "6"},
		},
		"the first that they may use": {
			groups:      []kueue.ResourceGroup{group(cpu, "tainted", "slow", "fast")},
			wantFlavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "slow"}, wantAmounts: map[corev1.ResourceName]string{"cpu": "6"},
		},
		"the first if they may use none": {
			groups: []kueue.ResourceGroup{group(cpu, "slow", "fast")}, selector: map[string]string{"pool": "gone"},
			wantFlavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "slow"}, wantAmounts: map[corev1.ResourceName]string{"cpu": "6"},
		},
		"two groups, and resources that are not covered or not requested": {
			groups:      []kueue.ResourceGroup{group([]corev1.ResourceName{"pods", "gpu"}, "any"), group(cpu, "slow")},
			wantFlavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "slow", "pods": "any"},
			wantAmounts: map[corev1.ResourceName]string{"cpu": "6", "pods": "3"},
		},
		"excluded": {
			groups: []kueue.ResourceGroup{group(cpu, "slow")}, charges: charge.Rules{ExcludedPrefixes: []string{"cpu"}},
			wantFlavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}, wantAmounts: map[corev1.ResourceName]string{},
		},
		"a flavor that does not exist": {
			groups:      []kueue.ResourceGroup{group(cpu, "gone")},
			wantFlavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "gone"}, wantAmounts: map[corev1.ResourceName]string{"cpu": "6"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Name: "main", Count: 3, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				NodeSelector: tc.selector, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi"),
				}}}},
			}}}}}}
			target := &adoption.Target{
				Queue: &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: kueue.ClusterQueueSpec{ResourceGroups: tc.groups}}, Charges: tc.charges,
				Flavors: flavors(map[string]map[string]string{"slow": {"pool": "slow"}, "fast": {"pool": "fast"}, "any": nil}),
			}
			got := target.Admission(w)
			assignment := got.PodSetAssignments[0]
			amounts := map[corev1.ResourceName]string{}
			for resource, amount := range assignment.ResourceUsage {
				amounts[resource] = amount.String()
			}
			if got.ClusterQueue != "q" || *assignment.Count != 3 {
				t.Errorf("admitted %d pods in %s, want 3 in q", *assignment.Count, got.ClusterQueue)
			}
			if diff := cmp.Diff(tc.wantFlavors, assignment.Flavors); diff != "" {
				t.Errorf("flavors (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantAmounts, amounts); diff != "" {
				t.Errorf("amounts (-want +got):\n%s", diff)
			}
		})
	}
}
