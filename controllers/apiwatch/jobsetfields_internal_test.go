package apiwatch

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/config/crd"
	"github.com/tranche-dev/tranche/controllers/metrics"
)

// readCRD returns Tranche's CRD of JobSets.
func readCRD(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	content, err := crd.Files.ReadFile("jobset.x-k8s.io_jobsets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

// upstreamCRD returns a CRD of JobSets like that of the JobSet project, which lacks the fields of Tranche.
func upstreamCRD(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := readCRD(t)
	versions, _, err := unstructured.NestedSlice(object.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	spec := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
	for _, path := range [][]string{
		{"gangConfig"}, {"groupSchedulingConfig"}, {"startupPolicy", "properties", "rules"}, {"replicatedJobs", "items", "properties", "gangConfig"},
	} {
		version, ok := versions[0].(map[string]any)
		if !ok {
			t.Fatal("the CRD has no version")
		}
		unstructured.RemoveNestedField(version, slices.Concat(spec, path)...)
	}
	if err := unstructured.SetNestedSlice(object.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	return object
}

// A cached cache has a CRD of JobSets and one JobSet.
type cached struct {
	crd    *unstructured.Unstructured
	jobSet jobsetapi.JobSet
}

func (c *cached) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	object, ok := into.(*unstructured.Unstructured)
	if !ok {
		return errors.New("only the CRD is in the cache")
	}
	object.Object = c.crd.DeepCopy().Object
	return nil
}

func (c *cached) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list, ok := into.(*jobsetapi.JobSetList)
	if !ok {
		return errors.New("only JobSets can be listed")
	}
	list.Items = []jobsetapi.JobSet{c.jobSet}
	return nil
}

// TestMissing: fields are missing only if the cluster has had them: the manager has seen them served, or a JobSet records that it had some.
func TestMissing(t *testing.T) {
	plain := jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "plain"}}
	pruned := jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pruned", Annotations: map[string]string{apis.StartupRulesAnnotation: "a=Succeeded"}},
		Spec:       jobsetapi.JobSetSpec{StartupPolicy: &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder}},
	}
	all := []string{"spec.startupPolicy.rules", "spec.gangConfig", "spec.groupSchedulingConfig", "spec.replicatedJobs[*].gangConfig"}
	for name, tc := range map[string]struct {
		jobSet               jobsetapi.JobSet
		isUpstream, wereSeen bool
		want                 []string
	}{
		"Tranche's CRD": {jobSet: plain},
		"the JobSet project's CRD since the beginning":   {jobSet: plain, isUpstream: true},
		"another CRD applied while the manager runs":     {jobSet: plain, isUpstream: true, wereSeen: true, want: all},
		"another CRD applied before the manager started": {jobSet: pruned, isUpstream: true, want: all},
		"Tranche's CRD applied again":                    {jobSet: pruned},
	} {
		t.Run(name, func(t *testing.T) {
			var stripped any = readCRD(t)
			if tc.isUpstream {
				stripped = upstreamCRD(t)
			}
			for range 2 { // as an informer may
				var err error
				if stripped, err = StripCRD(stripped); err != nil {
					t.Fatal(err)
				}
			}
			crd, ok := stripped.(*unstructured.Unstructured)
			if !ok {
				t.Fatalf("stripped to %T", stripped)
			}
			f := NewJobSetFields(&cached{crd, tc.jobSet}, metrics.New(metrics.Replica{}))
			f.wereServed.Store(tc.wereSeen)
			got, err := f.Missing(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && len(tc.want)+len(got) > 0 {
				t.Errorf("missing (-want +got):\n%s", diff)
			}
		})
	}
}
