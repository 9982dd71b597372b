package simulator

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/internal/cluster"
	"github.com/tranche-dev/tranche/simulator/internal/load"
	"github.com/tranche-dev/tranche/simulator/internal/manager"
	"github.com/tranche-dev/tranche/simulator/scenario"
	"github.com/tranche-dev/tranche/snapshot"
)

// A LeftOut is an object of a snapshot that is not simulated, and why: a JobSet that the manager would not manage, or would refuse.
type LeftOut = load.LeftOut

// fromSnapshot returns a simulation with the objects of a snapshot. Time begins when the snapshot was taken. Pods that are told to stop take some
// time to terminate. No manager runs yet.
func fromSnapshot(s *snapshot.Snapshot, stopAfter time.Duration) (*simulation, []LeftOut, error) {
	file, err := configurationOf(s)
	if err != nil {
		return nil, nil, err
	}
	cl, leftOut := load.Cluster(s, file, stopAfter)
	m := manager.New(cl)
	m.Config = scenario.Config{Config: admission.ConfigOf(file), WaitForPodsReady: file.WaitForPodsReady}
	return simulate(m), leftOut, nil
}

// WhyLeftOut says why the manager would not manage a JobSet of a snapshot that has no quota Workloads, or would refuse it, or returns "".
func WhyLeftOut(s *snapshot.Snapshot, js *jobsetapi.JobSet) string {
	alone := *s
	alone.JobSets, alone.Workloads, alone.Jobs, alone.Pods = []*jobsetapi.JobSet{js}, nil, nil, nil
	_, leftOut, err := fromSnapshot(&alone, 0)
	switch {
	case err != nil:
		return err.Error()
	case len(leftOut) > 0:
		return leftOut[0].Why
	}
	return ""
}

// configurationOf returns the configuration of the manager with its defaults.
func configurationOf(s *snapshot.Snapshot) (*configapi.Configuration, error) {
	file := s.Configuration.DeepCopy()
	if file == nil {
		file = &configapi.Configuration{}
	}
	file.SetDefaults()
	if err := file.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return file, nil
}

// resume plans what the pods of a snapshot do, and starts a manager, which reads all objects as after a crash.
func (s *simulation) resume() error {
	s.continuePods()
	return s.Start()
}

func (s *simulation) continuePods() {
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		if job := s.Jobs[uid]; job != nil {
			s.jobController.Continue(job)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.PlainJobs), cluster.CompareKeys) {
		s.plainJobController.Continue(s.PlainJobs[key])
	}
}
