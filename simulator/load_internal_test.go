package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// snapshotOf returns the API objects of a simulation.
func snapshotOf(s *simulation) *snapshot.Snapshot {
	o := &snapshot.Snapshot{
		TakenAt: s.Time(), Namespaces: sorted(s.Namespaces), ResourceFlavors: sorted(s.Flavors), AdmissionChecks: sorted(s.AdmissionChecks),
		PriorityClasses: sorted(s.PriorityClasses), Cohorts: sorted(s.Cohorts), ClusterQueues: sorted(s.ClusterQueues), LocalQueues: sorted(s.LocalQueues),
		LimitRanges: sorted(s.LimitRanges), RuntimeClasses: sorted(s.RuntimeClasses), DeviceClasses: sorted(s.DeviceClasses), JobSets: sorted(s.JobSets),
		Jobs: sorted(s.Jobs), Workloads: sorted(s.Workloads),
	}
	for _, job := range o.Jobs {
		if p := s.Pods[job.UID]; p != nil {
			for i := range p.Terminating {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: fmt.Sprintf("%s-%d", job.Name, i)}}
				pod.DeletionTimestamp = new(metav1.NewTime(s.Beginning().Add(p.EndsAt)))
				pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
				o.Pods = append(o.Pods, pod)
			}
		}
	}
	return o
}

func sorted[K comparable, T metav1.Object](objects map[K]T) []T {
	return slices.SortedFunc(maps.Values(objects), func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetUID(), b.GetUID()))
	})
}

// RunReloaded runs a scenario, and goes on from a snapshot of its objects that is taken at this time. It returns the lines of both runs in order,
// and the problems that it finds. There are no lines if the objects do not have all of the state at that time.
func RunReloaded(script *scenario.Scenario, at time.Duration) (lines, problems []string, err error) {
	first := newSimulation()
	if err := first.start(script, nil); err != nil {
		return nil, nil, err
	}
	rest, i := []*scenario.Line{}, 0
	for ; i < len(script.Lines); i++ {
		line := &script.Lines[i]
		if run, is := line.Statement.(scenario.Run); is && (run.ToTheEnd || run.Until > at) {
			break
		}
		if line.At > at {
			rest = append(rest, line)
			continue
		}
		if err := first.schedule(line); err != nil {
			return nil, nil, err
		}
	}
	if err := first.runUntil(at); err != nil {
		return nil, nil, err
	}
	for key, j := range first.PlainJobs {
		if w := first.Workloads[key]; j.Plain.HasEnded && w != nil && !cluster.IsFinished(w) {
			return nil, nil, nil // no object shows that the other pods of a failed job are told to stop
		}
	}
	second, problems, err := reload(first)
	if err != nil {
		return nil, nil, err
	}
	for _, line := range rest {
		if err := second.schedule(line); err != nil {
			return nil, nil, err
		}
	}
	if err := second.resume(); err != nil {
		return nil, nil, err
	}
	problems = append(problems, second.disturbances()...)
	for ; i < len(script.Lines); i++ {
		if err := second.schedule(&script.Lines[i]); err != nil {
			return nil, nil, err
		}
	}
	if err := second.runToTheEnd(); err != nil {
		return nil, nil, err
	}
	second.Held("")
	return slices.Concat(first.Lines, second.Lines), slices.Concat(problems, first.Violations, second.Violations), nil
}

// reload returns a simulation of the objects of another one. What only users and pods know is copied: run times, later changes, and when pods
// were started.
func reload(from *simulation) (to *simulation, problems []string, err error) {
	to, leftOut, err := fromSnapshot(snapshotOf(from), 0)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range leftOut {
		problems = append(problems, fmt.Sprintf("%s %s is left out: %s", o.Kind, o.Key, o.Why))
	}
	to.Begin, to.Now = from.Beginning(), from.Now
	to.Config, to.hasRun = from.Config, from.hasRun
	to.Failing, to.DiesAfter = from.Failing, from.DiesAfter
	if from.DiesAfter >= 0 {
		to.DiesAfter -= from.Writes
	}
	for key, j := range from.UserJobs {
		loaded := to.UserJobs[key]
		switch js := from.JobSets[key]; {
		case js == nil:
			to.UserJobs[key] = j
			continue
		case loaded == nil:
			problems = append(problems, fmt.Sprintf("JobSet %s is missing", key))
			continue
		default:
			if len(from.LimitRanges)+len(from.RuntimeClasses) == 0 { // the simulator leaves their defaults to the engine
				if from.hasEnded(js) {
					loaded.Priority = j.Priority // its quota Workloads do not follow later changes
				}
				problems = append(problems, differences(js, loaded, j)...)
			}
		}
		loaded.Submission, loaded.Settings, loaded.PriorityClass = j.Submission, j.Settings, nil
	}
	for key, j := range from.QueuedJobs {
		loaded := to.QueuedJobs[key]
		switch {
		case from.QueuedJob(key) == nil:
			to.QueuedJobs[key] = j // it is deleted
			continue
		case loaded == nil:
			problems = append(problems, fmt.Sprintf("Job %s is missing", key))
			continue
		case loaded.IsElastic != j.IsElastic || loaded.Queue != j.Queue || loaded.Priority != j.Priority || !ptr.Equal(loaded.MaxSeconds, j.MaxSeconds):
			problems = append(problems, fmt.Sprintf("Job %s is loaded as %+v, want %+v", key, loaded.Submission, j.Submission))
		}
		if got, want := loaded.Plan.Stages[0].PodSets[0].Count, j.Plan.Stages[0].PodSets[0].Count; got != want {
			problems = append(problems, fmt.Sprintf("Job %s has %d pods, want %d", key, got, want))
		}
		loaded.Submission, loaded.Settings, loaded.PriorityClass = j.Submission, j.Settings, nil
	}
	for uid, p := range from.Pods {
		problems = append(problems, countDifferences(from.Jobs[uid], to.Pods[uid], p)...)
		to.Pods[uid] = copiedPods(p)
	}
	for key, j := range from.PlainJobs {
		loaded := to.PlainJobs[key]
		if loaded == nil {
			to.PlainJobs[key] = j // its quota Workload is deleted
			continue
		}
		a, b := *loaded.Plain, *j.Plain
		a.Pods, b.Pods, a.StopsAt, b.StopsAt = nil, nil, 0, 0
		if diff := gocmp.Diff(b, a, cmpopts.EquateEmpty()); diff != "" && !cluster.IsFinished(from.Workloads[key]) {
			problems = append(problems, fmt.Sprintf("job %s: -want +got\n%s", key, diff))
		}
		loaded.Submission, loaded.Settings, loaded.Plain.StopsAt = j.Submission, j.Settings, j.Plain.StopsAt
		for name, p := range j.Plain.Pods {
			loaded.Plain.Pods[name] = copiedPods(p)
		}
	}
	return to, problems, nil
}

// hasEnded reports whether all quota Workloads of a JobSet have finished.
func (s *simulation) hasEnded(js *jobsetapi.JobSet) bool {
	all, finished := 0, 0
	for _, w := range s.Workloads {
		if w.Labels[apis.JobUIDLabel] == string(js.UID) {
			all++
			if cluster.IsFinished(w) {
				finished++
			}
		}
	}
	return all > 0 && all == finished
}

// differences compares what the loader computes for a JobSet with the submission.
func differences(js *jobsetapi.JobSet, got, want *cluster.UserJob) (all []string) {
	if !equality.Semantic.DeepEqual(got.Plan, want.Plan) {
		all = append(all, fmt.Sprintf("the plan of JobSet %s is %s, want %s", js.Name, got.Plan, want.Plan))
	}
	if got.Priority != want.Priority || !equality.Semantic.DeepEqual(got.ClassRef(), want.ClassRef()) || got.StageAdmission != want.StageAdmission {
		all = append(all, fmt.Sprintf("JobSet %s has priority %d %v, policy %s, want %d %v, %s", js.Name, got.Priority, got.ClassRef(), got.StageAdmission,
			want.Priority, want.ClassRef(), want.StageAdmission))
	}
	return all
}

func countDifferences(job *batchv1.Job, got, want *cluster.PodSet) []string {
	count := func(p *cluster.PodSet) string {
		if p == nil {
			return "no pods"
		}
		return fmt.Sprint(p.Count(cluster.IsRunning), p.Count(cluster.IsReady), p.Count(cluster.HasSucceeded), p.Terminating)
	}
	if job == nil || cluster.IsFailed(job) || count(got) == count(want) {
		return nil
	}
	return []string{fmt.Sprintf("Job %s has %s running, ready, succeeded and terminating pods, want %s", job.Name, count(got), count(want))}
}

func copiedPods(p *cluster.PodSet) *cluster.PodSet {
	c := *p
	c.Batches = nil
	for _, b := range p.Batches {
		one := *b
		c.Batches = append(c.Batches, &one)
	}
	return &c
}

// disturbances does all work that is due without an event, and returns the objects that it changes. The manager may report again why stages wait.
func (s *simulation) disturbances() (all []string) {
	if s.Events.IsDue(s.Now) {
		return nil
	}
	jobs, writes := maps.Clone(s.Jobs), s.Writes
	admissions := map[types.NamespacedName]any{}
	for key, w := range s.Workloads {
		admissions[key] = w.Status.Admission
	}
	jobSets := maps.Clone(s.JobSets)
	if err := s.instant(); err != nil {
		return []string{err.Error()}
	}
	for uid, job := range s.Jobs {
		if jobs[uid] != job {
			all = append(all, fmt.Sprintf("Job %s is written: -before +after\n%s", job.Name, gocmp.Diff(jobs[uid], job)))
		}
	}
	for key, w := range s.Workloads {
		if !equality.Semantic.DeepEqual(admissions[key], any(w.Status.Admission)) {
			all = append(all, fmt.Sprintf("quota Workload %s is admitted or evicted", key))
		}
	}
	reports := 0
	for key, js := range s.JobSets {
		// The amounts in a message are those of the last time at which the engine tried the stage. A new engine has tried all stages.
		if before := jobSets[key]; before != nil && before.ResourceVersion != js.ResourceVersion && equality.Semantic.DeepEqual(before.Spec, js.Spec) {
			reports++
		}
	}
	if others := s.Writes - writes - reports; others != 0 {
		all = append(all, "the manager writes "+strconv.Itoa(others)+" objects beside conditions of JobSets")
	}
	return all
}

// IsReloadable reports whether a snapshot has all that matters of a run at this time: which write fails is not part of it.
func IsReloadable(script *scenario.Scenario) bool {
	return !strings.Contains(script.Script(), "\nfail-write ") && !strings.Contains(script.Script(), "\ncrash ")
}
