package cluster

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/checkpoint"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// PutPlan makes the engine observe the plan of a JobSet.
func (cl *Cluster) PutPlan(j *UserJob) {
	js := cl.JobSets[j.Key()]
	plan := j.PlanObserved(js)
	cl.Plans[js.UID] = plan
	cl.Observe(plan)
}

// PlanObserved returns the observation of the plan of a JobSet.
func (j *UserJob) PlanObserved(js *jobsetapi.JobSet) admission.PlanObserved {
	return admission.PlanObserved{
		Owner: admission.Owner{Kind: admission.JobSetOwner, Key: j.Key()}, UID: js.UID, Submitted: j.Created, StageAdmission: j.StageAdmission,
		CheckpointedAt: checkpoint.Of(js.Annotations), Plan: j.Plan,
	}
}

// Touch makes the controllers of JobSets reconcile the JobSet of this name.
func (cl *Cluster) Touch(namespace, name string) {
	cl.JobSetQueue.Add(types.NamespacedName{Namespace: namespace, Name: name})
}

// PutJobSet writes a JobSet. A write that changes nothing is not observed by anyone.
func (cl *Cluster) PutJobSet(js *jobsetapi.JobSet) {
	key := types.NamespacedName{Namespace: js.Namespace, Name: js.Name}
	if before := cl.JobSets[key]; before != nil && equality.Semantic.DeepEqual(before, js) {
		return
	}
	cl.remember(key, ObjectName{jobSetKind, js.Name}, Version{JobSet: cl.JobSets[key]})
	cl.Stamp(js)
	cl.JobSets[key] = js
	cl.Touch(js.Namespace, js.Name)
}

// DropJobSet removes a JobSet.
func (cl *Cluster) DropJobSet(js *jobsetapi.JobSet) {
	key := types.NamespacedName{Namespace: js.Namespace, Name: js.Name}
	cl.remember(key, ObjectName{jobSetKind, js.Name}, Version{JobSet: js})
	delete(cl.JobSets, key)
	delete(cl.Plans, js.UID)
	cl.Observe(admission.PlanGone{UID: js.UID})
	cl.Touch(js.Namespace, js.Name)
}
