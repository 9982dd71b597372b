package podgang

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
)

// A Plan is how the engine sees a gang that gathers its quota: its parts are stages that are all open from the beginning, and hold quota until
// all of them do. So a part is only admitted if the gangs that hold parts can all get the rest, one after the other.
type Plan struct {
	// UID is empty if there are no parts.
	UID       types.UID
	Submitted time.Time
	Stages    *stageplan.Plan
}

// PlanOf returns the plan of the parts among some quota Workloads of one gang, both existing ones and those to be created. If some are left of an
// earlier plan, the newest plan counts.
func PlanOf(workloads []*kueue.Workload) Plan {
	parts := slices.DeleteFunc(slices.Clone(workloads), func(w *kueue.Workload) bool { return !isPart(w) || !w.DeletionTimestamp.IsZero() })
	if len(parts) == 0 {
		return Plan{}
	}
	slices.SortFunc(parts, func(a, b *kueue.Workload) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID)) })
	plan := Plan{UID: types.UID(parts[len(parts)-1].Labels[apis.PlanUIDLabel]), Stages: &stageplan.Plan{}}
	for _, w := range parts {
		if created := w.CreationTimestamp.Time; !created.IsZero() && (plan.Submitted.IsZero() || created.Before(plan.Submitted)) {
			plan.Submitted = created
		}
		if w.Labels[apis.PlanUIDLabel] == string(plan.UID) {
			plan.Stages.Stages = append(plan.Stages.Stages, stageOf(w, len(plan.Stages.Stages)))
		}
	}
	return plan
}

func stageOf(w *kueue.Workload, index int) stageplan.Stage {
	stage := stageplan.Stage{Name: fmt.Sprintf("part-%02d", index)}
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		stage.PodSets = append(stage.PodSets, stageplan.PodSet{
			Name: string(p.Name), Count: p.Count, Requests: stageplan.PodRequests(&p.Template.Spec), Template: &p.Template,
		})
	}
	return stage
}
