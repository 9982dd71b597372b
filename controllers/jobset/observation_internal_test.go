package jobset

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

func TestObservation(t *testing.T) {
	submitted := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "train", UID: "uid", CreationTimestamp: metav1.NewTime(submitted),
		Annotations: map[string]string{apis.StageAdmissionAnnotation: "Reserve", apis.CheckpointedAtAnnotation: "2026-01-02T15:04:05Z"},
	}}
	plan := &stageplan.Plan{}
	want := admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: types.NamespacedName{Namespace: "team", Name: "train"}}, UID: "uid", Submitted: submitted,
		StageAdmission: "Reserve", CheckpointedAt: submitted.Add(4*time.Minute + 5*time.Second), Plan: plan,
	}
	if diff := cmp.Diff(want, observation(js, plan)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
