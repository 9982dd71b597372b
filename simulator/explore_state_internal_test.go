package simulator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
	"github.com/tranche-dev/tranche/simulator/internal/timeline"
)

// This file copies simulations, and describes their states.

// copied returns a copy of a simulation that has not created an engine yet. Written objects are never changed, so that copies share them.
func (s *simulation) copied() *simulation {
	o := *s.Cluster
	o.Timeline = &timeline.Timeline{Now: s.Now}
	o.Namespaces, o.Flavors, o.AdmissionChecks = maps.Clone(o.Namespaces), maps.Clone(o.Flavors), maps.Clone(o.AdmissionChecks)
	o.PriorityClasses, o.Cohorts, o.ClusterQueues, o.Plans = maps.Clone(o.PriorityClasses), maps.Clone(o.Cohorts), maps.Clone(o.ClusterQueues), maps.Clone(o.Plans)
	o.Workloads, o.JobSets, o.Jobs, o.JobQueue = maps.Clone(o.Workloads), maps.Clone(o.JobSets), maps.Clone(o.Jobs), maps.Clone(o.JobQueue)
	o.LocalQueues = map[types.NamespacedName]*kueue.LocalQueue{}
	for key, queue := range s.LocalQueues {
		o.LocalQueues[key] = queue.DeepCopy()
	}
	o.JobsByJobSet = map[types.UID][]types.UID{}
	o.JobsByName = maps.Clone(s.JobsByName)
	for uid, jobs := range s.JobsByJobSet {
		o.JobsByJobSet[uid] = slices.Clone(jobs)
	}
	o.UserJobs = map[types.NamespacedName]*cluster.UserJob{}
	for name, j := range s.UserJobs {
		one := *j
		o.UserJobs[name] = &one
	}
	o.PlainJobs = map[types.NamespacedName]*cluster.UserJob{}
	for name, j := range s.PlainJobs {
		o.PlainJobs[name] = copiedPlain(j)
	}
	o.WorkloadQueue = cluster.WorkQueue{Changed: maps.Clone(s.WorkloadQueue.Changed), Awaited: maps.Clone(s.WorkloadQueue.Awaited)}
	o.JobSetQueue = cluster.WorkQueue{Changed: maps.Clone(s.JobSetQueue.Changed), Awaited: maps.Clone(s.JobSetQueue.Awaited)}
	o.WorkloadsByJobSet = map[types.NamespacedName][]admission.StageKey{}
	for key, workloads := range s.WorkloadsByJobSet {
		o.WorkloadsByJobSet[key] = slices.Clone(workloads)
	}
	o.Previous = maps.Clone(s.Previous)
	for key, objects := range s.Previous {
		o.Previous[key] = maps.Clone(objects)
	}
	m := manager.New(&o)
	m.Config, m.Writes, m.DiesAfter, m.Failing = s.Config, s.Writes, s.DiesAfter, slices.Clone(s.Failing)
	m.Calls, m.IsRecorded = slices.Clip(s.Calls), s.IsRecorded
	c := simulate(m)
	c.hasRun, c.isStuck = s.hasRun, s.isStuck
	c.copyPods(s)
	return c
}

// copyPods copies the pods, and plans again when those that terminate do so. Nothing else is planned in a small world.
func (s *simulation) copyPods(from *simulation) {
	s.Pods, s.Events = map[types.UID]*cluster.PodSet{}, timeline.EventQueue{}
	for _, uid := range slices.Sorted(maps.Keys(from.Pods)) {
		p := *from.Pods[uid]
		p.Batches = nil
		for _, b := range from.Pods[uid].Batches {
			one := *b
			p.Batches = append(p.Batches, &one)
		}
		s.Pods[uid] = &p
		if job := s.Jobs[uid]; p.Terminating > 0 && job != nil {
			s.PlanTermination(&p, func() { s.PodsChanged(job) })
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.PlainJobs), cluster.CompareKeys) {
		s.plainJobController.Continue(s.PlainJobs[key])
	}
}

// copiedPlain returns a copy of a job that is no JobSet.
func copiedPlain(j *cluster.UserJob) *cluster.UserJob {
	one, plain := *j, *j.Plain
	one.Plain, plain.Pods = &plain, map[string]*cluster.PodSet{}
	for name, from := range j.Plain.Pods {
		p := *from
		p.Batches = nil
		for _, b := range from.Batches {
			batch := *b
			p.Batches = append(p.Batches, &batch)
		}
		plain.Pods[name] = &p
	}
	return &one
}

// revive creates the engine of a copy, in the state of the original.
func (s *simulation) revive() error {
	engine, err := admission.New(s.Config.Config)
	if err != nil {
		return err
	}
	s.Engine = engine
	for _, call := range s.Calls {
		call(engine)
	}
	return nil
}

// state describes everything that may influence what follows, without times, UIDs, versions and messages. Of the engine it has the
// observable part: the charges and the pending stages in their order.
func (s *simulation) state() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.ClusterQueues)) {
		q := s.ClusterQueues[name]
		text, _ := json.Marshal(q.Spec.ResourceGroups)
		view, _ := s.Engine.ClusterQueue(name)
		held, _ := json.Marshal(view.FlavorsHeld)
		fmt.Fprintf(&b, "queue %s %s %s held %s pending", name, q.Spec.CohortName, text, held)
		pending, _ := s.Engine.PendingInClusterQueue(name, admission.Page{Limit: 100})
		for i := range pending {
			b.WriteString(" " + pending[i].Stage.Name)
		}
		b.WriteString("\n")
	}
	s.stateOfJobSets(&b)
	s.stateOfPlainJobs(&b)
	for _, key := range s.WorkloadKeys() {
		s.stateOfWorkload(&b, s.Workloads[key])
	}
	for _, uid := range slices.Sorted(maps.Keys(s.JobsByJobSet)) {
		for _, job := range s.JobsOf(uid) {
			s.stateOfJob(&b, job)
		}
	}
	s.stateOfWork(&b)
	return b.String()
}

func (s *simulation) stateOfJobSets(b *strings.Builder) {
	all := slices.SortedFunc(maps.Values(s.UserJobs), func(a, b *cluster.UserJob) int { return cmp.Compare(a.Name, b.Name) })
	for _, j := range all {
		js := s.JobSets[j.Key()]
		if js == nil {
			fmt.Fprintf(b, "jobset %s deleted\n", j.Name)
			continue
		}
		stateOfJobSet(b, js)
		b.WriteString(" older")
		for _, other := range all {
			if o := s.JobSets[other.Key()]; o != nil && o.UID < js.UID {
				b.WriteString(" " + other.Name)
			}
		}
		b.WriteString("\n")
	}
}

func (s *simulation) stateOfPlainJobs(b *strings.Builder) {
	for _, key := range slices.SortedFunc(maps.Keys(s.PlainJobs), cluster.CompareKeys) {
		j := s.PlainJobs[key]
		p := j.Plain
		fmt.Fprintf(b, "job %s deleted=%t suspended=%t released=%t ended=%t", key.Name, j.IsDeleted, p.IsSuspended, p.IsReleased, p.HasEnded)
		if p.IsStopping || p.HasEnded {
			fmt.Fprintf(b, " stops in %s", max(0, p.StopsAt-s.Now))
		}
		for _, name := range slices.Sorted(maps.Keys(p.Pods)) {
			for _, batch := range p.Pods[name].Batches {
				fmt.Fprintf(b, " {%d %t %t}", batch.Count, batch.IsReady, batch.HasSucceeded)
			}
		}
		b.WriteString("\n")
	}
}

func stateOfJobSet(b *strings.Builder, js *jobsetapi.JobSet) {
	annotations := maps.Clone(js.Annotations)
	delete(annotations, apis.TimelineAnnotation)
	fmt.Fprintf(b, "jobset %s suspend=%t restarts=%d %s %v %s", js.Name, *js.Spec.Suspend, js.Status.Restarts, js.Status.TerminalState,
		annotations, conditionsOf(js.Status.Conditions))
	for i := range js.Spec.ReplicatedJobs {
		fmt.Fprintf(b, " pods=%d", *js.Spec.ReplicatedJobs[i].Template.Spec.Parallelism)
	}
}

// messagesOf describes what the state of a JobSet omits of its conditions. The manager writes them again if their messages differ, or if they were
// written for another spec.
func messagesOf(b *strings.Builder, js *jobsetapi.JobSet) {
	for i := range js.Status.Conditions {
		c := &js.Status.Conditions[i]
		fmt.Fprintf(b, " %t %s", c.ObservedGeneration == js.Generation, c.Message)
	}
}

// stateOfCaches describes the previous versions that a reconcile may still read.
func (s *simulation) stateOfCaches(b *strings.Builder) {
	for _, key := range slices.SortedFunc(maps.Keys(s.Previous), cluster.CompareKeys) {
		for _, name := range s.Changed(key) {
			fmt.Fprintf(b, "\nprevious %s of %s: ", name, key.Name)
			switch v := s.Previous[key][name]; {
			case v.JobSet != nil:
				stateOfJobSet(b, v.JobSet)
				messagesOf(b, v.JobSet)
			case v.Workload != nil:
				s.stateOfWorkload(b, v.Workload)
			case v.Job != nil:
				s.stateOfJob(b, v.Job)
			}
		}
	}
}

func conditionsOf(conditions []metav1.Condition) string {
	words := make([]string, len(conditions))
	for i := range conditions {
		words[i] = conditions[i].Type + "=" + string(conditions[i].Status) + "/" + conditions[i].Reason
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (s *simulation) stateOfWorkload(b *strings.Builder, w *kueue.Workload) {
	fmt.Fprintf(b, "workload %s owner=%t deleted=%t %v active=%t queue=%s priority=%d pods=%s", w.Name, s.isOwned(w.Namespace, w.Labels[apis.JobSetLabel], w.Labels[apis.JobUIDLabel]),
		!w.DeletionTimestamp.IsZero(), w.Finalizers, w.Spec.Active == nil || *w.Spec.Active, w.Spec.QueueName, *w.Spec.Priority, cluster.Counts(w.Spec.PodSets))
	fmt.Fprintf(b, " %v %s reclaim=%v", w.Annotations, conditionsOf(w.Status.Conditions), w.Status.ReclaimablePods)
	if w.Status.RequeueState != nil && w.Status.RequeueState.Count != nil {
		fmt.Fprintf(b, " requeued=%d", *w.Status.RequeueState.Count)
	}
	for i := range w.Status.AdmissionChecks {
		fmt.Fprintf(b, " %s=%s", w.Status.AdmissionChecks[i].Name, w.Status.AdmissionChecks[i].State)
	}
	if w.Status.Admission != nil {
		text, _ := json.Marshal(w.Status.Admission)
		b.Write(text)
	}
	if s.awaitsSettling(w) {
		for _, c := range w.Status.Conditions {
			if c.Status == metav1.ConditionTrue && (c.Type == kueue.WorkloadAdmitted || c.Type == kueue.WorkloadFinished) {
				fmt.Fprintf(b, " %s %s ago", c.Type, min(s.Time().Sub(c.LastTransitionTime.Time), longestSettling))
			}
		}
	}
	fmt.Fprintf(b, " charged=%t\n", s.Engine.Charged(cluster.KeyOf(w), w.UID))
}

// longestSettling is the longest time for which the manager waits before it removes the finalizer of a finished quota Workload.
const longestSettling = 30 * time.Second

// awaitsSettling reports whether the manager still has to write about a finished stage of the JobSet, which it does some time after the last
// stage was admitted or has finished. A reconcile before that time changes nothing.
func (s *simulation) awaitsSettling(w *kueue.Workload) bool {
	key := types.NamespacedName{Namespace: w.Namespace, Name: w.Labels[apis.JobSetLabel]}
	return slices.ContainsFunc(s.WorkloadsOfJobSet(key), func(o *kueue.Workload) bool { return cluster.IsFinished(o) && len(o.Finalizers) > 0 })
}

// isOwned reports whether an object belongs to the JobSet that now has the name of its owner.
func (s *simulation) isOwned(namespace, name, uid string) bool {
	js := s.JobSets[types.NamespacedName{Namespace: namespace, Name: name}]
	return js != nil && string(js.UID) == uid
}

func (s *simulation) stateOfJob(b *strings.Builder, job *batchv1.Job) {
	status := &job.Status
	fmt.Fprintf(b, "job %s/%s owner=%t deleted=%t suspend=%t pods=%d active=%d succeeded=%d failed=%d started=%t %v", job.Name, job.Labels[constants.RestartsKey],
		s.isOwned(job.Namespace, job.Labels[jobset.JobSetNameKey], job.Labels[jobset.JobSetUIDKey]), !job.DeletionTimestamp.IsZero(), *job.Spec.Suspend,
		childjob.PodsAtOnce(job), status.Active, status.Succeeded, status.Failed, status.StartTime != nil, job.Spec.Template.Annotations)
	if status.Ready != nil {
		fmt.Fprintf(b, " ready=%d terminating=%d", *status.Ready, *status.Terminating)
	}
	for i := range status.Conditions {
		fmt.Fprintf(b, " %s=%s", status.Conditions[i].Type, status.Conditions[i].Status)
	}
	if p := s.Pods[job.UID]; p != nil {
		for _, batch := range p.Batches {
			fmt.Fprintf(b, " {%d %t %t}", batch.Count, batch.IsReady, batch.HasSucceeded)
		}
		if p.Terminating > 0 {
			fmt.Fprintf(b, " terminating %d for %s", p.Terminating, p.EndsAt-s.Now)
		}
	}
	b.WriteString("\n")
}

// stateOfWork describes what has to be done, now or at a time.
func (s *simulation) stateOfWork(b *strings.Builder) {
	keys := func(all map[types.NamespacedName]bool) []types.NamespacedName {
		return slices.SortedFunc(maps.Keys(all), cluster.CompareKeys)
	}
	fmt.Fprintf(b, "work %v %v", keys(s.WorkloadQueue.Changed), keys(s.JobSetQueue.Changed))
	var changed []string
	for uid := range s.JobQueue {
		if job := s.Jobs[uid]; job != nil {
			changed = append(changed, job.Name+"/"+job.Labels[constants.RestartsKey])
		}
	}
	slices.Sort(changed)
	fmt.Fprintf(b, " %v failing %v\n", changed, s.Failing)
	later := func(all map[types.NamespacedName]time.Duration) {
		for _, key := range slices.SortedFunc(maps.Keys(all), cluster.CompareKeys) {
			fmt.Fprintf(b, "await %s %s\n", key, all[key]-s.Now)
		}
	}
	later(s.JobSetQueue.Awaited)
	later(s.WorkloadQueue.Awaited)
	if at, ok := s.Engine.NextTime(); ok {
		fmt.Fprintf(b, "engine %s\n", at.Sub(s.Time()))
	}
}

// unpaidPods returns what is wrong if pods run, or terminate, whose stage does not hold quota for all of them (I2, I4).
func (s *simulation) unpaidPods() (wrong []string) {
	needed := map[string]int32{}
	for _, uid := range slices.Sorted(maps.Keys(s.JobsByJobSet)) {
		for _, job := range s.JobsOf(uid) {
			if p := s.Pods[job.UID]; p != nil {
				needed[string(uid)+" "+s.SubjectOfJob(job)] += p.Count(cluster.IsRunning) + p.Terminating
			}
		}
	}
	paid := map[string]int32{}
	for _, w := range s.Workloads {
		// The growths of a stage pay for its pods, too.
		key := w.Labels[apis.JobUIDLabel] + " " + w.Labels[apis.JobSetLabel] + "/" + w.Labels[apis.StageLabel]
		for _, charged := range ledger.Charged(w) {
			paid[key] += int32(charged[corev1.ResourcePods] / 1000)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(needed)) {
		if needed[key] > paid[key] {
			_, subject, _ := strings.Cut(key, " ")
			wrong = append(wrong, fmt.Sprintf("I2: %d pods of %s run, and its quota pays for %d", needed[key], subject, paid[key]))
		}
	}
	return wrong
}

// unpaidJobs returns what is wrong if a job that is no JobSet runs pods, or stops them, and holds no quota (I2, I4).
func (s *simulation) unpaidJobs() (wrong []string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.PlainJobs), cluster.CompareKeys) {
		p, w := s.PlainJobs[key].Plain, s.Workloads[key]
		runs := p.IsStopping || p.HasEnded && s.Now < p.StopsAt || p.IsReleased && !p.All((*cluster.PodSet).HaveSucceeded)
		if runs && (w == nil || !quotaworkload.HoldsQuota(w) || cluster.IsFinished(w)) {
			wrong = append(wrong, fmt.Sprintf("I2: pods of job %s run, and it holds no quota", key.Name))
		}
	}
	return wrong
}

// earlyStages returns what is wrong if a stage runs pods, or holds quota and is open, although a stage that it waits for has not reached
// the start condition (I2). A stage that is being evicted may still hold quota.
func (s *simulation) earlyStages() (wrong []string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.JobSets), cluster.CompareKeys) {
		js := s.JobSets[key]
		current, _ := s.ChildJobs(js)
		for _, w := range s.WorkloadsOfJobSet(key) {
			stage := &s.OwnerOf(w).Plan.Stages[cluster.StageIndex(w)]
			holds := cluster.IsEvictable(w) && len(quotaworkload.Gates(w)) == 0
			runs := slices.ContainsFunc(current, func(job *batchv1.Job) bool {
				p := s.Pods[job.UID]
				return slices.Contains(stage.ReplicatedJobs, job.Labels[jobset.ReplicatedJobNameKey]) && p != nil && p.Count(cluster.IsRunning) > 0
			})
			for _, c := range stage.After {
				for _, target := range c.Targets {
					if (holds || runs) && !jobcontrollers.HasReached(current, target, c.Status == stageplan.Succeeded) {
						wrong = append(wrong, fmt.Sprintf("I2: %s holds quota or runs, and %s is not %s", cluster.SubjectOf(w), target, c.Status))
					}
				}
			}
		}
	}
	return wrong
}

// gaps returns what is wrong if all stages that a stage waits for have finished, and it is not open: another JobSet could take their quota.
// A restarted JobSet closes its stages again, and a stage that holds quota already needs none.
func (s *simulation) gaps() (wrong []string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.JobSets), cluster.CompareKeys) {
		js := s.JobSets[key]
		if js.Status.Restarts > 0 || js.Status.TerminalState != "" {
			continue
		}
		all := s.WorkloadsOfJobSet(key)
		for _, w := range all {
			after := s.OwnerOf(w).Plan.Stages[cluster.StageIndex(w)].After
			isAwaited := slices.ContainsFunc(after, func(c stageplan.Condition) bool {
				return !slices.ContainsFunc(all, func(o *kueue.Workload) bool { return cluster.StageIndex(o) == c.Stage && cluster.IsFinished(o) })
			})
			if len(after) > 0 && !isAwaited && !quotaworkload.HoldsQuota(w) && quotaworkload.HasGate(w, apis.StageGate) {
				wrong = append(wrong, fmt.Sprintf("I4: the stages before %s have finished, and it is not open", cluster.SubjectOf(w)))
			}
		}
	}
	return wrong
}
