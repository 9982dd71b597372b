package stages

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
)

func TestMisuse(t *testing.T) {
	cases := map[string]struct {
		change func(*jobsetapi.JobSet)
		want   string
	}{
		"queued and held":                 {func(*jobsetapi.JobSet) {}, ""},
		"no queue":                        {func(js *jobsetapi.JobSet) { js.Labels = nil }, apis.QueueLabel},
		"no queue's name":                 {func(js *jobsetapi.JobSet) { js.Labels[apis.QueueLabel] = "Team_A" }, "Team_A"},
		"a queue in the label of Tranche": {func(js *jobsetapi.JobSet) { js.Labels = map[string]string{apis.OwnQueueLabel: "queue"} }, ""},
		"the same queue in both labels":   {func(js *jobsetapi.JobSet) { js.Labels[apis.OwnQueueLabel] = "queue" }, ""},
		"different queues in the labels":  {func(js *jobsetapi.JobSet) { js.Labels[apis.OwnQueueLabel] = "other" }, "remove one of them"},
		"another controller":              {func(js *jobsetapi.JobSet) { js.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }, "spec.managedBy"},
		"in-place restarts": {
			func(js *jobsetapi.JobSet) {
				js.Spec.FailurePolicy = &jobset.FailurePolicy{RestartStrategy: jobset.InPlaceRestart}
			}, "restartStrategy",
		},
		"in-place restarts of one stage": {func(js *jobsetapi.JobSet) {
			js.Spec.FailurePolicy, js.Spec.StartupPolicy = &jobset.FailurePolicy{RestartStrategy: jobset.InPlaceRestart}, nil
		}, ""},
		"not held":             {func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[1].Template.Labels = nil }, "spec.replicatedJobs[1].template.metadata.labels"},
		"the stock controller": {func(js *jobsetapi.JobSet) { js.Spec.ManagedBy = ptr.To(jobset.JobSetControllerName) }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			js := world{}.build(t).JobSet
			for i := range js.Spec.ReplicatedJobs {
				js.Spec.ReplicatedJobs[i].Template.Labels = map[string]string{apis.HoldLabel: apis.HoldValue}
			}
			c.change(js)
			got := jobsetstate.Misuse(js)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("misuse = %q, want something about %q", got, c.want)
			}
		})
	}
}
