package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/queuedjob"
	"github.com/tranche-dev/tranche/simulator/internal/durations"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/internal/scope"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// A ChangedWorld is a scenario in which administrators change queues, and users submit JobSets and Jobs, at the end: the lines behind the first run line. It has
// what really happens, without a snapshot in between, if each stage runs as long as its limit.
type ChangedWorld struct {
	// Before has the objects before the change, and Manifests those of administrators with it and the JobSets and Jobs that are
	// submitted.
	Before, Manifests *snapshot.Snapshot
	// Without and With are what happens without and with the change.
	Without, With *Outcome
}

// RunChanged runs a scenario twice, with and without its change. Pods get ready, and AdmissionChecks are Ready, after the times of the durations.
func RunChanged(script *scenario.Scenario, config *configapi.Configuration, d *Durations, horizon time.Duration) (*ChangedWorld, error) {
	w := &ChangedWorld{}
	for _, isChanged := range []bool{false, true} {
		s, change, err := runToChange(script, config, d)
		if err != nil {
			return nil, err
		}
		w.Before = frozen(snapshotOf(s))
		w.Before.Configuration = config
		t := trackerOf(s)
		t.watch(scope.Trees(w.Before))
		if isChanged {
			for _, line := range change {
				if err := s.schedule(line); err != nil {
					return nil, err
				}
			}
			for f := s.Events.Due(s.Now); f != nil; f = s.Events.Due(s.Now) {
				f()
			}
			w.Manifests = manifestsOf(s)
			w.submitted(s)
			w.suspended(s)
		}
		until := s.Now + horizon
		if err := s.advanceTo(until); err != nil {
			return nil, err
		}
		if len(s.Violations) > 0 {
			return nil, fmt.Errorf("violations: %q", s.Violations)
		}
		outcome := t.outcome(w.Before.TakenAt, w.Before.TakenAt.Add(horizon))
		if w.With = outcome; !isChanged {
			w.Without = outcome
		}
	}
	return w, nil
}

// submitted adds the JobSets and queued Jobs that are not in the snapshot to the manifests, the Jobs as users write them.
func (w *ChangedWorld) submitted(s *simulation) {
	for _, js := range sorted(s.JobSets) {
		if !slices.ContainsFunc(w.Before.JobSets, func(old *jobsetapi.JobSet) bool { return old.UID == js.UID }) {
			w.Manifests.JobSets = append(w.Manifests.JobSets, s.UserJobs[types.NamespacedName{Namespace: js.Namespace, Name: js.Name}].NewJobSet())
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.QueuedJobs), func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) }) {
		if slices.ContainsFunc(w.Before.Jobs, func(old *batchv1.Job) bool { return old.Namespace == key.Namespace && old.Name == key.Name }) {
			continue
		}
		job := s.QueuedJobs[key].NewJob()
		job.Spec.Suspend = nil
		delete(job.Labels, apis.HoldLabel)
		w.Manifests.Jobs = append(w.Manifests.Jobs, job)
	}
}

// suspended adds the JobSets and queued Jobs of the snapshot that their users suspend or resume to the manifests, as users write them.
func (w *ChangedWorld) suspended(s *simulation) {
	for _, old := range w.Before.JobSets {
		key := types.NamespacedName{Namespace: old.Namespace, Name: old.Name}
		now := s.JobSets[key]
		if now == nil || *now.Spec.Suspend == *old.Spec.Suspend {
			continue
		}
		manifest := s.UserJobs[key].NewJobSet()
		manifest.Spec.ReplicatedJobs, manifest.Spec.Suspend = old.DeepCopy().Spec.ReplicatedJobs, now.Spec.Suspend
		w.Manifests.JobSets = append(w.Manifests.JobSets, manifest)
	}
	for _, old := range w.Before.Jobs {
		key := types.NamespacedName{Namespace: old.Namespace, Name: old.Name}
		now := s.QueuedJob(key)
		if now == nil || queuedjob.IsSuspendedByUser(now) == queuedjob.IsSuspendedByUser(old) {
			continue
		}
		manifest := s.QueuedJobs[key].NewJob()
		manifest.Spec.Suspend = new(queuedjob.IsSuspendedByUser(now))
		delete(manifest.Labels, apis.HoldLabel)
		w.Manifests.Jobs = append(w.Manifests.Jobs, manifest)
	}
}

// frozen returns a snapshot whose objects the simulation does not change.
func frozen(s *snapshot.Snapshot) *snapshot.Snapshot {
	f := &snapshot.Snapshot{TakenAt: s.TakenAt}
	for _, kind := range snapshot.Kinds() {
		for object := range s.Objects(kind) {
			object.GetObjectKind().SetGroupVersionKind(kind.GVK)
			f.Put(kind, object.DeepCopyObject().(snapshot.Object)) //nolint:forcetypeassert // a copy has the same type
		}
	}
	for _, js := range f.JobSets {
		for i := range js.Status.Conditions {
			js.Status.Conditions[i].LastTransitionTime = metav1.NewTime(s.TakenAt) // the manager takes that of the computer
		}
	}
	return f
}

// runToChange runs the lines up to the first run line, and returns the others.
func runToChange(script *scenario.Scenario, config *configapi.Configuration, d *Durations) (*simulation, []*scenario.Line, error) {
	s := newSimulation()
	if err := s.start(script, nil); err != nil {
		return nil, nil, err
	}
	if config != nil {
		s.Config = scenario.Config{Config: admission.ConfigOf(config), WaitForPodsReady: config.WaitForPodsReady}
		if err := s.Start(); err != nil {
			return nil, nil, err
		}
	}
	jobcontrollers.AnswerChecks(s.Cluster, d.Checks)
	s.Course = &durations.Course{Cluster: s.Cluster, Estimates: d.Estimates}
	for i := range script.Lines {
		if err := s.schedule(&script.Lines[i]); err != nil {
			return nil, nil, err
		}
		if _, isRun := script.Lines[i].Statement.(scenario.Run); isRun {
			var rest []*scenario.Line
			for k := range script.Lines[i+1:] {
				rest = append(rest, &script.Lines[i+1+k])
			}
			return s, rest, nil
		}
	}
	return nil, nil, fmt.Errorf("the scenario has no run line")
}

// trackerOf returns a tracker of a simulation that is running.
func trackerOf(s *simulation) *tracker {
	course, _ := s.Course.(*durations.Course)
	return newTracker(&forecast{simulation: s, durations: &Durations{}, course: course})
}

// advanceTo runs the events until a time, and stays at the last of them.
func (s *simulation) advanceTo(until time.Duration) error {
	t := &forecast{simulation: s, toTheEnd: true}
	return t.advance(until)
}

// manifestsOf returns the objects that administrators write, as they write them.
func manifestsOf(s *simulation) *snapshot.Snapshot {
	all, m := snapshotOf(s), &snapshot.Snapshot{}
	for _, kind := range snapshot.Kinds() {
		if !slices.Contains([]string{"Namespace", "ResourceFlavor", "AdmissionCheck", "WorkloadPriorityClass", "Cohort", "ClusterQueue", "LocalQueue"}, kind.GVK.Kind) {
			continue
		}
		for object := range all.Objects(kind) {
			manifest := kind.Reduce(object)
			manifest.SetUID("")
			manifest.SetResourceVersion("")
			manifest.SetGeneration(0)
			manifest.SetCreationTimestamp(metav1.Time{})
			m.Put(kind, manifest)
		}
	}
	return m
}

// HistoriesOf returns the histories by the names of quota Workloads, without the explanations, which may name another holder of the same quota.
func HistoriesOf(o *Outcome) map[admission.StageKey]History {
	names := map[admission.StageKey]admission.StageKey{}
	for i := range o.Histories {
		h := &o.Histories[i]
		names[h.Workload] = NameOf(h.Workload, cmp.Or(h.JobSet, h.Job), h.Stage, h.Growth)
	}
	all := map[admission.StageKey]History{}
	for i := range o.Histories {
		h := o.Histories[i]
		if h.End == Gone && len(h.Starts) == 0 && !h.IsAdmitted {
			continue
		}
		h.Check, h.Message, h.Blockers = "", "", nil
		h.Workload = names[h.Workload]
		h.Evictions = slices.Clone(h.Evictions)
		for k := range h.Evictions {
			if name, isKnown := names[h.Evictions[k].Preemptor]; isKnown {
				h.Evictions[k].Preemptor = name
			}
		}
		all[h.Workload] = h
	}
	return all
}

// NameOf returns the name of a quota Workload without the hash of the UID of its JobSet or Job: one that is submitted gets another UID than in a plan.
func NameOf(workload admission.StageKey, owner, stage string, growth int) admission.StageKey {
	if owner == "" {
		return workload
	}
	return admission.StageKey{Namespace: workload.Namespace, Name: fmt.Sprintf("%s/%s+%d", owner, stage, growth)}
}
