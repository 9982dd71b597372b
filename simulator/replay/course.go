package replay

import (
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/simulator/internal/cluster"
)

// A course lets pods take as long as they did.
type course struct {
	arrivals map[types.NamespacedName]*Arrival
	policy   Policy
	// begin is when virtual time begins.
	begin time.Time
	// lags are those of the JobSets that are admitted as a whole, by attempt.
	lags map[attempt]map[string]lag
	// executed is called when the pods of a Job start.
	executed func(types.NamespacedName, *Execution)
}

type attempt struct {
	jobSet types.NamespacedName
	number int
}

// OfJob implements cluster.Course. All Jobs of a JobSet that is admitted as a whole start together: those of a later stage do nothing until the
// stages before it have reached what it waits for.
func (c *course) OfJob(j *cluster.UserJob, job *batchv1.Job, started time.Duration) cluster.Behavior {
	arrival := c.arrivals[j.Key()]
	if arrival == nil {
		return cluster.Behavior{GetsReady: true}
	}
	index, _ := strconv.Atoi(job.Labels[jobset.JobIndexKey])
	name, number := job.Labels[jobset.ReplicatedJobNameKey], cluster.AttemptOf(job)
	took, starts := arrival.courseOf(Job{name, index, number}), lag{}
	if c.policy == Whole {
		key := attempt{j.Key(), number}
		if c.lags[key] == nil {
			c.lags[key] = arrival.lags(number)
		}
		starts = c.lags[key][name]
	}
	if !starts.isNever {
		e := begin(Job{name, index, number}, c.begin.Add(started), starts, &took)
		c.executed(j.Key(), &e)
	}
	return cluster.Behavior{
		ReadyAfter: took.Ready + starts.after, GetsReady: took.GetsReady && !starts.isNever,
		Runs: took.Run + starts.after, Ends: took.Ends && !starts.isNever, Fails: took.Fails,
	}
}

// OfPodSet implements cluster.Course.
func (c *course) OfPodSet(j *cluster.UserJob, _ string, _ time.Duration) cluster.Behavior {
	b := cluster.Behavior{GetsReady: true}
	if arrival := c.arrivals[j.Key()]; arrival != nil && arrival.Run > 0 {
		b.Runs, b.Ends = arrival.Run, true
	}
	return b
}
