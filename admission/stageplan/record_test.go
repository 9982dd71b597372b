package stageplan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// recorded returns a JobSet that the admission policies have changed when it was created: their annotations record its rules and gangs.
func recorded() *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.StartupRulesAnnotation: "prepare,fetch=Succeeded;cache=Ready"}}}
	for _, name := range []string{"prepare", "fetch", "cache", "train"} {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: name, Replicas: 1}})
	}
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobset.InOrder, Rules: []jobsetapi.StartupPolicyRule{
		{TargetReplicatedJobs: []string{"prepare", "fetch"}, WaitForReplicatedJobsStatus: jobsetapi.SucceededStatus},
		{TargetReplicatedJobs: []string{"cache"}, WaitForReplicatedJobsStatus: jobsetapi.ReadyStatus},
	}}
	js.Spec.ReplicatedJobs[2].GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	js.Spec.ReplicatedJobs[2].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "2"}
	js.Spec.ReplicatedJobs[3].GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeReplicatedGang}
	js.Spec.ReplicatedJobs[3].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "3x"}
	return js
}

// prune drops the fields of Tranche, as the API server does with the JobSet project's CRD.
func prune(js *jobsetapi.JobSet) *jobsetapi.JobSet {
	pruned := js.DeepCopy()
	pruned.Spec.GangConfig, pruned.Spec.GroupSchedulingConfig = nil, nil
	if pruned.Spec.StartupPolicy != nil {
		pruned.Spec.StartupPolicy.Rules = nil
	}
	for i := range pruned.Spec.ReplicatedJobs {
		pruned.Spec.ReplicatedJobs[i].GangConfig = nil
	}
	return pruned
}

// TestRestored: a JobSet that was pruned is the same again, and one that was not stays as it is.
func TestRestored(t *testing.T) {
	whole := recorded()
	whole.Annotations, whole.Spec.StartupPolicy.Rules, whole.Spec.GangConfig = nil, nil, &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	for i := range whole.Spec.ReplicatedJobs {
		whole.Spec.ReplicatedJobs[i].GangConfig, whole.Spec.ReplicatedJobs[i].Template.Annotations = nil, map[string]string{apis.GangGroupAnnotation: "all"}
	}
	annotated := prune(recorded())
	annotated.Annotations[apis.StartupRulesAnnotation] = ""
	annotated.Spec.ReplicatedJobs[2].Template.Annotations[apis.GangAnnotation] = "Gang"
	annotated.Spec.ReplicatedJobs[3].Template.Annotations[apis.GangAnnotation] = "ReplicatedGang"
	mixed := recorded()
	mixed.Spec.ReplicatedJobs[2].GangConfig = nil
	mixed.Spec.ReplicatedJobs[2].Template.Annotations[apis.GangAnnotation] = "Gang"
	wholeByAnnotation := prune(whole)
	wholeByAnnotation.Annotations = map[string]string{apis.GangAnnotation: "Gang"}
	for name, tc := range map[string]struct {
		given, want *jobsetapi.JobSet
		lost        []string
	}{
		"a gang by an annotation, and one by the field": {
			given: prune(mixed), want: mixed, lost: []string{"spec.startupPolicy.rules", "spec.replicatedJobs[3].gangConfig"},
		},
		"one gang by an annotation": {given: wholeByAnnotation, want: wholeByAnnotation},
		"rules and gangs of ReplicatedJobs": {
			given: prune(recorded()), want: recorded(),
			lost: []string{"spec.startupPolicy.rules", "spec.replicatedJobs[2].gangConfig", "spec.replicatedJobs[3].gangConfig"},
		},
		"one gang":                             {given: prune(whole), want: whole, lost: []string{"spec.gangConfig"}},
		"nothing is lost":                      {given: recorded(), want: recorded()},
		"gangs of a cluster without the field": {given: annotated, want: annotated},
		"no record":                            {given: &jobsetapi.JobSet{}, want: &jobsetapi.JobSet{}},
		"a record of a JobSet that is not InOrder": {given: &jobsetapi.JobSet{ObjectMeta: recorded().ObjectMeta}, want: &jobsetapi.JobSet{ObjectMeta: recorded().ObjectMeta}},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.given.DeepCopy()
			got, lost := stageplan.Restored(tc.given)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("restored (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.lost, lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.given); diff != "" {
				t.Errorf("the JobSet has changed (-want +got):\n%s", diff)
			}
			if record := stageplan.RulesRecord(&got.Spec); record != "" && record != recorded().Annotations[apis.StartupRulesAnnotation] {
				t.Errorf("the record is %q", record)
			}
		})
	}
}

// TestRestoredOrder: the plan of a pruned JobSet is that of the JobSet that was created. Without the record, train would start beside fetch.
func TestRestoredOrder(t *testing.T) {
	restored, _ := stageplan.Restored(prune(recorded()))
	want, err := stageplan.New(&recorded().Spec)
	if err != nil {
		t.Fatal(err)
	}
	got, err := stageplan.New(&restored.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), got.String()); diff != "" {
		t.Errorf("the plan differs (-want +got):\n%s", diff)
	}
}

// TestMayLackRules: only the order of a JobSet with startupPolicyOrder InOrder depends on rules.
func TestMayLackRules(t *testing.T) {
	anyOrder, single := prune(recorded()), prune(recorded())
	anyOrder.Spec.StartupPolicy = nil
	single.Spec.ReplicatedJobs = single.Spec.ReplicatedJobs[:1]
	for name, tc := range map[string]struct {
		js   *jobsetapi.JobSet
		want bool
	}{
		"without rules": {prune(recorded()), true}, "with rules": {recorded(), false}, "in any order": {anyOrder, false}, "one ReplicatedJob": {single, false},
	} {
		if got := stageplan.MayLackRules(tc.js); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
