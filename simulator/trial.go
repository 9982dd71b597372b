package simulator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/limit"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Change is one thing that could happen: a running quota Workload succeeds, or a limit of a queue gets another value.
type Change struct {
	// Succeeds is the quota Workload that succeeds, or zero.
	Succeeds admission.StageKey
	// Limit is the limit that changes, if no quota Workload succeeds.
	Limit Limit
	// To is the new value of the limit.
	To resource.Quantity
}

// A Limit is a limit of a ClusterQueue or Cohort.
type Limit = limit.Limit

// A Running is a quota Workload that is admitted and runs, and what is released when it succeeds.
type Running struct {
	Workload      admission.StageKey
	JobSet, Stage string
	ClusterQueue  string
	Usage         map[quota.FlavorResource]resource.Quantity
	// End is when it ends at the latest if it has a limit, or about then if there is an estimate. It is zero if nothing is known.
	End time.Time
}

// A Laboratory tries changes on copies of the queues around one pending quota Workload of a snapshot.
type Laboratory struct {
	part      *snapshot.Snapshot
	durations *Durations
	target    admission.StageKey
	// settled are the same objects when all controllers have done what they had to do, and unchanged is what has become of the quota Workload then.
	settled   *snapshot.Snapshot
	unchanged TrialResult
	// ahead are the requests of the quota Workload and of those before it in its ClusterQueue.
	ahead corev1.ResourceList
}

// A TrialResult is what becomes of the quota Workload when some changes happen at the time of the snapshot, and nothing else: no other pod gets ready
// or ends. Pods that terminate do so at once, and AdmissionChecks pass.
type TrialResult struct {
	IsAdmitted bool
	// Evicts is how many quota Workloads the engine evicts.
	Evicts int
	// Explanation says why it still waits.
	Explanation visibility.Explanation
}

// NewLaboratory returns one for a quota Workload.
func NewLaboratory(s *snapshot.Snapshot, d *Durations, workload admission.StageKey) *Laboratory {
	return &Laboratory{part: Around(s, workload), durations: d, target: workload}
}

// ClusterQueue returns the ClusterQueue in which the quota Workload waits, or nil.
func (l *Laboratory) ClusterQueue() *kueue.ClusterQueue {
	i := slices.IndexFunc(l.part.Workloads, func(w *kueue.Workload) bool { return cluster.KeyOf(w) == l.target })
	if i < 0 {
		return nil
	}
	w := l.part.Workloads[i]
	for _, lq := range l.part.LocalQueues {
		if lq.Namespace != w.Namespace || lq.Name != string(w.Spec.QueueName) {
			continue
		}
		for _, cq := range l.part.ClusterQueues {
			if cq.Name == string(lq.Spec.ClusterQueue) {
				return cq
			}
		}
	}
	return nil
}

// Ahead returns what the quota Workload and those before it in its ClusterQueue request together. It is known after the first trial.
func (l *Laboratory) Ahead(name corev1.ResourceName) resource.Quantity { return l.ahead[name] }

// setAhead adds up the requests of the quota Workload and of those before it.
func (l *Laboratory) setAhead(t *forecast) {
	l.ahead = corev1.ResourceList{}
	target, _ := t.Engine.PendingStage(l.target)
	line, _ := t.Engine.PendingInClusterQueue(target.ClusterQueue, admission.Page{Limit: target.InClusterQueue + 1})
	for i := range line {
		w := t.Workloads[line[i].Stage]
		for k := range w.Spec.PodSets {
			for name, amount := range stageplan.PodRequests(&w.Spec.PodSets[k].Template.Spec) {
				sum := l.ahead[name]
				amount.Mul(int64(w.Spec.PodSets[k].Count))
				sum.Add(amount)
				l.ahead[name] = sum
			}
		}
	}
}

// Running returns the quota Workloads that run, in the order of the snapshot. A growth of a stage is not one of them: it ends with the stage.
func (l *Laboratory) Running() []Running {
	var all []Running
	for _, w := range l.part.Workloads {
		if !isAdmitted(w) || !cluster.IsEvictable(w) || !w.DeletionTimestamp.IsZero() || jobsetstate.GrowthNumber(w) > 0 {
			continue
		}
		all = append(all, Running{
			Workload: cluster.KeyOf(w), JobSet: w.Labels[apis.JobSetLabel], Stage: w.Labels[apis.StageLabel],
			ClusterQueue: string(w.Status.Admission.ClusterQueue), Usage: cluster.Usage(w), End: l.durations.EndOf(w, l.part.TakenAt),
		})
	}
	return all
}

// Value returns the value of a limit. ok is false if it is not set.
func (l *Laboratory) Value(of Limit) (value resource.Quantity, ok bool) {
	return of.Value(l.part)
}

// Try lets changes happen in a copy of the queues.
func (l *Laboratory) Try(changes ...Change) (TrialResult, error) {
	if l.settled == nil {
		settled, err := l.settle()
		if err != nil {
			return TrialResult{}, err
		}
		l.settled = settled
	}
	if len(changes) == 0 {
		return l.unchanged, nil
	}
	t, err := l.trial(with(l.settled, changes))
	if err != nil {
		return TrialResult{}, err
	}
	// Only objects that change have to be reconciled.
	clear(t.JobSetQueue.Changed)
	clear(t.WorkloadQueue.Changed)
	clear(t.JobQueue)
	return l.run(t, changes)
}

// settle lets all controllers do what they have to do without a change, and returns the objects that result.
func (l *Laboratory) settle() (*snapshot.Snapshot, error) {
	t, err := l.trial(l.part)
	if err != nil {
		return nil, err
	}
	if l.unchanged, err = l.run(t, nil); err != nil {
		return nil, err
	}
	l.setAhead(t)
	return settledOf(l.part, t), nil
}

// settledOf returns the objects of a simulation of a part of a snapshot.
func settledOf(part *snapshot.Snapshot, t *forecast) *snapshot.Snapshot {
	after := *part
	after.JobSets, after.Workloads, after.Jobs, after.Pods = nil, nil, nil, nil
	for _, key := range slices.SortedFunc(maps.Keys(t.JobSets), cluster.CompareKeys) {
		after.JobSets = append(after.JobSets, t.JobSets[key])
	}
	for _, key := range t.WorkloadKeys() {
		after.Workloads = append(after.Workloads, t.Workloads[key])
	}
	for _, uid := range slices.Sorted(maps.Keys(t.Jobs)) {
		after.Jobs = append(after.Jobs, t.Jobs[uid])
	}
	return &after
}

// trial returns a simulation in which nothing happens by itself.
func (l *Laboratory) trial(s *snapshot.Snapshot) (*forecast, error) {
	sim, _, err := fromSnapshot(s, 0)
	if err != nil {
		return nil, err
	}
	sim.IsQuiet, sim.IsSilent = true, true
	sim.Course = nothingHappens{}
	t := &forecast{simulation: sim, admitted: map[admission.StageKey]time.Duration{l.target: -1}, awaited: 1}
	t.watch()
	jobcontrollers.AnswerChecks(t.Cluster, 0)
	t.endTerminations()
	return t, nil
}

// run lets quota Workloads succeed, and returns what becomes of the target.
func (l *Laboratory) run(t *forecast, changes []Change) (TrialResult, error) {
	evicts := t.countEvictions()
	if err := t.resume(); err != nil {
		return TrialResult{}, err
	}
	for i := range changes {
		if changes[i].Succeeds.Name != "" {
			t.succeed(changes[i].Succeeds)
		}
	}
	if err := t.advance(0); err != nil {
		return TrialResult{}, fmt.Errorf("try changes for quota Workload %s: %w", l.target, err)
	}
	o := TrialResult{IsAdmitted: t.admitted[l.target] >= 0, Evicts: len(evicts)}
	if !o.IsAdmitted {
		o.Explanation, _ = t.Engine.Explanation(l.target)
	}
	return o, nil
}

// with returns objects with the changed limits.
func with(part *snapshot.Snapshot, changes []Change) *snapshot.Snapshot {
	for i := range changes {
		if c := &changes[i]; c.Succeeds.Name == "" {
			part = c.Limit.Set(part, c.To)
		}
	}
	return part
}

// nothingHappens is the course of pods of which none gets ready or ends.
type nothingHappens struct{}

// OfJob implements cluster.Course.
func (nothingHappens) OfJob(*cluster.UserJob, *batchv1.Job, time.Duration) cluster.Behavior {
	return cluster.Behavior{}
}

// OfPodSet implements cluster.Course.
func (nothingHappens) OfPodSet(*cluster.UserJob, string, time.Duration) cluster.Behavior {
	return cluster.Behavior{}
}

// countEvictions returns a set to which the quota Workloads will be added that are evicted from now on.
func (s *simulation) countEvictions() map[admission.StageKey]bool {
	before, since := map[admission.StageKey]bool{}, map[admission.StageKey]bool{}
	for key, w := range s.Workloads {
		before[key] = quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
	}
	observe := s.Observe
	s.Observe = func(event admission.Event) {
		if observed, is := event.(admission.WorkloadObserved); is {
			w := observed.Workload
			if key := cluster.KeyOf(w); !before[key] && quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadEvicted) {
				since[key] = true
			}
		}
		observe(event)
	}
	return since
}

// endTerminations lets pods that have been told to stop terminate at once.
func (s *simulation) endTerminations() {
	for _, p := range s.Pods {
		p.EndsAt = 0
	}
	for _, j := range s.PlainJobs {
		j.Plain.StopsAt = 0
	}
}

// succeed lets all pods of a quota Workload succeed.
func (s *simulation) succeed(key admission.StageKey) {
	w := s.Workloads[key]
	if w == nil {
		return
	}
	if j := s.PlainJobs[key]; j != nil && j.Plain.IsReleased {
		for _, pods := range j.Plain.Pods {
			pods.Set(true)
		}
		s.plainJobController.Reconcile(j)
		return
	}
	if job := s.Jobs[types.UID(w.Labels[apis.JobUIDLabel])]; job != nil {
		if childjob.IsRunning(job) && len(s.PodsOf(job).Batches) > 0 {
			s.jobController.Succeed(job)
		}
		return
	}
	for _, job := range s.JobsOf(types.UID(w.Labels[apis.JobUIDLabel])) {
		name := kueue.NewPodSetReference(jobsetstate.ReplicatedJobOf(job))
		isOf := slices.ContainsFunc(w.Spec.PodSets, func(p kueue.PodSet) bool { return p.Name == name })
		if p := s.PodsOf(job); isOf && childjob.IsRunning(job) && len(p.Batches) > 0 {
			s.jobController.Succeed(job)
		}
	}
}
