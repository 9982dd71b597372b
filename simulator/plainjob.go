package simulator

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// A plainJob plays a job that is no JobSet, and its controller, which is not part of Tranche: it has one quota Workload, starts its pods when
// the Workload is admitted, and stops them when it is evicted.
type plainJob struct {
	gates []string
	// isSuspended is true if the user has suspended the job, isStopping lasts until stopped pods have terminated, and isReleased is true
	// while its pods run.
	isSuspended, isStopping, isReleased, isOver bool
	// pods by pod set. There are none before the job is released.
	pods map[string]*pods
}

// submitPlain creates the quota Workload of a job that is no JobSet. The Workload has no owner.
func (s *simulation) submitPlain(j *job) {
	j.plain = &plainJob{gates: j.Gates, pods: map[string]*pods{}}
	w := &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: j.Namespace, Name: j.Name, Annotations: map[string]string{}, Finalizers: []string{kueue.ResourceInUseFinalizerName},
		},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(j.Queue), Priority: new(j.Priority), PriorityClassRef: j.classRef(), Active: new(true),
			MaximumExecutionTimeSeconds: j.MaxSeconds,
		},
	}
	for i := range j.Plan.Stages[0].PodSets {
		p := &j.Plan.Stages[0].PodSets[i]
		w.Spec.PodSets = append(w.Spec.PodSets, kueue.PodSet{Name: kueue.NewPodSetReference(p.Name), Count: p.Count, Template: *p.Template.DeepCopy()})
	}
	w.Spec.PodSets[0].MinCount = j.MinCount
	j.plain.gate(w)
	s.put(w)
}

// gate writes the gates of a job into its quota Workload.
func (p *plainJob) gate(w *kueue.Workload) {
	gates := slices.Clone(p.gates)
	if p.isSuspended {
		gates = append(gates, apis.SuspendedGate)
	}
	quotaworkload.SetGates(w, gates)
}

// reconcilePlain does what the controller of the job does.
func (s *simulation) reconcilePlain(j *job) {
	p, w := j.plain, s.objects.workloads[j.key()]
	if w == nil || j.isDeleted || p.isOver {
		return
	}
	after := w.DeepCopy()
	p.gate(after)
	if !slices.Equal(quotaworkload.Gates(w), quotaworkload.Gates(after)) {
		s.put(after)
		w = after
	}
	switch {
	case p.mayRun(w):
		s.release(j)
	case p.isReleased && p.haveSucceeded():
		s.endPlain(j, kueue.WorkloadFinishedReasonSucceeded)
		return
	}
	s.reportReadiness(w, p)
}

func (p *plainJob) mayRun(w *kueue.Workload) bool {
	return !p.isReleased && !p.isStopping && len(quotaworkload.Gates(w)) == 0 && quotaworkload.HoldsQuota(w) &&
		quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

func (p *plainJob) haveSucceeded() bool { return p.all((*pods).haveSucceeded) }

func (p *plainJob) all(is func(*pods) bool) bool {
	for _, pods := range p.pods {
		if !is(pods) {
			return false
		}
	}
	return len(p.pods) > 0
}

// release starts the pods of a job.
func (s *simulation) release(j *job) {
	j.plain.isReleased = true
	for _, name := range j.Plan.Stages[0].ReplicatedJobs {
		j.plain.pods[name] = &pods{}
	}
	for i, name := range j.Plan.Stages[0].ReplicatedJobs {
		c := behavior{changed: func() { s.reconcilePlain(j) }, hasFailed: func() { s.failPlain(j) }}
		c.readyAfter, c.getsReady = j.ReadyAfter(name)
		c.runs, c.ends = j.RunTime(name)
		c.fails = j.Fails(name, 0)
		s.begin(j.plain.pods[name], j.Plan.Stages[0].PodSets[i].Count, c)
	}
}

// failPlain lets a job fail.
func (s *simulation) failPlain(j *job) {
	s.say("fail %s", j.Name)
	s.endPlain(j, kueue.WorkloadFinishedReasonFailed)
}

// endPlain finishes a job. A job that fails stops its other pods first.
func (s *simulation) endPlain(j *job, reason string) {
	p := j.plain
	p.isOver = true
	finish := func() {
		w := s.objects.workloads[j.key()]
		if w == nil || isFinished(w) {
			return
		}
		switch {
		case reason == kueue.WorkloadFinishedReasonSucceeded:
			s.say("finish %s", j.Name)
		case quotaworkload.HoldsQuota(w):
			s.say("stop %s", j.Name)
		}
		after := w.DeepCopy()
		s.setFinished(after, reason)
		s.put(after)
	}
	isReleased := p.isReleased
	p.isReleased = false
	if reason == kueue.WorkloadFinishedReasonSucceeded || !isReleased {
		finish()
		return
	}
	clear(p.pods)
	s.eventQueue.add(s.now+j.StopAfter, finish)
}

// stopPlain stops the pods of a job, and releases its quota when they have terminated.
func (s *simulation) stopPlain(j *job) {
	p := j.plain
	for _, pods := range p.pods {
		pods.batches = nil
	}
	clear(p.pods)
	p.isReleased = false
	if p.isStopping {
		return
	}
	p.isStopping = true
	s.reconcilePlain(j)
	s.eventQueue.add(s.now+j.StopAfter, func() {
		p.isStopping = false
		w := s.objects.workloads[j.key()]
		switch {
		case w == nil:
		case j.isDeleted:
			s.drop(w)
		case quotaworkload.HoldsQuota(w) && !isFinished(w):
			s.say("stop %s", j.Name)
			s.put(s.withoutQuota(w))
		}
		s.reconcilePlain(j)
	})
}

// deletePlain deletes a job. Its quota Workload stays until its pods have terminated.
func (s *simulation) deletePlain(j *job) {
	w := s.objects.workloads[j.key()]
	switch {
	case w == nil:
	case !quotaworkload.HoldsQuota(w) || !j.plain.isReleased && !j.plain.isStopping:
		s.drop(w)
	default:
		s.deleteWorkload(w)
		s.stopPlain(j)
	}
}

// reportReadiness writes the condition PodsReady of an admitted quota Workload. A Workload that has never been ready need not have it.
func (s *simulation) reportReadiness(w *kueue.Workload, p *plainJob) {
	ready := p.isReleased && p.all((*pods).areReady)
	if c, differs := readiness(w, ready); differs && !p.isStopping && quotaworkload.HoldsQuota(w) {
		after := w.DeepCopy()
		s.setPodsReady(after, c)
		s.put(after)
	}
}

// actOnPlain makes the pods of a job ready, succeeded or failed.
func (s *simulation) actOnPlain(j *job, a scenario.Act) {
	p := j.plain
	switch {
	case !p.isReleased:
		s.ignore(string(a.Action), a.Target, "none of its pods run")
		return
	case a.Action == scenario.Fail:
		s.failPlain(j)
		return
	}
	for name, pods := range p.pods {
		if a.Target.Part == "" || a.Target.Part == name || a.Target.Part == j.Plan.Stages[0].Name {
			pods.set(a.Action == scenario.Finish)
		}
	}
	s.reconcilePlain(j)
}
