package jobsetstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/podstate"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A GangWait says why the pods of gangs have had no node for a long time. The scheduler does not report most of these waits: it writes
// nothing about pods of a gang that it cannot try.
type GangWait struct {
	Reason, Message string
	// RequeueAfter is when to check again, or zero.
	RequeueAfter time.Duration
}

// pending is the current state of the pods of a gang.
type pending struct {
	// pods that have not ended, and how many of them have no node.
	pods, unplaced int64
	// since is when the first waiting pod was created, or its Job was released.
	since time.Time
	// schedulers has the names of the schedulers that the pods use.
	schedulers map[string]bool
	// refusals counts the waiting pods by what the scheduler says about them.
	refusals map[string]int
}

// GangWait finds gangs that wait, and returns the first by name.
func (s *Snapshot) GangWait() GangWait {
	if s.Gangs == nil {
		return GangWait{}
	}
	all := s.pendingGangs()
	wait := GangWait{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		if p.since.IsZero() {
			continue
		}
		if left := s.Patience - s.Now.Sub(p.since); left > 0 {
			wait.RequeueAfter = workloadstatus.Sooner(wait.RequeueAfter, left)
			continue
		}
		wait.RequeueAfter = workloadstatus.Sooner(wait.RequeueAfter, workloadstatus.RecheckAfter)
		if wait.Reason == "" {
			wait.Reason, wait.Message = s.diagnose(name, p, s.Gangs.StatusOf(name))
		}
	}
	return wait
}

// pendingGangs counts the pods of the current attempt by the names of their gangs.
func (s *Snapshot) pendingGangs() map[string]*pending {
	all := map[string]*pending{}
	jobs := map[string]*pending{}
	for _, job := range s.Owned.Jobs {
		index, ok := childjob.Index(job)
		if !ok || job.Labels[RestartAttemptLabel] != AttemptOf(s.JobSet) || !childjob.IsRunning(job) {
			continue
		}
		name := s.Gangs.ObjectOf(ReplicatedJobOf(job), index)
		if name == "" {
			continue
		}
		if all[name] == nil {
			all[name] = &pending{schedulers: map[string]bool{}, refusals: map[string]int{}}
		}
		jobs[job.Name] = all[name]
		if made := job.Status.Active + job.Status.Succeeded + job.Status.Failed; made == 0 && job.Status.StartTime != nil {
			all[name].waitsSince(job.Status.StartTime.Time)
		}
	}
	for _, pod := range s.Owned.Pods {
		p := jobs[pod.Labels[batchv1.JobNameLabel]]
		if p == nil || pod.Labels[RestartAttemptLabel] != AttemptOf(s.JobSet) || pod.DeletionTimestamp != nil {
			continue
		}
		p.add(pod)
	}
	return all
}

func (p *pending) add(pod *corev1.Pod) {
	p.pods++
	p.schedulers[pod.Spec.SchedulerName] = true
	if pod.Spec.NodeName == "" {
		p.unplaced++
		p.waitsSince(pod.CreationTimestamp.Time)
		if why := WithoutNode(pod); why != "" {
			p.refusals[why]++
		}
	}
}

// refusal returns what the scheduler says about most of the waiting pods, or "". It may say something else about one of them each time that it tries.
func (p *pending) refusal() string {
	all := slices.Sorted(maps.Keys(p.refusals))
	if len(all) == 0 {
		return ""
	}
	return slices.MaxFunc(all, func(a, b string) int { return cmp.Compare(p.refusals[a], p.refusals[b]) })
}

// WithoutNode returns why a scheduler found no node for a pod, or "". A long text is cut, since the manager keeps one for each pod.
func WithoutNode(pod *corev1.Pod) string {
	const most = 400
	if reason, message := podstate.WithoutNode(pod); reason == corev1.PodReasonUnschedulable {
		return strings.ToValidUTF8(message[:min(len(message), most)], "")
	}
	return ""
}

func (p *pending) waitsSince(since time.Time) {
	if p.since.IsZero() || since.Before(p.since) {
		p.since = since
	}
}

// diagnose returns why a gang waits, and what helps.
func (s *Snapshot) diagnose(name string, p *pending, status schedulergang.Status) (reason, message string) {
	switch schedulers := slices.Sorted(maps.Keys(p.schedulers)); {
	case !status.Exists:
		return jobsetstatus.GangMissing, fmt.Sprintf("the pods of gang %q wait for a PodGroup of this name, which does not exist: "+
			"create the PodGroup if the pod template names it, otherwise ask your administrator why no controller creates it", name)
	case status.Changed:
		return jobsetstatus.GangChanged, fmt.Sprintf("PodGroup %q is for another number of pods than the JobSet has now, and is recreated when all of its pods have terminated; "+
			"suspend the JobSet and resume it", name)
	case p.pods < status.Min:
		return jobsetstatus.GangTooSmall, fmt.Sprintf("only %d of the %d pods exist that PodGroup %q requires, so the scheduler places none of them: "+
			"the other pods have ended, belong to Jobs that wait, or cannot be created, for example because of a ResourceQuota or an admission webhook; "+
			"see the Events of the Jobs; a restart of the JobSet recreates all pods", p.pods, status.Min, name)
	case len(schedulers) > 1:
		return jobsetstatus.GangSplit, fmt.Sprintf("the pods of gang %q have several schedulers (%s), and no scheduler counts the pods of another: "+
			"remove what changes spec.schedulerName of pods, for example an admission webhook", name, strings.Join(schedulers, ", "))
	case status.Unschedulable != "":
		return p.unschedulable(name, status.Unschedulable)
	case status.Reports || p.unplaced == 0:
		return "", ""
	case s.Scheduler.Name == string(configapi.GangProviderKube):
		return jobsetstatus.GangUnheard, fmt.Sprintf("%d of %d pods of gang %q have no node, and the scheduler %q reports nothing about its PodGroup: "+
			"ask your administrator whether the scheduler runs, with the feature gates GenericWorkload and GangScheduling",
			p.unplaced, p.pods, name, strings.Join(schedulers, ", "))
	case p.refusal() != "":
		return p.unschedulable(name, p.refusal())
	default:
		return jobsetstatus.GangUnheard, fmt.Sprintf("%d of %d pods of gang %q have no node, and the scheduler %q reports nothing about its PodGroup: "+
			"see the Events of the pods; if there are none, ask your administrator whether the scheduler runs", p.unplaced, p.pods, name, strings.Join(schedulers, ", "))
	}
}

func (p *pending) unschedulable(name, why string) (reason, message string) {
	return jobsetstatus.GangUnschedulable, fmt.Sprintf("%d of %d pods of gang %q have no node: %s; "+
		"add nodes that all of them fit on at once, or suspend the JobSet so that others can use its quota", p.unplaced, p.pods, name, why)
}
