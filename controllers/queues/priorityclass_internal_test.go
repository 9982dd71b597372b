package queues

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

func TestChangesValue(t *testing.T) {
	class := func(value int32, labels map[string]string) *kueue.WorkloadPriorityClass {
		return &kueue.WorkloadPriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high", Labels: labels}, Value: value}
	}
	p := changesValue()
	for name, tc := range map[string]struct{ got, want bool }{
		"another value": {p.Update(event.UpdateEvent{ObjectOld: class(1, nil), ObjectNew: class(2, nil)}), true},
		"another label": {p.Update(event.UpdateEvent{ObjectOld: class(1, nil), ObjectNew: class(1, map[string]string{"team": "a"})}), false},
		"new":           {p.Create(event.CreateEvent{Object: class(1, nil)}), true},
		"deleted":       {p.Delete(event.DeleteEvent{Object: class(1, nil)}), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: passes is %t, want %t", name, tc.got, tc.want)
		}
	}
}
