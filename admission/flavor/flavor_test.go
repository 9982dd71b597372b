package flavor_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/flavor"
	"github.com/tranche-dev/tranche/admission/quota"
)

func newFlavor(name string, change func(*kueue.ResourceFlavor)) *flavor.Flavor {
	f := &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"type": name}},
	}
	if change != nil {
		change(f)
	}
	return flavor.New(f)
}

// supply has 4 of each flavor and resource.
func supply(group flavor.Group) *flavor.Supply {
	return &flavor.Supply{Groups: []flavor.Group{group}, Index: quota.NewIndex(), Most: func(quota.ID) quota.Amount { return 4 }}
}

func flavors(item flavor.Item) []kueue.ResourceFlavorReference {
	var names []kueue.ResourceFlavorReference
	for _, o := range item.Options {
		names = append(names, o.Flavor)
	}
	return names
}

func affinity(terms ...[]corev1.NodeSelectorRequirement) *corev1.Affinity {
	selector := &corev1.NodeSelector{}
	for _, t := range terms {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
}

func TestOptions(t *testing.T) {
	taint := func(effect corev1.TaintEffect) func(*kueue.ResourceFlavor) {
		return func(f *kueue.ResourceFlavor) {
			f.Spec.NodeTaints = []corev1.Taint{{Key: "k", Value: "v", Effect: effect}}
		}
	}
	in := func(values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: "type", Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	other := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"z"}}
	for name, tc := range map[string]struct {
		first         func(*kueue.ResourceFlavor)
		pod           corev1.PodSpec
		wantOptions   []kueue.ResourceFlavorReference
		wantObjection string
	}{
		"both":           {wantOptions: []kueue.ResourceFlavorReference{"a", "b"}},
		"taint":          {first: taint(corev1.TaintEffectNoSchedule), wantOptions: []kueue.ResourceFlavorReference{"b"}, wantObjection: "k=v:NoSchedule"},
		"soft taint":     {first: taint(corev1.TaintEffectPreferNoSchedule), wantOptions: []kueue.ResourceFlavorReference{"a", "b"}},
		"pod tolerates":  {first: taint(corev1.TaintEffectNoExecute), pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "k", Value: "v"}}}, wantOptions: []kueue.ResourceFlavorReference{"a", "b"}},
		"wrong value":    {first: taint(corev1.TaintEffectNoSchedule), pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "k", Value: "w"}}}, wantOptions: []kueue.ResourceFlavorReference{"b"}, wantObjection: "taint"},
		"wrong effect":   {first: taint(corev1.TaintEffectNoSchedule), pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: "Exists", Effect: "NoExecute"}}}, wantOptions: []kueue.ResourceFlavorReference{"b"}, wantObjection: "taint"},
		"any taint":      {first: taint(corev1.TaintEffectNoSchedule), pod: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: "Exists"}}}, wantOptions: []kueue.ResourceFlavorReference{"a", "b"}},
		"selector":       {pod: corev1.PodSpec{NodeSelector: map[string]string{"type": "b", "zone": "z"}}, wantOptions: []kueue.ResourceFlavorReference{"b"}, wantObjection: "type=b"},
		"affinity":       {pod: corev1.PodSpec{Affinity: affinity([]corev1.NodeSelectorRequirement{in("b"), other})}, wantOptions: []kueue.ResourceFlavorReference{"b"}, wantObjection: "type In b"},
		"or other terms": {pod: corev1.PodSpec{Affinity: affinity([]corev1.NodeSelectorRequirement{in("b")}, []corev1.NodeSelectorRequirement{other})}, wantOptions: []kueue.ResourceFlavorReference{"a", "b"}},
		"flavor tolerates": {first: func(f *kueue.ResourceFlavor) {
			taint(corev1.TaintEffectNoSchedule)(f)
			f.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: "Exists"}}
		}, wantOptions: []kueue.ResourceFlavorReference{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			group := flavor.NewGroup([]corev1.ResourceName{"gpu", "pods"}, []*flavor.Flavor{newFlavor("a", tc.first), newFlavor("b", nil)})
			podSets := []flavor.PodSet{{Name: "p", Count: 2, Pod: flavor.NewPod(&tc.pod), Requests: []flavor.Request{{Resource: "gpu", Amount: 4}}}}
			items, infeasibility := supply(group).Items(podSets)
			if infeasibility != nil || len(items) != 1 || !slices.Equal(flavors(items[0]), tc.wantOptions) {
				t.Fatalf("items %+v, lack %+v, want options %v", items, infeasibility, tc.wantOptions)
			}
			if want := []flavor.Request{{Resource: "gpu", Amount: 4}, {Resource: "pods", Amount: 2}}; !slices.Equal(items[0].Requests, want) {
				t.Errorf("requests %v, want %v", items[0].Requests, want)
			}
			if got := strings.Join(items[0].Objections, ";"); (got == "") != (tc.wantObjection == "") || !strings.Contains(got, tc.wantObjection) {
				t.Errorf("objections %q, want %q", got, tc.wantObjection)
			}
		})
	}
}

func TestLack(t *testing.T) {
	group := flavor.NewGroup([]corev1.ResourceName{"gpu"}, []*flavor.Flavor{newFlavor("a", nil)})
	for name, tc := range map[string]struct {
		request flavor.Request
		want    flavor.Infeasibility
	}{
		"uncovered": {flavor.Request{Resource: "tpu", Amount: 1}, flavor.Infeasibility{PodSet: "p", Uncovered: "tpu"}},
		"oversized": {flavor.Request{Resource: "gpu", Amount: 5}, flavor.Infeasibility{PodSet: "p", Oversized: true}},
	} {
		t.Run(name, func(t *testing.T) {
			podSets := []flavor.PodSet{{Name: "p", Count: 1, Requests: []flavor.Request{tc.request}}}
			_, infeasibility := supply(group).Items(podSets)
			if infeasibility == nil || infeasibility.Uncovered != tc.want.Uncovered || infeasibility.Oversized != tc.want.Oversized || infeasibility.PodSet != tc.want.PodSet {
				t.Errorf("lack %+v, want %+v", infeasibility, tc.want)
			}
		})
	}
}

func TestChoices(t *testing.T) {
	two := flavor.Item{Options: []flavor.Option{{Flavor: "a"}, {Flavor: "b"}}}
	for name, tc := range map[string]struct {
		items []flavor.Item
		limit int
		want  []string
	}{
		"no items":  {nil, 4, []string{""}},
		"all":       {[]flavor.Item{two, two}, 4, []string{"00", "01", "10", "11"}},
		"too many":  {[]flavor.Item{two, two, two}, 4, []string{"000", "010", "100", "110"}},
		"only one":  {[]flavor.Item{two, two}, 1, []string{"00"}},
		"decided 1": {[]flavor.Item{{Options: []flavor.Option{{Flavor: "b"}}}, two, two}, 4, []string{"000", "001", "010", "011"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for choice := range flavor.Choices(tc.items, tc.limit) {
				text := ""
				for _, c := range choice {
					text += string(rune('0' + c))
				}
				got = append(got, text)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("choices %v, want %v", got, tc.want)
			}
		})
	}
}
