package jobsetstatus_test

import (
	"strings"
	"testing"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// TestWithPruned: what a JobSet has lost is news once, and a JobSet that was refused because its rules are not known stays so.
func TestWithPruned(t *testing.T) {
	js := &jobsetapi.JobSet{}
	if all, news := jobsetstatus.WithPruned(js, nil, nil, false); len(all) > 0 || news != "" {
		t.Errorf("a JobSet that has lost nothing reports %v, and %q", all, news)
	}
	all, news := jobsetstatus.WithPruned(js, nil, []string{"spec.startupPolicy.rules", "spec.gangConfig"}, false)
	if len(all) != 1 || all[0].Reason != jobsetstatus.PrunedRecorded || !strings.HasPrefix(news, "spec.startupPolicy.rules, spec.gangConfig: lost") {
		t.Errorf("got %v, and %q", all, news)
	}
	js.Status.Conditions = all
	if _, again := jobsetstatus.WithPruned(js, nil, []string{"spec.startupPolicy.rules", "spec.gangConfig"}, false); again != "" {
		t.Errorf("it is news again: %q", again)
	}
	if jobsetstatus.HasUnknownRules(js) {
		t.Error("a JobSet with a record counts as one without")
	}
	js.Status.Conditions, news = jobsetstatus.WithPruned(js, nil, nil, true)
	if news != "" || !jobsetstatus.HasUnknownRules(js) {
		t.Errorf("a refused JobSet has %v, and reports %q", js.Status.Conditions, news)
	}
}
