package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

func TestResources(t *testing.T) {
	c, err := v1alpha1.Decode([]byte(header + `
resources:
  excludeResourcePrefixes: [net.example.com/]
  transformations:
  - {input: example.com/mig, strategy: Replace, outputs: {example.com/memory: 5Gi}}
  - {input: example.com/cores, multiplyBy: example.com/gpus}
  deviceClassMappings:
  - {name: whole-gpus, deviceClassNames: [gpu.example.com, big.example.com]}
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Resources.Transformations[1].Strategy; got != v1alpha1.Retain {
		t.Errorf("strategy is %q, want the default Retain", got)
	}
	for name, tc := range map[string]struct{ resources, want string }{
		"empty prefix":    {`{excludeResourcePrefixes: [""]}`, "resources.excludeResourcePrefixes[0]: Invalid value: \"\": must not be empty"},
		"strategy":        {`{transformations: [{input: a, strategy: Drop}]}`, `resources.transformations[0].strategy: Unsupported value: "Drop"`},
		"same input":      {`{transformations: [{input: a}, {input: a}]}`, "resources.transformations[1].input: Duplicate value"},
		"input":           {`{transformations: [{input: "a b"}]}`, "resources.transformations[0].input: Invalid value"},
		"output":          {`{transformations: [{input: a, outputs: {"/": 1}}]}`, "resources.transformations[0].outputs[/]: Invalid value"},
		"multiplier":      {`{transformations: [{input: a, multiplyBy: "?"}]}`, "resources.transformations[0].multiplyBy: Invalid value"},
		"no class":        {`{deviceClassMappings: [{name: a}]}`, "resources.deviceClassMappings[0].deviceClassNames: Required value"},
		"same name":       {`{deviceClassMappings: [{name: a, deviceClassNames: [x]}, {name: a, deviceClassNames: [z]}]}`, "resources.deviceClassMappings[1].name: Duplicate value"},
		"same class":      {`{deviceClassMappings: [{name: a, deviceClassNames: [x]}, {name: b, deviceClassNames: [x]}]}`, "resources.deviceClassMappings[1].deviceClassNames[0]: Invalid value: \"x\": is already mapped to a"},
		"unsupported":     {`{deviceClassMappings: [{name: a, deviceClassNames: [x], sources: []}]}`, `unknown field "resources.deviceClassMappings[0].sources"`},
		"name of mapping": {`{deviceClassMappings: [{name: "a b", deviceClassNames: [x]}]}`, "resources.deviceClassMappings[0].name: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.Decode([]byte(header + "resources: " + tc.resources + "\n"))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}
