package quotastep_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

func named(name string) *kueue.Workload {
	return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"name": name}}, Spec: kueue.WorkloadSpec{QueueName: "q", Priority: new(int32(1))}}
}

// The kinds are in the order in which they are asked for, and those of one kind in the order in which they were added.
func TestOf(t *testing.T) {
	var s quotastep.Step
	a, b := named("a"), named("b")
	s.Do(quotastep.Delete, b, a)
	s.Change(a, b)
	s.Change(a, nil)
	s.Progress(a, metav1.Condition{}, nil)
	s.Progress(a, metav1.Condition{}, &metav1.Condition{Reason: kueue.WorkloadFinishedReasonSucceeded})
	var got []string
	for _, write := range s.Of(quotastep.Progress, quotastep.Change, quotastep.Delete) {
		got = append(got, write.Kind.String()+" "+write.Workload.Name)
		if write.Kind == quotastep.Progress && !write.HasSucceeded {
			t.Error("the last report about a quota Workload counts")
		}
	}
	if diff := cmp.Diff([]string{"progress a", "change a", "delete b", "delete a"}, got); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
}

// A change is locked if it must not meet an admission for other pods, or another owner or gang.
func TestIsLocked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"a gate":      {func(w *kueue.Workload) { w.Annotations["gate"] = "x" }, false},
		"the queue":   {func(w *kueue.Workload) { w.Spec.QueueName = "other" }, false},
		"pod sets":    {func(w *kueue.Workload) { w.Spec.PodSets = []kueue.PodSet{{Count: 2}} }, true},
		"an owner":    {func(w *kueue.Workload) { w.OwnerReferences = []metav1.OwnerReference{{UID: "1"}} }, true},
		"another pod": {func(w *kueue.Workload) { w.Annotations[apis.PodGroupKey] = "pod" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			after := named("a")
			c.change(after)
			if got := (&quotastep.Write{Kind: quotastep.Change, Workload: named("a"), After: after}).IsLocked(); got != c.want {
				t.Errorf("IsLocked is %t, want %t", got, c.want)
			}
		})
	}
	if (&quotastep.Write{Kind: quotastep.Progress}).IsLocked() {
		t.Error("readiness is not written while others write the status")
	}
}

// A change that was computed from an older version keeps what others have changed since.
func TestResultOfChange(t *testing.T) {
	before, current := named("a"), named("a")
	before.Annotations["kept"], current.Annotations["kept"], current.Annotations["others"] = "old", "since", "since"
	current.Generation, current.Spec.Active, current.Spec.MaximumExecutionTimeSeconds = 4, new(false), new(int32(7))
	after := before.DeepCopy()
	after.Annotations, after.Labels = map[string]string{"kept": "old", "new": "1"}, map[string]string{"l": "1"}
	after.Spec.QueueName, after.Spec.Priority = "other", new(int32(2))
	want := current.DeepCopy()
	want.Annotations, want.Labels = map[string]string{"kept": "since", "others": "since", "new": "1"}, after.Labels
	want.Generation, want.Spec.QueueName, want.Spec.Priority = 5, "other", new(int32(2))
	got := (&quotastep.Write{Kind: quotastep.Change, Workload: before, After: after}).Result(current, time.Time{})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result differs (-want +got):\n%s", diff)
	}
}
