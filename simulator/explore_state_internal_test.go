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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// This file copies simulations, and describes their states.

// copied returns a copy of a simulation that has not created an engine yet. Written objects are never changed, so that copies share them.
func (s *simulation) copied() *simulation {
	c := *s
	c.engine, c.calls = nil, slices.Clip(s.calls)
	o := *s.objects
	c.objects = &o
	o.namespaces, o.flavors, o.checks, o.classes = maps.Clone(o.namespaces), maps.Clone(o.flavors), maps.Clone(o.checks), maps.Clone(o.classes)
	o.cohorts, o.clusterQueues, o.plans = maps.Clone(o.cohorts), maps.Clone(o.clusterQueues), maps.Clone(o.plans)
	o.workloads, o.jobSets = maps.Clone(o.workloads), maps.Clone(o.jobSets)
	o.localQueues = map[types.NamespacedName]*kueue.LocalQueue{}
	for key, queue := range s.objects.localQueues {
		o.localQueues[key] = queue.DeepCopy()
	}
	o.jobs = map[types.UID][]*batchv1.Job{}
	for uid, jobs := range s.objects.jobs {
		o.jobs[uid] = slices.Clone(jobs)
	}
	c.jobs = map[string]*job{}
	for name, j := range s.jobs {
		one := *j
		c.jobs[name] = &one
	}
	c.workQueue = workQueue{changed: maps.Clone(s.workQueue.changed), awaited: maps.Clone(s.workQueue.awaited)}
	c.failing = slices.Clone(s.failing)
	c.jobSetQueue = workQueue{maps.Clone(s.jobSetQueue.changed), maps.Clone(s.jobSetQueue.awaited)}
	c.dirtyJobs = maps.Clone(s.dirtyJobs)
	c.byJobSet = map[types.NamespacedName]map[admission.StageKey]bool{}
	for key, workloads := range s.byJobSet {
		c.byJobSet[key] = maps.Clone(workloads)
	}
	c.out = transcript{}
	c.copyPods(s)
	return &c
}

// copyPods copies the pods, and plans again when those that terminate do so. Nothing else is planned in a small world.
func (s *simulation) copyPods(from *simulation) {
	s.objects.pods, s.eventQueue = map[types.UID]*pods{}, eventQueue{}
	for _, uid := range sorted(from.objects.pods) {
		p := *from.objects.pods[uid]
		p.batches = nil
		for _, b := range from.objects.pods[uid].batches {
			one := *b
			p.batches = append(p.batches, &one)
		}
		s.objects.pods[uid] = &p
		if job := s.objects.job(uid); p.terminating > 0 && job != nil {
			s.planTermination(&p, func() { s.changed(job) })
		}
	}
}

// revive creates the engine of a copy, in the state of the original.
func (s *simulation) revive() error {
	engine, err := admission.New(s.config.Config)
	if err != nil {
		return err
	}
	s.engine = engine
	for _, call := range s.calls {
		call(engine)
	}
	return nil
}

// state describes everything that may influence what follows, without times, UIDs, versions and messages. Of the engine it has the
// observable part: the charges and the pending stages in their order.
func (s *simulation) state() string {
	var b strings.Builder
	for _, name := range sorted(s.objects.clusterQueues) {
		q := s.objects.clusterQueues[name]
		text, _ := json.Marshal(q.Spec.ResourceGroups)
		view, _ := s.engine.ClusterQueue(name)
		held, _ := json.Marshal(view.FlavorsHeld)
		fmt.Fprintf(&b, "queue %s %s %s held %s pending", name, q.Spec.CohortName, text, held)
		pending, _ := s.engine.PendingInClusterQueue(name, admission.Page{Limit: 100})
		for i := range pending {
			b.WriteString(" " + pending[i].Stage.Name)
		}
		b.WriteString("\n")
	}
	s.stateOfJobSets(&b)
	for _, key := range s.objects.workloadKeys() {
		s.stateOfWorkload(&b, s.objects.workloads[key])
	}
	for _, uid := range sorted(s.objects.jobs) {
		for _, job := range s.objects.jobs[uid] {
			s.stateOfJob(&b, job)
		}
	}
	s.stateOfWork(&b)
	return b.String()
}

func (s *simulation) stateOfJobSets(b *strings.Builder) {
	all := slices.SortedFunc(maps.Values(s.jobs), func(a, b *job) int { return cmp.Compare(a.Name, b.Name) })
	for _, j := range all {
		js := s.objects.jobSets[j.key()]
		if js == nil {
			fmt.Fprintf(b, "jobset %s deleted\n", j.Name)
			continue
		}
		annotations := maps.Clone(js.Annotations)
		delete(annotations, apis.TimelineAnnotation)
		fmt.Fprintf(b, "jobset %s suspend=%t restarts=%d %s %v %s older", j.Name, *js.Spec.Suspend, js.Status.Restarts, js.Status.TerminalState,
			annotations, conditionsOf(js.Status.Conditions))
		for _, other := range all {
			if o := s.objects.jobSets[other.key()]; o != nil && o.UID < js.UID {
				b.WriteString(" " + other.Name)
			}
		}
		b.WriteString("\n")
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
		!w.DeletionTimestamp.IsZero(), w.Finalizers, w.Spec.Active == nil || *w.Spec.Active, w.Spec.QueueName, *w.Spec.Priority, counts(w.Spec.PodSets))
	fmt.Fprintf(b, " %v %s reclaim=%v", w.Annotations, conditionsOf(w.Status.Conditions), w.Status.ReclaimablePods)
	if w.Status.RequeueState != nil && w.Status.RequeueState.Count != nil {
		fmt.Fprintf(b, " requeued=%d", *w.Status.RequeueState.Count)
	}
	if w.Status.Admission != nil {
		text, _ := json.Marshal(w.Status.Admission)
		b.Write(text)
	}
	fmt.Fprintf(b, " charged=%t\n", s.engine.Charged(keyOf(w), w.UID))
}

// isOwned reports whether an object belongs to the JobSet that now has the name of its owner.
func (s *simulation) isOwned(namespace, name, uid string) bool {
	js := s.objects.jobSets[types.NamespacedName{Namespace: namespace, Name: name}]
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
	if p := s.objects.pods[job.UID]; p != nil {
		for _, batch := range p.batches {
			fmt.Fprintf(b, " %v", *batch)
		}
		if p.terminating > 0 {
			fmt.Fprintf(b, " terminating %d for %s", p.terminating, p.endsAt-s.now)
		}
	}
	b.WriteString("\n")
}

// stateOfWork describes what has to be done, now or at a time.
func (s *simulation) stateOfWork(b *strings.Builder) {
	keys := func(all map[types.NamespacedName]bool) []types.NamespacedName {
		return slices.SortedFunc(maps.Keys(all), compareKeys)
	}
	fmt.Fprintf(b, "work %v %v", keys(s.workQueue.changed), keys(s.jobSetQueue.changed))
	var changed []string
	for uid := range s.dirtyJobs {
		if job := s.objects.job(uid); job != nil {
			changed = append(changed, job.Name+"/"+job.Labels[constants.RestartsKey])
		}
	}
	slices.Sort(changed)
	fmt.Fprintf(b, " %v failing %v\n", changed, s.failing)
	later := func(all map[types.NamespacedName]time.Duration) {
		for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
			fmt.Fprintf(b, "await %s %s\n", key, all[key]-s.now)
		}
	}
	later(s.jobSetQueue.awaited)
	later(s.workQueue.awaited)
	if at, ok := s.engine.NextTime(); ok {
		fmt.Fprintf(b, "engine %s\n", at.Sub(s.time()))
	}
}

// unpaidPods returns what is wrong if pods run, or terminate, whose stage does not hold quota for all of them (I2, I4).
func (s *simulation) unpaidPods() (wrong []string) {
	needed := map[string]int32{}
	for _, uid := range sorted(s.objects.jobs) {
		for _, job := range s.objects.jobs[uid] {
			if p := s.objects.pods[job.UID]; p != nil {
				needed[string(uid)+" "+s.subjectOfJob(job)] += p.count(isRunning) + p.terminating
			}
		}
	}
	paid := map[string]int32{}
	for _, w := range s.objects.workloads {
		if quotaworkload.HoldsQuota(w) && !isFinished(w) {
			for i := range w.Status.Admission.PodSetAssignments {
				paid[w.Labels[apis.JobUIDLabel]+" "+s.subjectOf(w)] += *w.Status.Admission.PodSetAssignments[i].Count
			}
			for _, r := range w.Status.ReclaimablePods {
				paid[w.Labels[apis.JobUIDLabel]+" "+s.subjectOf(w)] -= r.Count
			}
		}
	}
	for _, key := range sorted(needed) {
		if needed[key] > paid[key] {
			_, subject, _ := strings.Cut(key, " ")
			wrong = append(wrong, fmt.Sprintf("I2: %d pods of %s run, and its quota pays for %d", needed[key], subject, paid[key]))
		}
	}
	return wrong
}

// earlyStages returns what is wrong if a stage runs pods, or holds quota, although a stage that it waits for has not reached the start
// condition (I2). A stage that is being evicted may still hold quota, and a restarted JobSet keeps the quota that it holds.
func (s *simulation) earlyStages() (wrong []string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.objects.jobSets), compareKeys) {
		js := s.objects.jobSets[key]
		current, _ := s.childJobs(js)
		for _, w := range s.workloadsOfJobSet(key) {
			stage := &s.ownerOf(w).Plan.Stages[stageIndex(w)]
			holds := js.Status.Restarts == 0 && isEvictable(w)
			runs := slices.ContainsFunc(current, func(job *batchv1.Job) bool {
				p := s.objects.pods[job.UID]
				return slices.Contains(stage.ReplicatedJobs, job.Labels[jobset.ReplicatedJobNameKey]) && p != nil && p.count(isRunning) > 0
			})
			for _, c := range stage.After {
				for _, target := range c.Targets {
					if (holds || runs) && !hasReached(current, target, c.Status == stageplan.Succeeded) {
						wrong = append(wrong, fmt.Sprintf("I2: %s holds quota or runs, and %s is not %s", s.subjectOf(w), target, c.Status))
					}
				}
			}
		}
	}
	return wrong
}

// gaps returns what is wrong if all stages that a stage waits for have finished, and it is not open: another JobSet could take their quota.
// A restarted JobSet closes its stages again.
func (s *simulation) gaps() (wrong []string) {
	for _, key := range slices.SortedFunc(maps.Keys(s.objects.jobSets), compareKeys) {
		js := s.objects.jobSets[key]
		if js.Status.Restarts > 0 || js.Status.TerminalState != "" {
			continue
		}
		all := s.workloadsOfJobSet(key)
		for _, w := range all {
			after := s.ownerOf(w).Plan.Stages[stageIndex(w)].After
			isAwaited := slices.ContainsFunc(after, func(c stageplan.Condition) bool {
				return !slices.ContainsFunc(all, func(o *kueue.Workload) bool { return stageIndex(o) == c.Stage && isFinished(o) })
			})
			if len(after) > 0 && !isAwaited && slices.Contains(quotaworkload.Gates(w), apis.StageGate) {
				wrong = append(wrong, fmt.Sprintf("I4: the stages before %s have finished, and it is not open", s.subjectOf(w)))
			}
		}
	}
	return wrong
}
