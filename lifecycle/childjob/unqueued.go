package childjob

import (
	"slices"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// AreUnqueued reports whether the Jobs of a JobSet are held although it has no queue: for their order, their gangs or their groups. The
// admission policies decide that when the JobSet is created.
func AreUnqueued(js *jobsetapi.JobSet) bool {
	isOther := func(r jobsetapi.ReplicatedJob) bool { return r.Template.Labels[apis.HoldLabel] != apis.HoldUnqueued }
	return apis.QueueNameOf(js.Labels) == "" && len(js.Spec.ReplicatedJobs) > 0 && !slices.ContainsFunc(js.Spec.ReplicatedJobs, isOther)
}
