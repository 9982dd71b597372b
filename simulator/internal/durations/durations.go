// Package durations determines how long things take in a simulated cluster that a snapshot does not show.
package durations

import (
	"fmt"
	"path"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/pastruns"
)

// Durations are how long things take that a snapshot does not show. A stage that has spec.maximumExecutionTimeSeconds ends when that time has
// passed, at the latest: it succeeds then. A stage without that limit and without an estimate never ends.
type Durations struct {
	// Estimates are how long stages take. Of several that match a stage the first one counts.
	Estimates []Estimate
	// PastRuns is how long earlier stages took. It counts for stages without an estimate, and may be nil.
	PastRuns *pastruns.PastRuns
	// Termination is how long pods take to terminate that are told to stop, unless the snapshot shows when they are killed.
	Termination time.Duration
	// Checks is how long AdmissionChecks take until they are Ready.
	Checks time.Duration
}

// An Estimate is how long some stages take, for instance from earlier runs. An empty Namespace, Name or Stage matches all.
type Estimate struct {
	Namespace string
	// Name is that of the JobSet, or for a quota Workload of another owner, that of the owner. It may be a pattern as of path.Match, such as
	// fine-tune-*.
	Name string
	// Stage is the name of a stage of a JobSet.
	Stage string
	// Run is how long after the start of its pods a stage succeeds, or zero if that is not known. A stage that has run for longer is expected to
	// take a tenth more, or as many tenths as it needs, doubled each time: 10 %, 20 %, 40 %.
	Run time.Duration
	// Ready is how long after their start pods are ready. Without an estimate they are ready at once. It counts for every prediction.
	Ready time.Duration
}

// Validate returns an error that names the estimate that is wrong.
func (d *Durations) Validate() error {
	for i := range d.Estimates {
		e := &d.Estimates[i]
		if _, err := path.Match(e.Name, ""); err != nil {
			return fmt.Errorf("estimates[%d].name is %q, must be a pattern such as fine-tune-*: %w", i, e.Name, err)
		}
		if e.Run < 0 || e.Ready < 0 {
			return fmt.Errorf("estimates[%d] is %s until the end and %s until ready, must not be negative", i, e.Run, e.Ready)
		}
	}
	if d.Termination < 0 || d.Checks < 0 {
		return fmt.Errorf("termination is %s and checks %s, must not be negative", d.Termination, d.Checks)
	}
	return nil
}

// matches reports whether an estimate is about a stage. The pattern is valid.
func (e *Estimate) matches(namespace, name, stage string) bool {
	is, _ := path.Match(e.Name, name)
	return (e.Namespace == "" || e.Namespace == namespace) && (e.Name == "" || is) && (e.Stage == "" || e.Stage == stage)
}

// expected returns how long after its start a stage ends that has run for some time.
func (e *Estimate) expected(elapsed time.Duration) time.Duration {
	run := e.Run
	for more := max(e.Run/10, time.Second); run <= elapsed; more *= 2 {
		run = e.Run + more
	}
	return run
}

// A Course lets pods end by their limits, and by estimates.
type Course struct {
	*cluster.Cluster
	Estimates []Estimate
	History   *pastruns.PastRuns
	// OnlyLimits is true if the run times of the estimates do not count.
	OnlyLimits bool
}

// OfJob returns how the pods of a Job of a JobSet behave. All its pods end together.
func (c *Course) OfJob(j *cluster.UserJob, job *batchv1.Job, started time.Duration) cluster.Behavior {
	w := c.stageOf(j, job)
	if w == nil {
		return cluster.Behavior{GetsReady: true}
	}
	begin := started
	if job.Status.StartTime != nil {
		begin = min(started, job.Status.StartTime.Sub(c.Beginning()))
	}
	b := c.behavior(w, begin)
	b.Runs -= started - begin
	return b
}

// stageOf returns the quota Workload of the stage of a Job, or nil.
func (c *Course) stageOf(j *cluster.UserJob, job *batchv1.Job) *kueue.Workload {
	name, owner := jobsetstate.ReplicatedJobOf(job), cluster.NameOfJob(job).JobSet
	if j.IsQueued {
		name, owner = string(kueue.DefaultPodSetName), job.UID
	}
	for _, w := range c.WorkloadsOf(j) {
		if w.Labels[apis.JobUIDLabel] != string(owner) || jobsetstate.GrowthNumber(w) > 0 {
			continue
		}
		for i := range w.Spec.PodSets {
			if w.Spec.PodSets[i].Name == kueue.NewPodSetReference(name) {
				return w
			}
		}
	}
	return nil
}

// OfPodSet returns how the pods of a pod set behave.
func (c *Course) OfPodSet(j *cluster.UserJob, _ string, started time.Duration) cluster.Behavior {
	return c.behavior(c.Workloads[j.Key()], started)
}

// behavior returns how the pods behave that a quota Workload pays for, if they were started at this time.
func (c *Course) behavior(w *kueue.Workload, started time.Duration) cluster.Behavior {
	b := cluster.Behavior{GetsReady: true}
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	if limit := w.Spec.MaximumExecutionTimeSeconds; limit != nil && admitted != nil {
		left := time.Duration(*limit-ptr.Deref(w.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second
		b.Ends, b.Runs = true, admitted.LastTransitionTime.Sub(c.Beginning())+left-started
	}
	if e := c.estimateOf(w); e != nil {
		b.ReadyAfter = e.Ready
		if run := e.expected(c.Now - started); c.hasRunTime(e) && (!b.Ends || run < b.Runs) {
			b.Ends, b.Runs = true, run
		}
	}
	return b
}

// estimateOf returns the estimate that counts for a quota Workload, or nil.
func (c *Course) estimateOf(w *kueue.Workload) *Estimate {
	name := OwnerOf(w)
	for i := range c.Estimates {
		if e := &c.Estimates[i]; e.matches(w.Namespace, name.Name, w.Labels[apis.StageLabel]) {
			return e
		}
	}
	if took, ready, ok := c.History.Medians(w); ok {
		return &Estimate{Run: took, Ready: ready}
	}
	return nil
}

// EndOf returns when a running quota Workload ends by its limit, or about then by an estimate, whichever is first, or zero.
func (d *Durations) EndOf(w *kueue.Workload, now time.Time) time.Time {
	c := &Course{Estimates: d.Estimates, History: d.PastRuns}
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted == nil {
		return time.Time{}
	}
	end := d.limitOf(w)
	if e := c.estimateOf(w); c.hasRunTime(e) {
		about := admitted.LastTransitionTime.Add(e.expected(now.Sub(admitted.LastTransitionTime.Time)))
		if end.IsZero() || about.Before(end) {
			end = about
		}
	}
	return end
}

// limitOf returns when an admitted quota Workload has run for its maximum execution time, or zero.
func (*Durations) limitOf(w *kueue.Workload) time.Time {
	admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted)
	limit := w.Spec.MaximumExecutionTimeSeconds
	if admitted == nil || limit == nil {
		return time.Time{}
	}
	return admitted.LastTransitionTime.Add(time.Duration(*limit-ptr.Deref(w.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second)
}

// HasReachedLimit reports whether a quota Workload has run for its maximum execution time.
func (d *Durations) HasReachedLimit(w *kueue.Workload, now time.Time) bool {
	end := d.limitOf(w)
	return !end.IsZero() && !now.Before(end)
}

// IsEndless reports whether a quota Workload holds quota, and nothing is known of when it releases it.
func (c *Course) IsEndless(w *kueue.Workload) bool {
	if !quotaworkload.HoldsQuota(w) || cluster.IsFinished(w) || quotaworkload.IsTrue(w, kueue.WorkloadEvicted) || w.Spec.MaximumExecutionTimeSeconds != nil {
		return false
	}
	return !c.hasRunTime(c.estimateOf(w))
}

// hasRunTime reports whether an estimate determines when a stage ends.
func (c *Course) hasRunTime(e *Estimate) bool { return e != nil && e.Run > 0 && !c.OnlyLimits }

// OwnerOf returns the JobSet of a quota Workload, or another owner. A quota Workload without an owner is its own.
func OwnerOf(w *kueue.Workload) types.NamespacedName {
	name := w.Name
	if owner := metav1.GetControllerOfNoCopy(w); owner != nil {
		name = owner.Name
	}
	if js := w.Labels[apis.JobSetLabel]; js != "" {
		name = js
	}
	return types.NamespacedName{Namespace: w.Namespace, Name: name}
}
