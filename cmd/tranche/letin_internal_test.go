package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	model "github.com/tranche-dev/tranche/dashboard"
)

// TestChanges: the bare text of a change has no name of a ClusterQueue or a Cohort.
func TestChanges(t *testing.T) {
	got := changesOf(&explain.Set{
		Ends: []explain.End{
			{Namespace: "ml", Name: "jobset-a-0-train", JobSet: "a", Stage: "train", ClusterQueue: "gpus", ExpectedBy: new(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))},
			{Namespace: "ml", Name: "alone", ClusterQueue: "gpus"},
		},
		Raises: []explain.Raise{{
			Kind: visibilityapi.Cohort, Name: "all", Flavor: "h100", Resource: "cpu", Limit: visibilityapi.NominalQuota,
			From: resource.MustParse("4"), To: resource.MustParse("5"),
		}},
		Evicts: 2,
	})
	gpus := visibilityapi.Constraint{Kind: visibilityapi.ClusterQueue, Name: "gpus"}
	want := model.ChangeSet{Evicts: 2, Changes: []model.Change{
		{
			Text: "stage train of JobSet ml/a ends (in ClusterQueue gpus, expected by 2026-01-01 12:00:00Z)", Bare: "stage train of JobSet ml/a ends",
			Namespace: "ml", Node: gpus,
		},
		{Text: "Workload ml/alone ends (in ClusterQueue gpus)", Bare: "Workload ml/alone ends", Namespace: "ml", Node: gpus},
		{
			Text: "raise nominalQuota of cpu of flavor h100 in Cohort all, from 4 to 5", Bare: "raise nominalQuota of cpu of flavor h100 in a Cohort that you may not read, from 4 to 5",
			Node: visibilityapi.Constraint{Kind: visibilityapi.Cohort, Name: "all"},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
