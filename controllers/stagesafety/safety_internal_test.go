package stagesafety

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
)

func TestUnsafe(t *testing.T) {
	d := newDirect(t)
	safety := newSafety(d)
	first, firstPlan := d.submit(t, "first")
	second, plan := d.submit(t, "second")
	unsafe := func(want string) {
		t.Helper()
		why, err := safety.Unsafe(t.Context(), second, plan, "launcher")
		if err != nil || !strings.Contains(why, want) || (why == "") != (want == "") {
			t.Errorf("unsafe because of %q, %v, want %q", why, err, want)
		}
	}
	unsafe("")
	j := judge{runner: d}
	j.wantSafe(t, launcher(first, firstPlan))
	unsafe("could deadlock this JobSet and ns/first")
	second.Labels[apis.OwnQueueLabel] = "another"
	unsafe(`LocalQueue "another" does not exist in namespace "ns"`)
	if why, err := safety.Unsafe(t.Context(), second, plan, "no such stage"); err != nil || why == "" {
		t.Errorf("a stage that is not in the plan is safe: %v", err)
	}
}

func TestProtection(t *testing.T) {
	d := newDirect(t)
	safety := newSafety(d)
	js, _ := d.submit(t, "js")
	lacks := func(want string) {
		t.Helper()
		got, err := safety.Protection(t.Context(), js)
		if err != nil || !strings.Contains(got.Lacks, want) || (got.Lacks == "") != (want == "") {
			t.Errorf("lacks %q, %v, want %q", got.Lacks, err, want)
		}
	}
	lacks("")
	d.queue(&kueue.AdmissionChecksStrategy{})
	lacks("ClusterQueue q has no AdmissionCheck with controllerName tranche.dev/stage-safety")
}

// TestChanges has an event for each JobSet that the engine wakes, also for those that it wakes while others are being sent, and none for other owners.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDirect(t)
		safety := newSafety(d)
		first, firstPlan := d.submit(t, "first")
		second, plan := d.submit(t, "second")
		j := judge{runner: d}
		reserved := launcher(first, firstPlan)
		j.wantSafe(t, reserved)
		if why, err := safety.Unsafe(t.Context(), second, plan, "launcher"); err != nil || why == "" {
			t.Fatalf("unsafe because of %q, %v", why, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- safety.Start(ctx) }()
		next := func() types.NamespacedName {
			synctest.Wait()
			select {
			case event := <-safety.Changes():
				return client.ObjectKeyFromObject(event.Object)
			default:
				return types.NamespacedName{}
			}
		}
		d.wake()
		if got := next(); got.Name != "" {
			t.Errorf("%s is woken although nothing has changed", got)
		}
		if err := j.retract(t.Context(), reserved, nil); err != nil {
			t.Fatal(err)
		}
		d.wake()
		synctest.Wait()
		for _, owner := range []admission.Owner{
			{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: "later"}},
			{Kind: admission.GangOwner, Key: types.NamespacedName{Namespace: "ns", Name: "gang"}},
			{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: "last"}},
		} {
			d.woken(owner)
		}
		var got []string
		for key := next(); key.Name != ""; key = next() {
			got = append(got, key.Name)
		}
		if diff := cmp.Diff([]string{"second", "later", "last"}, got); diff != "" {
			t.Errorf("woken (-want +got):\n%s", diff)
		}
		d.woken(admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "ns", Name: "unread"}})
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
