package v1alpha2_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	k8sjson "sigs.k8s.io/json"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const full = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: full
  creationTimestamp: null
spec:
  suspend: true
  ttlSecondsAfterFinished: 60
  managedBy: jobset.sigs.k8s.io/jobset-controller
  network: {enableDNSHostnames: true, subdomain: net}
  successPolicy: {operator: All, targetReplicatedJobs: [b]}
  failurePolicy: {maxRestarts: 3, restartStrategy: Recreate}
  coordinator: {replicatedJob: b}
  startupPolicy:
    startupPolicyOrder: InOrder
    rules:
      - targetReplicatedJobs: [a]
        waitForReplicatedJobsStatus: Succeeded
  gangConfig: {gangMode: "Off"}
  groupSchedulingConfig: {timeoutAfterSeconds: 300, targetReplicatedJobs: [b]}
  replicatedJobs:
    - name: a
      groupName: default
      replicas: 2
      gangConfig: {gangMode: ReplicatedGang}
      template: {metadata: {labels: {tranche.dev/hold: "true"}}, spec: {parallelism: 4, template: {metadata: {}, spec: {containers: null}}}}
    - name: b
      dependsOn: [{name: a, status: Complete}]
      template: {metadata: {}, spec: {template: {metadata: {}, spec: {containers: null}}}}
status:
  restarts: 1
  terminalState: Completed
`

// decoders are the ways in which objects are decoded into the types: a client uses the JSON libraries, and the converter decodes
// unstructured objects.
func decoders() map[string]func([]byte, any) error {
	return map[string]func([]byte, any) error{
		"encoding/json": json.Unmarshal,
		"sigs.k8s.io/json": func(raw []byte, into any) error {
			strict, err := k8sjson.UnmarshalStrict(raw, into)
			if len(strict) > 0 {
				return strict[0]
			}
			return err
		},
		"converter": func(raw []byte, into any) error {
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal(raw, &u.Object); err != nil {
				return err
			}
			return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
		},
	}
}

func TestRoundTripLosesNothing(t *testing.T) {
	raw, err := yaml.YAMLToJSONStrict([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	want := object(t, raw)
	delete(want["metadata"].(map[string]any), "creationTimestamp")
	for name, decode := range decoders() {
		t.Run(name, func(t *testing.T) {
			js := &v1alpha2.JobSet{}
			if err := decode(raw, js); err != nil {
				t.Fatal(err)
			}
			if got := js.Spec.ReplicatedJobs[0].Name; got != "a" {
				t.Errorf("name of the first ReplicatedJob: %q, want a", got)
			}
			if got := js.Spec.StartupPolicy.Rules[0].WaitForReplicatedJobsStatus; got != v1alpha2.SucceededStatus {
				t.Errorf("status of the first rule: %q, want Succeeded", got)
			}
			if diff := cmp.Diff(want, object(t, marshal(t, js))); diff != "" {
				t.Errorf("encoding/json: -before +after\n%s", diff)
			}
			converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(js.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, object(t, marshal(t, converted))); diff != "" {
				t.Errorf("converter: -before +after\n%s", diff)
			}
		})
	}
}

// A JobSet without additional fields must look the same through both types, for any values of upstream's fields.
func TestUpstreamFieldsAreUntouched(t *testing.T) {
	fill := randfill.NewWithSeed(672).NilChance(0.2).NumElements(1, 3).MaxDepth(12).Funcs(
		func(fields *metav1.FieldsV1, _ randfill.Continue) { fields.SetRawString("{}") },
	)
	for range 50 {
		upstream := &jobset.JobSet{}
		fill.Fill(&upstream.Spec)
		fill.Fill(&upstream.Status)
		before := object(t, marshal(t, upstream))

		ours := &v1alpha2.JobSet{}
		if err := json.Unmarshal(marshal(t, upstream), ours); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, object(t, marshal(t, ours))); diff != "" {
			t.Fatalf("-upstream +ours\n%s", diff)
		}
	}
}

// The embedded structs have fields with the same JSON names. JSON must neither fill nor show them: clearing an outer field must not reveal
// an inner one.
func TestShadowedFieldsStayHidden(t *testing.T) {
	raw, err := yaml.YAMLToJSONStrict([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	js := &v1alpha2.JobSet{}
	if err := json.Unmarshal(raw, js); err != nil {
		t.Fatal(err)
	}
	if js.Spec.JobSetSpec.ReplicatedJobs != nil || js.Spec.JobSetSpec.StartupPolicy != nil {
		t.Errorf("the embedded spec holds shadowed fields: %+v", js.Spec.JobSetSpec)
	}
	js.Spec.ReplicatedJobs, js.Spec.StartupPolicy = nil, nil
	rendered := string(marshal(t, js))
	for _, field := range []string{`"replicatedJobs"`, `"startupPolicy"`} {
		if strings.Contains(rendered, field) {
			t.Errorf("%s is still there after it was cleared: %s", field, rendered)
		}
	}
	js.Spec.JobSetSpec.StartupPolicy = &jobset.StartupPolicy{StartupPolicyOrder: jobset.InOrder}
	if rendered := string(marshal(t, js)); strings.Contains(rendered, "startupPolicy") {
		t.Errorf("the embedded startupPolicy shows through: %s", rendered)
	}
}

func TestDeepCopySharesNothing(t *testing.T) {
	raw, err := yaml.YAMLToJSONStrict([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	js := &v1alpha2.JobSet{}
	if err := json.Unmarshal(raw, js); err != nil {
		t.Fatal(err)
	}
	before := marshal(t, js)
	c := js.DeepCopy()
	c.Spec.ReplicatedJobs[0].Template.Labels["tranche.dev/hold"] = "changed"
	*c.Spec.ReplicatedJobs[0].Template.Spec.Parallelism = 99
	c.Spec.ReplicatedJobs[1].DependsOn[0].Name = "changed"
	c.Spec.ReplicatedJobs[0].GangConfig.GangMode = v1alpha2.GangModeOff
	c.Spec.StartupPolicy.Rules[0].TargetReplicatedJobs[0] = "changed"
	c.Spec.GangConfig.GangMode = v1alpha2.GangModeGang
	*c.Spec.GroupSchedulingConfig.TimeoutAfterSeconds = 1
	c.Spec.GroupSchedulingConfig.TargetReplicatedJobs[0] = "changed"
	*c.Spec.Suspend = false
	c.Spec.SuccessPolicy.TargetReplicatedJobs[0] = "changed"
	if diff := cmp.Diff(string(before), string(marshal(t, js))); diff != "" {
		t.Errorf("changing the copy changed the original: -before +after\n%s", diff)
	}
}

func TestSchemeKnowsTheKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]runtime.Object{"JobSet": &v1alpha2.JobSet{}, "JobSetList": &v1alpha2.JobSetList{}} {
		got, err := scheme.New(jobset.GroupVersion.WithKind(kind))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", kind, diff)
		}
	}
}

func marshal(t *testing.T, object any) []byte {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func object(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}
