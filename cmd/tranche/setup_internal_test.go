package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

// TestStripConfigMap: the cache holds the notices of groups, and no other data.
func TestStripConfigMap(t *testing.T) {
	data := map[string]string{"token": "secret", "pods": "2", "released": "a.1\n", "started": "true\n", "endpoint": "http://tranche", "other": "large"}
	notice := map[string]string{"token": "secret", "pods": "2", "released": "a.1\n", "started": "true\n", "endpoint": "http://tranche"}
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
	}
	for name, tc := range map[string]struct {
		name   string
		owners []metav1.OwnerReference
		want   map[string]string
	}{
		"of a group":          {barrier.ConfigMapName("js"), owner("JobSet", "js"), notice},
		"without an owner":    {barrier.ConfigMapName("js"), nil, nil},
		"of another kind":     {barrier.ConfigMapName("js"), owner("Job", "js"), nil},
		"of another JobSet":   {barrier.ConfigMapName("js"), owner("JobSet", "other"), nil},
		"with another name":   {"settings", owner("JobSet", "js"), nil},
		"owned, not governed": {barrier.ConfigMapName("js"), []metav1.OwnerReference{{Kind: "JobSet", Name: "js"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			configMap := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: tc.name, Labels: map[string]string{apis.JobSetLabel: "js"}, OwnerReferences: tc.owners},
				Data:       data, BinaryData: map[string][]byte{"more": []byte("large")},
			}
			stripped, err := stripConfigMap(configMap.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			got, ok := stripped.(*corev1.ConfigMap)
			if !ok || len(got.BinaryData) > 0 || got.Labels[apis.JobSetLabel] != "js" {
				t.Errorf("the cache holds %v", stripped)
			}
			if diff := cmp.Diff(tc.want, got.Data); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
		})
	}
}
