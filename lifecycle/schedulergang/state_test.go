package schedulergang_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// newStateOf returns the State of a JobSet with the given number of gangs of one pod.
func newStateOf(t *testing.T, gangs int32) *schedulergang.State {
	t.Helper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "js", UID: "0123456789ab"}}
	js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
	js.Spec.ReplicatedJobs[0].Name, js.Spec.ReplicatedJobs[0].Replicas = "main", gangs
	js.Spec.ReplicatedJobs[0].GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeReplicatedGang}
	return stateOf(t, js)
}

// newState returns the State of a JobSet with one gang of one pod.
func newState(t *testing.T, restarts int32) *schedulergang.State {
	t.Helper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "js", UID: "0123456789ab"}}
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
	js.Spec.ReplicatedJobs[0].Name, js.Spec.ReplicatedJobs[0].Replicas = "main", 1
	js.Status.Restarts = restarts
	return stateOf(t, js)
}

func stateOf(t *testing.T, js *jobsetapi.JobSet) *schedulergang.State {
	t.Helper()
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	provider := schedulergang.Kube{Version: schedulergang.V1alpha2}
	gangSet, err := schedulergang.New(js, plan, provider)
	if err != nil {
		t.Fatal(err)
	}
	state, err := schedulergang.NewState(gangSet, provider, len(plan.Stages))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func names(objects []*unstructured.Unstructured) string {
	var all []string
	for _, object := range objects {
		all = append(all, object.GetKind()+" "+object.GetName())
	}
	return strings.Join(all, ", ")
}

// TestState: the existing objects determine which objects are created, deleted or left alone.
func TestState(t *testing.T) {
	const both = "Workload js-gangs-0123456789ab, PodGroup js-all-r0-0123456789ab"
	set := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(object *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := map[string]struct {
		// of has the attempts of the existing objects; below zero means none. change modifies the PodGroup.
		of                                                 int32
		change                                             func(*unstructured.Unstructured)
		wantMissing, wantRecreated, wantStale, wantNotOurs string
	}{
		"nothing is there":  {of: -1, wantMissing: both},
		"all objects exist": {},
		"the API server has added defaults": {change: func(object *unstructured.Unstructured) {
			set("Pod", "spec", "disruptionMode")(object)
			object.Object["spec"].(map[string]any)["schedulingConstraints"] = nil
		}},
		"another number of pods": {
			change: set(int64(2), "spec", "schedulingPolicy", "gang", "minCount"), wantRecreated: "PodGroup js-all-r0-0123456789ab",
		},
		"no number of pods": {change: set(map[string]any{}, "spec", "schedulingPolicy"), wantRecreated: "PodGroup js-all-r0-0123456789ab"},
		"it is terminating": {
			change: set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"), wantRecreated: "PodGroup js-all-r0-0123456789ab",
		},
		"not created by Tranche": {
			change: func(object *unstructured.Unstructured) {
				object.SetOwnerReferences(nil)
				set(int64(2), "spec", "schedulingPolicy", "gang", "minCount")(object)
			},
			wantNotOurs: `PodGroup "js-all-r0-0123456789ab" was not created by Tranche, and stays unchanged`,
		},
		"an earlier attempt": {
			of: 4, wantMissing: "PodGroup js-all-r0-0123456789ab", wantStale: "PodGroup js-all-r4-0123456789ab",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			state := newState(t, 0)
			if c.of >= 0 {
				for _, object := range newState(t, c.of).Missing(0) {
					if object.GetKind() == "PodGroup" && c.change != nil {
						c.change(object)
					}
					state.Observe(object)
				}
			}
			got := []string{names(state.Missing(0)), names(state.ToRecreate(0)), names(state.Stale()), state.NotOurs()}
			if diff := cmp.Diff([]string{c.wantMissing, c.wantRecreated, c.wantStale, c.wantNotOurs}, got); diff != "" {
				t.Errorf("missing, to recreate, stale, not ours: -want +got\n%s", diff)
			}
		})
	}
}

// TestDriftedWorkload: the list of templates of a gang Workload is compared as a whole.
func TestDriftedWorkload(t *testing.T) {
	for name, templates := range map[string][]any{
		"none": {}, "one more": {map[string]any{"name": "all"}, map[string]any{"name": "more"}}, "another": {map[string]any{"name": "x"}},
	} {
		state := newState(t, 0)
		workload := state.Missing(0)[0].DeepCopy()
		if err := unstructured.SetNestedSlice(workload.Object, templates, "spec", "podGroupTemplates"); err != nil {
			t.Fatal(err)
		}
		state.Observe(workload)
		if got := names(state.ToRecreate(0)); got != "Workload js-gangs-0123456789ab" {
			t.Errorf("%s: wrong is %q", name, got)
		}
	}
}

// TestNoState: a JobSet without gangs needs nothing.
func TestNoState(t *testing.T) {
	var state *schedulergang.State
	if got := names(state.Missing(0)) + names(state.ToRecreate(0)) + names(state.Stale()); got != "" {
		t.Error(got)
	}
}

// TestStatusOf: the status of a gang is read from what different schedulers write.
func TestStatusOf(t *testing.T) {
	condition := func(kind, status, at, message string) any {
		return map[string]any{"type": kind, "status": status, "lastTransitionTime": at, "message": message}
	}
	const name = "js-all-r0-0123456789ab"
	cases := map[string]struct {
		there      bool
		minCount   int64
		conditions []any
		want       schedulergang.Status
	}{
		"nothing":      {},
		"nothing said": {there: true, minCount: 1, want: schedulergang.Status{Exists: true, Min: 1}},
		"another size": {there: true, minCount: 2, want: schedulergang.Status{Exists: true, Min: 2, Changed: true}},
		"placed":       {there: true, minCount: 1, conditions: []any{condition("PodGroupScheduled", "True", "", "")}, want: schedulergang.Status{Exists: true, Min: 1, Reports: true}},
		"not placed":   {there: true, minCount: 1, conditions: []any{condition("PodGroupScheduled", "False", "", "no room")}, want: schedulergang.Status{Exists: true, Min: 1, Reports: true, Unschedulable: "no room"}},
		"not in 1.37":  {there: true, minCount: 1, conditions: []any{condition("PodGroupInitiallyScheduled", "False", "", "no room")}, want: schedulergang.Status{Exists: true, Min: 1, Reports: true, Unschedulable: "no room"}},
		"not by Volcano": {
			there: true, minCount: 1, want: schedulergang.Status{Exists: true, Min: 1, Reports: true, Unschedulable: "no room"},
			conditions: []any{condition("Scheduled", "True", "2026-01-01T00:00:00Z", ""), condition("Unschedulable", "True", "2026-01-01T00:00:01Z", "no room")},
		},
		"by Volcano at last": {
			there: true, minCount: 1, want: schedulergang.Status{Exists: true, Min: 1, Reports: true},
			conditions: []any{condition("Unschedulable", "True", "2026-01-01T00:00:00Z", "no room"), condition("Scheduled", "True", "2026-01-01T00:00:01Z", "")},
		},
		"something else by that name": {there: true, minCount: 1, conditions: []any{"x", map[string]any{"type": int64(1)}}, want: schedulergang.Status{Exists: true, Min: 1}},
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			state := newState(t, 0)
			if got := state.ObjectOf("main", 0); got != name {
				t.Errorf("the pods go by %q", got)
			}
			if c.there {
				group := state.Missing(0)[1].DeepCopy()
				group.Object["status"] = map[string]any{"conditions": c.conditions}
				if err := unstructured.SetNestedField(group.Object, c.minCount, "spec", "schedulingPolicy", "gang", "minCount"); err != nil {
					t.Fatal(err)
				}
				state.Observe(group)
			}
			if diff := cmp.Diff(c.want, state.StatusOf(name)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestStatusOfCostIsConstant: the cost of the status of one gang does not depend on the number of other gangs, and the status contains nothing about
// them. One reconcile may ask for all gangs of a JobSet.
func TestStatusOfCostIsConstant(t *testing.T) {
	costs := func(gangs int32) float64 {
		state := newStateOf(t, gangs)
		for i, object := range state.Missing(0) {
			object = object.DeepCopy()
			if i%2 == 0 && object.GetKind() == "PodGroup" {
				if err := unstructured.SetNestedField(object.Object, int64(7), "spec", "schedulingPolicy", "gang", "minCount"); err != nil {
					t.Fatal(err)
				}
			}
			state.Observe(object)
		}
		first, second := state.ObjectOf("main", 0), state.ObjectOf("main", 1)
		if diff := cmp.Diff([]schedulergang.Status{{Exists: true, Min: 1}, {Exists: true, Min: 7, Changed: true}}, []schedulergang.Status{state.StatusOf(first), state.StatusOf(second)}); diff != "" {
			t.Errorf("of %d gangs: -want +got\n%s", gangs, diff)
		}
		return testing.AllocsPerRun(10, func() { state.StatusOf(first) })
	}
	if few, many := costs(2), costs(512); few != many {
		t.Errorf("%v allocations where there are 2 gangs, %v where there are 512", few, many)
	}
}

// TestDrifted: mutable fields, including annotations, are changed in place.
func TestDrifted(t *testing.T) {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "js", UID: "0123456789ab"}}
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
	js.Spec.ReplicatedJobs[0].Name, js.Spec.ReplicatedJobs[0].Replicas = "main", 1
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	gangSet, err := schedulergang.New(js, plan, schedulergang.Koordinator{})
	if err != nil {
		t.Fatal(err)
	}
	const mode = "gang.scheduling.koordinator.sh/mode"
	cases := map[string]struct {
		change func(*unstructured.Unstructured)
		want   bool
	}{
		"unchanged":          {func(*unstructured.Unstructured) {}, false},
		"one more":           {func(object *unstructured.Unstructured) { object.SetAnnotations(merged(object, "note", "x")) }, false},
		"another annotation": {func(object *unstructured.Unstructured) { object.SetAnnotations(merged(object, mode, "NonStrict")) }, true},
		"another number": {func(object *unstructured.Unstructured) {
			object.Object["spec"].(map[string]any)["minMember"] = int64(7)
		}, true},
		"not of the JobSet": {func(object *unstructured.Unstructured) {
			object.SetOwnerReferences(nil)
			object.SetAnnotations(nil)
		}, false},
		"terminating": {func(object *unstructured.Unstructured) {
			object.SetDeletionTimestamp(new(metav1.Now()))
			object.SetAnnotations(nil)
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			state, err := schedulergang.NewState(gangSet, schedulergang.Koordinator{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			group := state.Missing(0)[0].DeepCopy()
			group.SetUID("group")
			c.change(group)
			state.Observe(group)
			amiss := state.Drifted(0)
			if got := len(amiss) > 0; got != c.want {
				t.Fatalf("amiss: %v, want %t", amiss, c.want)
			}
			if len(amiss) == 0 {
				return
			}
			patch, err := amiss[0].Patch()
			if err != nil || !strings.Contains(string(patch), `"uid":"group"`) || !strings.Contains(string(patch), `"`+mode+`":"Strict"`) {
				t.Errorf("the patch is %s, %v", patch, err)
			}
			if wrong := names(state.ToRecreate(0)); wrong != "" {
				t.Errorf("%s is to be deleted", wrong)
			}
		})
	}
}

func merged(object *unstructured.Unstructured, key, value string) map[string]string {
	annotations := object.GetAnnotations()
	annotations[key] = value
	return annotations
}
