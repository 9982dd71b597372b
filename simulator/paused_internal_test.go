package simulator

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/durations"
	"github.com/tranche-dev/tranche/simulator/internal/jobcontrollers"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Paused is a scenario at some time.
type Paused struct {
	s *simulation
	// Taken has its objects.
	Taken *snapshot.Snapshot
}

// Pause runs a scenario until some time.
func Pause(text string, at time.Duration) (*Paused, error) {
	script, err := scenario.Parse(text)
	if err != nil {
		return nil, err
	}
	s := newSimulation()
	if err := s.start(script, nil); err != nil {
		return nil, err
	}
	for i := range script.Lines {
		if _, isRun := script.Lines[i].Statement.(scenario.Run); isRun {
			continue
		}
		if err := s.schedule(&script.Lines[i]); err != nil {
			return nil, err
		}
	}
	if err := s.runUntil(at); err != nil {
		return nil, err
	}
	return &Paused{s: s, Taken: snapshotOf(s)}, nil
}

// Pending returns the quota Workloads that are not admitted.
func (p *Paused) Pending() []admission.StageKey {
	return PendingStages(p.Taken, func(admission.StageKey) bool { return true })
}

// Why returns what the engine of the run reports about a quota Workload.
func (p *Paused) Why(key admission.StageKey) (r Reason, ok bool) {
	if r.Pending, ok = p.s.Engine.PendingStage(key); !ok {
		return r, false
	}
	r.Explanation, _ = p.s.Engine.Explanation(key)
	return r, true
}

// IsAdmittedAfter reports whether a quota Workload is admitted when users and administrators make some changes, and nothing else happens. Pods that are
// told to stop terminate at once.
func (p *Paused) IsAdmittedAfter(key admission.StageKey, changes []Change) (bool, error) {
	s, _, err := reload(p.s)
	if err != nil {
		return false, err
	}
	for _, jobs := range []map[types.NamespacedName]*cluster.UserJob{s.UserJobs, s.PlainJobs} {
		for _, j := range jobs {
			submission := *j.Submission
			submission.StopAfter = 0
			j.Submission = &submission
		}
	}
	s.Course = nothingHappens{}
	jobcontrollers.AnswerChecks(s.Cluster, 0)
	if err := s.resume(); err != nil {
		return false, err
	}
	watched := &forecast{simulation: s, admitted: map[admission.StageKey]time.Duration{key: -1}}
	watched.watch()
	for i := range changes {
		c := &changes[i]
		if c.Succeeds.Name != "" {
			w := s.Workloads[c.Succeeds]
			s.act(scenario.Act{Action: scenario.Finish, Target: scenario.Target{
				Namespace: w.Namespace, Name: durations.OwnerOf(w).Name, Part: w.Labels[apis.StageLabel],
			}})
			continue
		}
		if c.Limit.Kind == visibility.Cohort {
			after := c.Limit.Set(&snapshot.Snapshot{Cohorts: append(snapshot.Snapshot{}.Cohorts, s.Cohorts[c.Limit.Name])}, c.To)
			s.PutCohort(after.Cohorts[0])
			continue
		}
		after := c.Limit.Set(&snapshot.Snapshot{ClusterQueues: append(snapshot.Snapshot{}.ClusterQueues, s.ClusterQueues[c.Limit.Name])}, c.To)
		s.PutClusterQueue(after.ClusterQueues[0])
	}
	if err := s.instant(); err != nil {
		return false, err
	}
	return watched.admitted[key] >= 0, nil
}

// IsTerminating reports whether pods are being stopped.
func (p *Paused) IsTerminating() bool {
	for _, pods := range p.s.Pods {
		if pods.Terminating > 0 {
			return true
		}
	}
	for _, j := range p.s.PlainJobs {
		if j.Plain.IsStopping {
			return true
		}
	}
	return false
}
