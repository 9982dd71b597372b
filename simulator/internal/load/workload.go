package load

import (
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// addWorkload adds a quota Workload. One that belongs to no JobSet or queued Job, such as that of a gang of pods, is that of a job of its own.
func (l *loader) addWorkload(w *kueue.Workload) {
	key := cluster.KeyOf(w)
	l.Workloads[key] = w
	l.WorkloadQueue.Add(key)
	name := w.Labels[apis.JobSetLabel]
	if l.OwnerOf(w) != nil && name == "" {
		l.IndexWorkload(w)
		return
	}
	if name == "" {
		l.PlainJobs[key] = l.plainJob(w)
		l.JobSetQueue.Add(key)
		return
	}
	js := types.NamespacedName{Namespace: w.Namespace, Name: name}
	l.needOwner(js)
	l.IndexWorkload(w)
	l.JobSetQueue.Add(js)
}

// plainJob returns a job that is in the state of its quota Workload.
func (l *loader) plainJob(w *kueue.Workload) *cluster.UserJob {
	stage := stageplan.Stage{Name: w.Name}
	for i := range w.Spec.PodSets {
		p := &w.Spec.PodSets[i]
		stage.ReplicatedJobs = append(stage.ReplicatedJobs, string(p.Name))
		stage.PodSets = append(stage.PodSets, stageplan.PodSet{
			Name: string(p.Name), Count: p.Count, Requests: stageplan.PodRequests(&p.Template.Spec), Template: &p.Template,
		})
	}
	gates := quotaworkload.Gates(w)
	holds, isEvicted := quotaworkload.HoldsQuota(w), quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
	plain := &cluster.PlainJob{
		Gates:       slices.DeleteFunc(slices.Clone(gates), func(gate string) bool { return gate == apis.SuspendedGate }),
		IsSuspended: slices.Contains(gates, apis.SuspendedGate),
		HasEnded:    cluster.IsFinished(w),
		StopsAt:     l.stopAfter,
		Pods:        map[string]*cluster.PodSet{},
	}
	stops := isEvicted || !w.DeletionTimestamp.IsZero() || plain.IsSuspended
	plain.IsStopping = holds && !plain.HasEnded && stops
	plain.IsReleased = holds && !plain.HasEnded && !stops && len(gates) == 0 && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted)
	if plain.IsReleased {
		started := l.since(&apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted).LastTransitionTime)
		isReady := quotaworkload.IsTrue(w, kueue.WorkloadPodsReady)
		for i := range stage.PodSets {
			plain.Pods[stage.ReplicatedJobs[i]] = &cluster.PodSet{Batches: []*cluster.Batch{{Count: stage.PodSets[i].Count, IsReady: isReady, Started: started}}}
		}
	}
	return &cluster.UserJob{
		Submission: &scenario.Submission{
			Name: w.Name, Namespace: w.Namespace, Queue: string(w.Spec.QueueName), Plan: &stageplan.Plan{Stages: []stageplan.Stage{stage}},
			Priority: ptr.Deref(w.Spec.Priority, 0), Gates: plain.Gates, MaxSeconds: w.Spec.MaximumExecutionTimeSeconds, StopAfter: l.stopAfter,
		},
		PriorityClass: w.Spec.PriorityClassRef, Created: w.CreationTimestamp.Time, IsDeleted: !w.DeletionTimestamp.IsZero(), Plain: plain,
	}
}

// addGangPlans adds the plans of the gangs of pods that gather their quota in parts.
func (l *loader) addGangPlans() {
	gangs := map[string][]*kueue.Workload{}
	for _, w := range l.snapshot.Workloads {
		if w.Labels[apis.PlanUIDLabel] != "" && w.Labels[apis.JobSetLabel] == "" {
			gang := w.Namespace + "/" + gangOf(w)
			gangs[gang] = append(gangs[gang], w)
		}
	}
	for _, workloads := range gangs {
		plan := podgang.PlanOf(workloads)
		if plan.UID == "" {
			continue
		}
		l.Plans[plan.UID] = admission.PlanObserved{
			Owner: admission.Owner{Kind: admission.GangOwner, Key: types.NamespacedName{Namespace: workloads[0].Namespace, Name: gangOf(workloads[0])}},
			UID:   plan.UID, Submitted: plan.Submitted, StageAdmission: admission.Safe, Plan: plan.Stages,
		}
	}
}

// gangOf returns the name of the gang of pods to which a quota Workload belongs.
func gangOf(w *kueue.Workload) string {
	if _, name, found := strings.Cut(w.Annotations[apis.PodGroupKey], "."); found {
		return name
	}
	if owner := metav1.GetControllerOfNoCopy(w); owner != nil {
		return owner.Name
	}
	return w.Name
}
