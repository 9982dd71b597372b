package groupstart

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// restartAttemptLabel, on a Job and its pods, is the number of the restart of the JobSet in which they were created.
const restartAttemptLabel = constants.RestartsKey

// asks reports whether a JobSet asks for a group.
func asks(js *jobsetapi.JobSet) bool {
	return jobsetstatus.GroupField(js, apis.GroupStartAnnotation) != ""
}

// members returns the ReplicatedJobs of the group. The admission policies have marked them.
func members(js *jobsetapi.JobSet) []*jobsetapi.ReplicatedJob {
	var all []*jobsetapi.ReplicatedJob
	for i := range js.Spec.ReplicatedJobs {
		if js.Spec.ReplicatedJobs[i].Template.Annotations[apis.GroupStartAnnotation] != "" {
			all = append(all, &js.Spec.ReplicatedJobs[i])
		}
	}
	return all
}

// problemOf returns why the pods of a group can never all start, or an empty string. The admission policies reject such a JobSet, if they were
// installed when it was created.
func problemOf(js *jobsetapi.JobSet) string {
	group := members(js)
	if len(group) == 0 {
		return fmt.Sprintf("no ReplicatedJob has the annotation %s: the JobSet was created before Tranche's admission policies were installed;"+
			" delete it and submit it again", apis.GroupStartAnnotation)
	}
	restored, _ := stageplan.Restored(js)
	plan, err := stageplan.NewUnqueued(&restored.Spec) // the stage controller limits the size of a plan
	if err != nil {
		return err.Error()
	}
	first := stageOf(plan, group[0].Name)
	for _, member := range group[1:] {
		if stage := stageOf(plan, member.Name); stage != first {
			return fmt.Sprintf("ReplicatedJobs %q and %q are in one group, but start in different stages, %q and %q: the pods of the earlier stage"+
				" would wait indefinitely for those of the later stage; let the group have only ReplicatedJobs of one stage", group[0].Name, member.Name, first, stage)
		}
	}
	return ""
}

func stageOf(plan *stageplan.Plan, replicatedJob string) string {
	i := slices.IndexFunc(plan.Stages, func(st stageplan.Stage) bool { return slices.Contains(st.ReplicatedJobs, replicatedJob) })
	if i < 0 {
		return ""
	}
	return plan.Stages[i].Name
}

// A groupCounts counts the pods of a group by state.
type groupCounts struct {
	// started is how many of the pods have started.
	started, pods int
	// signals are the signals that the pods wait for, by Job, sorted.
	signals []string
	// pending are the signals of those Jobs whose pods may still wait.
	pending []string
	// complete is true if all Jobs exist and run.
	complete bool
	// gaveUp is true if a pod has timed out.
	gaveUp bool
	// waits is true if there are Jobs whose pods wait. unaware names a Job whose pods do not wait, or is empty.
	waits   bool
	unaware string
	// since is when the first of the waiting pods began to wait, or zero if none waits.
	since time.Time
}

// isWhole reports whether the group may start: all pods have started at the same time.
func (g *groupCounts) isWhole() bool { return g.started >= g.pods }

// count counts the pods of a group in the current attempt. Jobs that have succeeded in it count as started, even if they have disappeared
// since: the Jobs that replace them stay held.
func count(js *jobsetapi.JobSet, jobs []batchv1.Job, pods []corev1.Pod, done childjob.Succeeded) groupCounts {
	g := groupCounts{complete: true}
	byJob := map[types.UID][]*corev1.Pod{}
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner != nil {
			byJob[owner.UID] = append(byJob[owner.UID], &pods[i])
		}
	}
	attempt := strconv.Itoa(int(js.Status.Restarts))
	for _, member := range members(js) {
		missing := map[int32]bool{}
		for index := range member.Replicas {
			missing[index] = true
		}
		for i := range jobs {
			job := &jobs[i]
			if job.Labels[jobset.ReplicatedJobNameKey] != member.Name || job.Labels[restartAttemptLabel] != attempt || !job.DeletionTimestamp.IsZero() {
				continue
			}
			index, _ := childjob.Index(job)
			if done[member.Name][index] && childjob.IsHeld(job) {
				size := int(childjob.PodsAtOnce(job))
				g.pods, g.started = g.pods+size, g.started+size
			} else {
				g.add(job, byJob[job.UID])
			}
			delete(missing, index)
		}
		g.addMissing(member, missing, done[member.Name])
	}
	slices.Sort(g.signals)
	slices.Sort(g.pending)
	return g
}

// addMissing counts the pods of missing Jobs, by index.
func (g *groupCounts) addMissing(member *jobsetapi.ReplicatedJob, missing, done map[int32]bool) {
	size := int(childjob.PodsAtOnce(&batchv1.Job{Spec: member.Template.Spec}))
	for index := range missing {
		g.pods += size
		if done[index] {
			g.started += size
		} else {
			g.complete = false
		}
	}
}

// add counts the pods of one Job.
func (g *groupCounts) add(job *batchv1.Job, pods []*corev1.Pod) {
	release := job.Spec.Template.Annotations[apis.ReleaseAnnotation]
	signal := barrier.Signal(job.UID, release)
	size := int(childjob.PodsAtOnce(job))
	g.pods += size
	isComplete := childjob.IsFinished(job, batchv1.JobComplete)
	if !isComplete || release != "" { // one that is complete and was never released replaces one that has succeeded, and has had no pods
		g.signals = append(g.signals, signal)
	}
	if isComplete {
		g.started += size
		return
	}
	g.pending = append(g.pending, signal)
	switch {
	case waits(job):
		g.waits = true
	case g.unaware == "" || job.Name < g.unaware:
		g.unaware = job.Name
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		g.complete = false
		return
	}
	running, succeeded := 0, 0
	for _, pod := range pods {
		switch {
		case pod.Annotations[apis.ReleaseAnnotation] != release:
		case pod.Status.Phase == corev1.PodSucceeded:
			succeeded++
		case hasGivenUp(pod):
			g.gaveUp = true
		case pod.DeletionTimestamp.IsZero() && hasStarted(pod):
			running++
			g.waitsSince(pod)
		}
	}
	// Pods that have succeeded may have been deleted since, or belong to an earlier release: the number of pods that still have to run
	// counts.
	left := min(size, max(0, podsInAll(job)-max(succeeded, int(job.Status.Succeeded))))
	g.started += size - left + min(left, running)
}

// waitsSince records when a pod began to wait, if it still does.
func (g *groupCounts) waitsSince(pod *corev1.Pod) {
	state := barrierOf(pod)
	if state == nil || state.Running == nil {
		return
	}
	if began := state.Running.StartedAt.Time; !began.IsZero() && (g.since.IsZero() || began.Before(g.since)) {
		g.since = began
	}
}

// podsInAll returns how many pods of a Job have to succeed, if the Job specifies that. Otherwise the Job creates no pods after the first
// success.
func podsInAll(job *batchv1.Job) int {
	return int(ptr.Deref(job.Spec.Completions, ptr.Deref(job.Spec.Parallelism, 1)))
}

// waits reports whether the pods of a Job wait for the others.
func waits(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Spec.Template.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == barrier.Container })
}

// hasStarted reports whether a pod that has not ended is on a node and only waits for the others, or no longer waits.
func hasStarted(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodRunning || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	state := barrierOf(pod)
	return pod.Status.Phase == corev1.PodPending && state != nil && (state.Running != nil || state.Terminated != nil && state.Terminated.ExitCode == 0)
}

// hasGivenUp reports whether a pod has timed out. Its restart policy may let it wait again.
func hasGivenUp(pod *corev1.Pod) bool {
	state := barrierOf(pod)
	return state != nil && state.Terminated != nil && state.Terminated.ExitCode != 0
}

// barrierOf returns the state of the waiting init container, or nil if it is unknown.
func barrierOf(pod *corev1.Pod) *corev1.ContainerState {
	for i := range pod.Status.InitContainerStatuses {
		if status := &pod.Status.InitContainerStatuses[i]; status.Name == barrier.Container {
			return &status.State
		}
	}
	return nil
}

// KeepOfStatus returns the part of a pod's status that the caches must keep for this package.
func KeepOfStatus(pod *corev1.Pod) []corev1.ContainerStatus {
	state := barrierOf(pod)
	switch {
	case state == nil || pod.Annotations[apis.ReleaseAnnotation] == "":
		return nil
	case state.Running != nil:
		return []corev1.ContainerStatus{{Name: barrier.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: state.Running.StartedAt}}}}
	case state.Terminated != nil:
		terminated := &corev1.ContainerStateTerminated{ExitCode: state.Terminated.ExitCode}
		return []corev1.ContainerStatus{{Name: barrier.Container, State: corev1.ContainerState{Terminated: terminated}}}
	default:
		return nil
	}
}
