// Package shape reads the load of the end-to-end benchmark, the queues and the quota Workloads submitted over time, and computes the
// shortest possible time for it.
package shape

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"
)

// A Shape is the content of one file.
type Shape struct {
	// Cohorts is how many cohorts there are.
	Cohorts int `json:"cohorts"`
	// QueuesPerCohort is how many ClusterQueues each cohort has.
	QueuesPerCohort int `json:"queuesPerCohort"`
	// Queue describes all ClusterQueues.
	Queue Queue `json:"queue"`
	// Classes are submitted to each ClusterQueue.
	Classes []Class `json:"classes"`
}

// A Queue is a ClusterQueue with its LocalQueues.
type Queue struct {
	// Strategy is StrictFIFO or BestEffortFIFO.
	Strategy kueue.QueueingStrategy `json:"strategy"`
	// NominalCPU is its quota.
	NominalCPU resource.Quantity `json:"nominalCPU"`
	// BorrowingLimitCPU bounds what it may borrow.
	BorrowingLimitCPU resource.Quantity `json:"borrowingLimitCPU"`
	// ReclaimWithinCohort and WithinClusterQueue are its preemption policies.
	ReclaimWithinCohort kueue.PreemptionPolicy `json:"reclaimWithinCohort"`
	WithinClusterQueue  kueue.PreemptionPolicy `json:"withinClusterQueue"`
	// LocalQueues is how many LocalQueues lead to it. What is submitted goes to one after the other.
	LocalQueues int `json:"localQueues"`
}

// A Class is a kind of quota Workload of which each ClusterQueue gets some.
type Class struct {
	// Name of the class.
	Name string `json:"name"`
	// Count is how many of them are submitted to each ClusterQueue.
	Count int `json:"count"`
	// Every is the time between two of them. The first comes after that time, too.
	Every metav1.Duration `json:"every"`
	// Priority orders the classes.
	Priority int32 `json:"priority"`
	// CPU is what one of them asks for.
	CPU resource.Quantity `json:"cpu"`
	// Runs is how long one of them runs from its admission on.
	Runs metav1.Duration `json:"runs"`
}

// Decode reads a shape. A field that is not known is an error.
func Decode(data []byte) (*Shape, error) {
	s := &Shape{}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, fmt.Errorf("decode shape: %w", err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("check shape: %w", err)
	}
	return s, nil
}

func (s *Shape) validate() error {
	var problems []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	q := &s.Queue
	require(s.Cohorts > 0, "cohorts is %d, must be positive", s.Cohorts)
	require(s.QueuesPerCohort > 0, "queuesPerCohort is %d, must be positive", s.QueuesPerCohort)
	require(q.Strategy == kueue.StrictFIFO || q.Strategy == kueue.BestEffortFIFO, "queue.strategy is %q, must be StrictFIFO or BestEffortFIFO", q.Strategy)
	require(q.NominalCPU.Sign() > 0, "queue.nominalCPU is %s, must be positive", &q.NominalCPU)
	require(q.BorrowingLimitCPU.Sign() >= 0, "queue.borrowingLimitCPU must not be negative")
	require(q.LocalQueues > 0, "queue.localQueues is %d, must be positive", q.LocalQueues)
	require(len(s.Classes) > 0, "there are no classes")
	names := map[string]struct{}{}
	for i := range s.Classes {
		c := &s.Classes[i]
		_, known := names[c.Name]
		names[c.Name] = struct{}{}
		require(c.Name != "" && !known, "classes[%d].name is %q, must be unique and not empty", i, c.Name)
		require(c.Count > 0, "class %s: count is %d, must be positive", c.Name, c.Count)
		require(c.Every.Duration >= 0, "class %s: every is %s, must not be negative", c.Name, c.Every.Duration)
		require(c.Runs.Duration > 0, "class %s: runs is %s, must be positive", c.Name, c.Runs.Duration)
		require(c.CPU.Sign() > 0 && c.CPU.MilliValue() <= s.QueueLimit(), "class %s: cpu is %s, must be positive and fit a queue", c.Name, &c.CPU)
	}
	return errors.Join(problems...)
}

// AllAtOnce removes the pauses between submissions.
func (s *Shape) AllAtOnce() {
	for i := range s.Classes {
		s.Classes[i].Every.Duration = 0
	}
}

// Queues is how many ClusterQueues there are.
func (s *Shape) Queues() int { return s.Cohorts * s.QueuesPerCohort }

// Tree is the index of the cohort that a ClusterQueue belongs to.
func (s *Shape) Tree(queue int) int { return queue / s.QueuesPerCohort }

// Lives is how many quota Workloads are submitted.
func (s *Shape) Lives() int {
	n := 0
	for i := range s.Classes {
		n += s.Classes[i].Count
	}
	return n * s.Queues()
}

// QueueLimit is the most that may be used in a ClusterQueue, in thousandths of a CPU.
func (s *Shape) QueueLimit() int64 {
	limit := s.Queue.NominalCPU.MilliValue()
	return min(limit+s.Queue.BorrowingLimitCPU.MilliValue(), s.TreeLimit())
}

// TreeLimit is the same in a cohort.
func (s *Shape) TreeLimit() int64 { return s.Queue.NominalCPU.MilliValue() * int64(s.QueuesPerCohort) }

// QuotaBound is how long it takes with all quota in use all the time. Every queue gets the same, so that none has quota to lend in
// the long run.
func (s *Shape) QuotaBound() time.Duration {
	var work float64 // milli-CPU nanoseconds for each queue
	for i := range s.Classes {
		c := &s.Classes[i]
		work += float64(c.Count) * float64(c.CPU.MilliValue()) * float64(c.Runs.Duration)
	}
	return time.Duration(work / float64(s.Queue.NominalCPU.MilliValue()))
}

// ArrivalBound is when the last quota Workload could be finished if each was admitted at its creation.
func (s *Shape) ArrivalBound() time.Duration {
	var last time.Duration
	for i := range s.Classes {
		c := &s.Classes[i]
		last = max(last, time.Duration(c.Count)*c.Every.Duration+c.Runs.Duration)
	}
	return last
}
