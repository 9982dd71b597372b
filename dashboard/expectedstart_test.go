package dashboard_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// expect writes an expected start to a JobSet, as the manager does.
func expect(js *jobsetapi.JobSet, e jobsetstatus.ExpectedStart) *jobsetapi.JobSet {
	e.Computed = at(5)
	js.Status.Conditions = append(js.Status.Conditions, e.Condition(js))
	return js
}

// A line shows the expected start of the stage about which the manager has written, and of no other.
func TestExpectedStartsOfALine(t *testing.T) {
	by := jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartBy, By: at(90), About: at(60)}
	forged := jobSet("team", "forged", "train")
	forged.Status.Conditions = []metav1.Condition{condition(jobsetstatus.StartExpected, metav1.ConditionTrue, "By", 1)}
	about := expect(jobSet("team", "about", "main"), jobsetstatus.ExpectedStart{Stage: "main", Certainty: jobsetstatus.StartAbout, About: at(30)})
	whole := stageWorkload(about, "main")
	delete(whole.Labels, apis.StageLabel) // the quota Workload of a JobSet of one stage
	both := expect(jobSet("team", "both", "train", "check"), by)
	growth := stageWorkload(both, "train")
	growth.Name, growth.UID, growth.Labels[apis.GrowthLabel] = "growth", "growth", "1"
	unknown := expect(jobSet("team", "unknown", "train"), jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartUnknown, Basis: "JobSet other has no limit"})
	m := dashboard.New()
	for _, object := range []metav1.Object{
		clusterQueue("q", "", "1"), localQueue("team", "lq", "q"), forged, stageWorkload(forged, "train"), about, whole, both,
		stageWorkload(both, "train"), stageWorkload(both, "check"), growth, unknown, stageWorkload(unknown, "train"), workload("team", "plain", "lq"),
	} {
		m.Observe(object)
	}
	starts := func() map[string]*dashboard.StartAnswer {
		found := map[string]*dashboard.StartAnswer{}
		page, _ := m.Workloads(dashboard.Viewer{}, "q", dashboard.WorkloadFilter{}, dashboard.Window{})
		for i := range page.Items {
			found[page.Items[i].Name] = page.Items[i].ExpectedStart
		}
		return found
	}
	want := map[string]*dashboard.StartAnswer{
		"forged-train": nil, "both-check": nil, "growth": nil, "plain": nil,
		"about-main":    {Certainty: jobsetstatus.StartAbout, About: at(30)},
		"both-train":    {Certainty: jobsetstatus.StartBy, By: at(90), About: at(60)},
		"unknown-train": {Certainty: jobsetstatus.StartUnknown},
	}
	if diff := cmp.Diff(want, starts()); diff != "" {
		t.Error(diff)
	}
	rows := map[string]*dashboard.StartAnswer{}
	for _, row := range m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}).Items {
		rows[row.Name] = row.ExpectedStart
	}
	if diff := cmp.Diff(map[string]*dashboard.StartAnswer{"forged": nil, "about": want["about-main"], "both": want["both-train"], "unknown": want["unknown-train"]}, rows); diff != "" {
		t.Errorf("JobSets: %s", diff)
	}
	both.Status.Conditions = nil
	m.Observe(both)
	m.Forget(about)
	if got := starts(); got["both-train"] != nil || got["about-main"] != nil {
		t.Errorf("starts that are no longer written: %v", got)
	}
}

// The view of a JobSet has the basis, too, and nothing about a stage that has started since.
func TestExpectedStartOfAStage(t *testing.T) {
	js := expect(jobSet("team", "js", "load", "train"), jobsetstatus.ExpectedStart{Stage: "train", Certainty: jobsetstatus.StartAbout, About: at(60), Basis: "from the last 3 runs of js"})
	answer := func(w *kueue.Workload) dashboard.JobSetAnswer {
		return dashboard.New().JobSet(dashboard.Viewer{}, &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{w}}, at(10))
	}
	want := &dashboard.StartAnswer{Certainty: jobsetstatus.StartAbout, About: at(60), Basis: "from the last 3 runs of js", Computed: at(5)}
	waiting := answer(stageWorkload(js, "train"))
	if diff := cmp.Diff(want, waiting.Stages[1].ExpectedStart); diff != "" || waiting.Stages[0].ExpectedStart != nil {
		t.Errorf("%s; the other stage: %v", diff, waiting.Stages[0].ExpectedStart)
	}
	started := answer(stageWorkload(js, "train", condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", 7)))
	if got := started.Stages[1].ExpectedStart; got != nil {
		t.Errorf("a stage that holds quota is expected to start: %v", got)
	}
}
