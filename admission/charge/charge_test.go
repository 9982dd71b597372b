package charge_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/charge"
)

type list map[corev1.ResourceName]string

func (l list) parse() corev1.ResourceList {
	parsed := corev1.ResourceList{}
	for name, amount := range l {
		parsed[name] = resource.MustParse(amount)
	}
	return parsed
}

func TestApply(t *testing.T) {
	mig := charge.Transformation{Replace: true, Outputs: list{"memory-gb": "5", "credits": "0.5"}.parse()}
	for name, tc := range map[string]struct {
		rules          charge.Rules
		requests, want list
	}{
		"nothing":                            {requests: list{"cpu": "1"}, want: list{"cpu": "1"}},
		"excluded":                           {rules: charge.Rules{ExcludedPrefixes: []string{"net.", "hugepages-"}}, requests: list{"cpu": "1", "net.example/nic": "2", "hugepages-2Mi": "4Mi"}, want: list{"cpu": "1"}},
		"replaced":                           {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"mig": mig}}, requests: list{"cpu": "1", "mig": "4"}, want: list{"cpu": "1", "memory-gb": "20", "credits": "2"}},
		"retained":                           {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"mig": {Outputs: mig.Outputs}}}, requests: list{"mig": "1"}, want: list{"mig": "1", "memory-gb": "5", "credits": "500m"}},
		"added to another":                   {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"mig": mig}}, requests: list{"credits": "1", "mig": "2"}, want: list{"credits": "2", "memory-gb": "10"}},
		"multiplied":                         {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"core-percent": {Replace: true, MultiplyBy: "vgpu", Outputs: list{"cores": "1"}.parse()}}}, requests: list{"vgpu": "3", "core-percent": "20"}, want: list{"vgpu": "3", "cores": "60"}},
		"multiplied by an excluded resource": {rules: charge.Rules{ExcludedPrefixes: []string{"vgpu"}, Transformations: map[corev1.ResourceName]charge.Transformation{"core-percent": {Replace: true, MultiplyBy: "vgpu", Outputs: list{"cores": "1"}.parse()}}}, requests: list{"vgpu": "4", "core-percent": "90"}, want: list{"cores": "360"}},
		"excluded input":                     {rules: charge.Rules{ExcludedPrefixes: []string{"mig"}, Transformations: map[corev1.ResourceName]charge.Transformation{"mig": {Outputs: mig.Outputs}}}, requests: list{"cpu": "1", "mig": "2"}, want: list{"cpu": "1", "memory-gb": "10", "credits": "1"}},
		"excluded output":                    {rules: charge.Rules{ExcludedPrefixes: []string{"cred"}, Transformations: map[corev1.ResourceName]charge.Transformation{"mig": mig}}, requests: list{"cpu": "1", "mig": "2"}, want: list{"cpu": "1", "memory-gb": "10"}},
		"no multiplier":                      {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"core-percent": {Replace: true, MultiplyBy: "vgpu", Outputs: list{"cores": "1"}.parse()}}}, requests: list{"core-percent": "20"}, want: list{"cores": "20"}},
		"dropped":                            {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"cpu": {Replace: true}}}, requests: list{"cpu": "1", "memory": "1Gi"}, want: list{"memory": "1Gi"}},
		"negative":                           {rules: charge.Rules{Transformations: map[corev1.ResourceName]charge.Transformation{"a": {Outputs: list{"cpu": "-1", "x": "2"}.parse()}, "b": {Outputs: list{"x": "-1"}.parse()}}}, requests: list{"a": "1", "b": "1", "cpu": "1"}, want: list{"a": "1", "b": "1", "cpu": "1", "x": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			requests := tc.requests.parse()
			got := tc.rules.Apply(requests)
			if diff := cmp.Diff(tc.want.parse(), got, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
				t.Errorf("-want +got: %s", diff)
			}
			if diff := cmp.Diff(tc.requests.parse(), requests, cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
				t.Errorf("the requests changed: %s", diff)
			}
		})
	}
}
