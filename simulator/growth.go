package simulator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/simulator/scenario"
)

// resize gives a ReplicatedJob another number of pods.
func (s *simulation) resize(r scenario.Resize) error {
	j := s.jobs[r.Target.Name]
	if why := s.obstacle(j); why != "" {
		s.ignore("resize", r.Target, why)
		return nil
	}
	after, err := j.Resized(r.Target.Part, r.Pods)
	if err != nil {
		return err
	}
	j.Submission = after
	for i, st := range j.stages {
		st.Stage = &j.Plan.Stages[i]
	}
	s.putPlan(j)
	s.reconcileJob(j)
	return nil
}

// fit updates the quota Workload of a stage that holds no quota to the current pods of the stage, except those that have succeeded, and
// reports whether they differ from before.
func (j *job) fit(st *stage, w *kueue.Workload) (differs bool) {
	if !j.IsJobSet || quotaworkload.HoldsQuota(w) {
		return false
	}
	var over []kueue.ReclaimablePod
	for i := range st.PodSets {
		asks, count := &w.Spec.PodSets[i], st.PodSets[i].Count
		if asks.Count != count {
			asks.Count, differs = count, true
		}
		if j.pods[st.PodSets[i].Name].haveSucceeded() {
			over = append(over, kueue.ReclaimablePod{Name: asks.Name, Count: count})
		}
	}
	if differs {
		w.Generation++
	}
	differs = differs || !slices.Equal(over, w.Status.ReclaimablePods)
	w.Status.ReclaimablePods = over
	return differs
}

// sizes computes which quota Workloads pay for the pods of a stage, by pod set.
func (s *simulation) sizes(j *job, st *stage) []elastic.Size {
	var all []elastic.Size
	for i := range st.PodSets {
		all = append(all, s.sizeOf(j, st, i))
	}
	return all
}

// sizeOf returns the size of the one Job of a pod set. It needs no pods once it has succeeded.
func (s *simulation) sizeOf(j *job, st *stage, podSet int) elastic.Size {
	name, want := st.PodSets[podSet].Name, st.PodSets[podSet].Count
	w, p := s.objects.workloads[st.own.key], j.pods[st.PodSets[podSet].Name]
	if p.haveSucceeded() {
		return elastic.Fixed(want, 0, len(st.growths))
	}
	isScaled := len(st.growths) > 0 || elastic.Charged(w, name, want) != want || p != nil && p.count() < want
	if !j.IsJobSet || !quotaworkload.HoldsQuota(w) || !isScaled {
		return elastic.Fixed(want, 1, len(st.growths))
	}
	var growths []elastic.Growth
	for _, growth := range st.growths {
		gw := s.objects.workloads[growth.key]
		mayRun := mayUse(gw)
		growths = append(growths, elastic.Growth{HoldsQuota: quotaworkload.HoldsQuota(gw), Held: elastic.Held(gw, name), MayRun: mayRun, MayBegin: mayRun})
	}
	return elastic.Divide(want, elastic.Held(w, name), 1, growths)
}

// mayUse reports whether pods may run on the quota of a quota Workload.
func mayUse(w *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(w) && quotaworkload.IsTrue(w, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted) &&
		w.Annotations[apis.AdmissionGatedByAnnotation] == ""
}

// isSteady reports whether as many pods of a stage are ready as its own quota Workload pays for.
func (s *simulation) isSteady(j *job, st *stage) bool {
	sizes := s.sizes(j, st)
	for i, name := range st.ReplicatedJobs {
		if p := j.pods[name]; !p.areReady() && (p.count() == 0 || p.ready() < sizes[i].Base) {
			return false
		}
	}
	return true
}

// isGrown reports whether all pods with admitted quota are ready.
func isGrown(j *job, st *stage, sizes []elastic.Size) bool {
	for i, name := range st.ReplicatedJobs {
		if p := j.pods[name]; !p.areReady() || !p.haveSucceeded() && p.count() < sizes[i].Now {
			return false
		}
	}
	return st.isReleased
}

// mayGrow reports whether a stage holds quota and keeps it.
func (s *simulation) mayGrow(j *job, st *stage) bool {
	w := s.objects.workloads[st.own.key]
	return j.IsJobSet && !j.stopping && !j.isOver && w != nil && quotaworkload.HoldsQuota(w) && !isFinished(w) && !quotaworkload.IsTrue(w, kueue.WorkloadEvicted)
}

// reconcileGrowths reconciles the growths of a stage, as the stage controller does. If the stage is about to release its quota, pending growths are
// deleted at once, others with its pods.
func (s *simulation) reconcileGrowths(j *job, st *stage) {
	if !s.mayGrow(j, st) {
		for _, growth := range slices.Clone(st.growths) {
			if !quotaworkload.HoldsQuota(s.objects.workloads[growth.key]) {
				s.dropGrowth(j, growth)
			}
		}
		return
	}
	sizes := s.sizes(j, st)
	if st.isReleased {
		s.resizeJobs(j, st, sizes)
	}
	s.reclaim(j, st.own, sizes, func(z elastic.Size) int32 { return z.Base })
	for k, growth := range slices.Clone(st.growths) {
		w := s.objects.workloads[growth.key]
		switch pays := slices.ContainsFunc(sizes, func(z elastic.Size) bool { return z.Growths[k] > 0 }); {
		case pays && quotaworkload.HoldsQuota(w):
			s.reconcileHolder(j, growth, sizes, k)
		case pays:
			s.requestAgain(j, growth, podSets(st, func(i int) int32 { return sizes[i].Growths[k] }))
		case !quotaworkload.HoldsQuota(w) || isSettled(j, st, sizes):
			s.dropGrowth(j, growth)
		}
	}
	if more := podSets(st, func(i int) int32 { return sizes[i].Missing }); st.isReleased && len(more) > 0 {
		s.ask(j, st, more)
	}
}

// podSets returns pod sets with the given number of pods of each ReplicatedJob of a stage, without empty ones.
func podSets(st *stage, count func(podSet int) int32) []kueue.PodSet {
	var all []kueue.PodSet
	for i := range st.PodSets {
		if n := count(i); n > 0 {
			all = append(all, podSet(st, i, n))
		}
	}
	return all
}

// reconcileHolder reconciles a growth that holds quota for pods which the JobSet still wants.
func (s *simulation) reconcileHolder(j *job, growth workloadRef, sizes []elastic.Size, k int) {
	s.reclaim(j, growth, sizes, func(z elastic.Size) int32 { return z.Growths[k] })
	w := s.objects.workloads[growth.key]
	switch {
	case !quotaworkload.IsTrue(w, kueue.WorkloadEvicted):
		s.tellReadiness(j, w, mayUse(w) && isGrown(j, growth.stage, sizes))
	case isSettled(j, growth.stage, sizes):
		s.say("stop %s", j.subject(growth))
		after := s.giveBack(w)
		after.Status.ReclaimablePods = nil
		s.put(after)
		s.eventQueue.add(s.now, func() { s.reconcileJob(j) })
	}
}

// isSettled reports whether no pod exceeds the current quota.
func isSettled(j *job, st *stage, sizes []elastic.Size) bool {
	for i, name := range st.ReplicatedJobs {
		if j.pods[name].most() > sizes[i].Now {
			return false
		}
	}
	return true
}

// resizeJobs sets the Jobs of a stage to the size of their admitted quota.
func (s *simulation) resizeJobs(j *job, st *stage, sizes []elastic.Size) {
	for i, name := range st.ReplicatedJobs {
		p, now := j.pods[name], sizes[i].Now
		if p == nil || p.haveSucceeded() || p.count() == now {
			continue
		}
		s.say("resize %s/%s pods=%d", j.Name, name, now)
		if p.count() < now {
			s.begin(j, st, name, now-p.count())
			continue
		}
		p.cut(now)
		cuts := p.cuts
		// The remaining pods may all have succeeded.
		s.eventQueue.add(s.now, func() { s.reconcileJob(j) })
		s.eventQueue.add(s.now+j.StopAfter, func() {
			if j.pods[name] == p && p.cuts == cuts {
				p.lingering = 0
				s.reconcileJob(j)
			}
		})
	}
}

// reclaim reports as reclaimable the pods for which a quota Workload is no longer needed, once these have terminated.
func (s *simulation) reclaim(j *job, p workloadRef, sizes []elastic.Size, paysFor func(elastic.Size) int32) {
	after := s.objects.workloads[p.key].DeepCopy()
	differs := false
	for i := range p.stage.PodSets {
		name := p.stage.PodSets[i].Name
		count := elastic.Charged(after, name, 0) - paysFor(sizes[i])*sizes[i].Live
		if count <= elastic.Reclaimable(after, name) || j.pods[name].most() > sizes[i].Now {
			continue
		}
		ref := kueue.NewPodSetReference(name)
		pods := slices.DeleteFunc(after.Status.ReclaimablePods, func(r kueue.ReclaimablePod) bool { return r.Name == ref })
		after.Status.ReclaimablePods, differs = append(pods, kueue.ReclaimablePod{Name: ref, Count: count}), true
	}
	if differs {
		s.put(after)
	}
}

// ask creates a quota Workload for pods of a stage that no quota Workload pays for, on the flavors of the stage.
func (s *simulation) ask(j *job, st *stage, podSets []kueue.PodSet) {
	growth := workloadRef{stage: st, growth: 1}
	for _, other := range st.growths {
		growth.growth = max(growth.growth, other.growth+1)
	}
	growth.key = st.own.key
	growth.key.Name += fmt.Sprintf("-growth-%d", growth.growth)
	w := j.newWorkload(growth)
	w.Labels[apis.GrowthLabel] = strconv.Itoa(growth.growth)
	w.Annotations[apis.FlavorsAnnotation] = elastic.Flavors(s.objects.workloads[st.own.key])
	w.Spec.PodSets = podSets
	st.growths = append(st.growths, growth)
	s.say("ask %s pods=%s", j.subject(growth), counts(podSets))
	s.enter(j, growth, w)
}

// requestAgain updates a growth that holds no quota to the pods that are missing now.
func (s *simulation) requestAgain(j *job, growth workloadRef, podSets []kueue.PodSet) {
	w := s.objects.workloads[growth.key]
	if counts(w.Spec.PodSets) == counts(podSets) && len(w.Spec.PodSets) == len(podSets) {
		return
	}
	after := w.DeepCopy()
	after.Spec.PodSets = podSets
	after.Generation++
	s.say("ask %s pods=%s", j.subject(growth), counts(podSets))
	s.put(after)
}

// counts formats numbers of pods as a scenario does: 2, or ps:1,train:2.
func counts(podSets []kueue.PodSet) string {
	if len(podSets) == 1 {
		return strconv.Itoa(int(podSets[0].Count))
	}
	words := make([]string, len(podSets))
	for i := range podSets {
		words[i] = fmt.Sprintf("%s:%d", podSets[i].Name, podSets[i].Count)
	}
	return strings.Join(words, ",")
}

// dropGrowths deletes all growths of a stage.
func (s *simulation) dropGrowths(j *job, st *stage) {
	for _, growth := range slices.Clone(st.growths) {
		s.dropGrowth(j, growth)
	}
}

func (s *simulation) dropGrowth(j *job, growth workloadRef) {
	s.say("drop %s", j.subject(growth))
	s.drop(growth)
}
