package podgang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/lifecycle/podgroup"
)

func TestSetStatus(t *testing.T) {
	full := podgroup.Status{Phase: "Running", Admitted: 5, Scheduled: 4, Running: 3, Succeeded: 2, Failed: 1, Started: 60}
	cases := map[string]struct {
		api    string
		status podgroup.Status
		want   map[string]any
		read   podgroup.Status
	}{
		"Coscheduling": {
			api: "scheduling.x-k8s.io/v1alpha1", status: full,
			want: map[string]any{
				"occupiedBy": "ml/job", "phase": "Running", "running": int64(3), "succeeded": int64(2), "failed": int64(1), "scheduleStartTime": "1970-01-01T00:01:00Z",
			},
			read: podgroup.Status{Phase: "Running", Running: 3, Succeeded: 2, Failed: 1, Started: 60},
		},
		"Koordinator, not started": {
			api: "scheduling.sigs.k8s.io/v1alpha1", status: podgroup.Status{Phase: "Pending", Scheduled: 1},
			want: map[string]any{
				"occupiedBy": "ml/job", "phase": "Pending", "scheduled": int64(1), "running": int64(0), "succeeded": int64(0), "failed": int64(0),
			},
			read: podgroup.Status{Phase: "Pending", Scheduled: 1},
		},
		"kube-batch": {
			api: "scheduling.incubator.k8s.io/v1alpha1", status: full,
			want: map[string]any{"occupiedBy": "ml/job", "admitted": int64(5), "running": int64(3), "succeeded": int64(2), "failed": int64(1)},
			read: podgroup.Status{Admitted: 5, Running: 3, Succeeded: 2, Failed: 1},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": c.api, "status": map[string]any{"occupiedBy": "ml/job"}}}
			if err := setStatus(object, c.status); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, object.Object["status"]); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.read, statusOf(object)); diff != "" {
				t.Errorf("status read again (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStatusOfAnotherForm(t *testing.T) {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "scheduling.x-k8s.io/v1alpha1", "status": map[string]any{
		"phase": int64(1), "running": "many", "scheduleStartTime": "soon",
	}}}
	if diff := cmp.Diff(podgroup.Status{}, statusOf(object)); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestIsKeptElsewhere(t *testing.T) {
	cases := map[string]struct {
		manager, fields string
		want            bool
	}{
		"no other client":         {manager: "kubectl", fields: `{"f:spec":{"f:minMember":{}}}`},
		"Tranche":                 {manager: "tranche", fields: `{"f:status":{"f:phase":{}}}`},
		"an empty status":         {manager: "operator", fields: `{"f:status":{}}`},
		"a status without fields": {manager: "operator", fields: `{"f:status":{".":{}}}`},
		"a scheduler":             {manager: "koord-scheduler", fields: `{"f:status":{".":{},"f:phase":{}}}`, want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{Object: map[string]any{}}
			entry := metav1.ManagedFieldsEntry{Manager: c.manager, FieldsV1: &metav1.FieldsV1{}}
			entry.FieldsV1.SetRawBytes([]byte(c.fields))
			object.SetManagedFields([]metav1.ManagedFieldsEntry{entry})
			if got := isKeptElsewhere(object); got != c.want {
				t.Errorf("kept elsewhere is %t, want %t", got, c.want)
			}
		})
	}
}
