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
	// lags are those of the JobSets that are admitted as a whole, by attempt.
	lags map[attempt]map[string]lag
}

type attempt struct {
	jobSet types.NamespacedName
	number int
}

// OfJob implements cluster.Course. All Jobs of a JobSet that is admitted as a whole start together: those of a later stage do nothing until the
// stages before it have reached what it waits for.
func (c *course) OfJob(j *cluster.UserJob, job *batchv1.Job, _ time.Duration) cluster.Behavior {
	arrival := c.arrivals[j.Key()]
	if arrival == nil {
		return cluster.Behavior{GetsReady: true}
	}
	index, _ := strconv.Atoi(job.Labels[jobset.JobIndexKey])
	name, number := job.Labels[jobset.ReplicatedJobNameKey], cluster.AttemptOf(job)
	took := arrival.courseOf(Job{name, index, number})
	b := cluster.Behavior{ReadyAfter: took.Ready, GetsReady: took.GetsReady, Runs: took.Run, Ends: took.Ends, Fails: took.Fails}
	if c.policy == Staged {
		return b
	}
	key := attempt{j.Key(), number}
	if c.lags[key] == nil {
		c.lags[key] = arrival.lags(number)
	}
	starts := c.lags[key][name]
	b.ReadyAfter, b.Runs = b.ReadyAfter+starts.after, b.Runs+starts.after
	b.GetsReady, b.Ends = b.GetsReady && !starts.isNever, b.Ends && !starts.isNever
	return b
}

// OfPodSet implements cluster.Course.
func (c *course) OfPodSet(j *cluster.UserJob, _ string, _ time.Duration) cluster.Behavior {
	b := cluster.Behavior{GetsReady: true}
	if arrival := c.arrivals[j.Key()]; arrival != nil && arrival.Run > 0 {
		b.Runs, b.Ends = arrival.Run, true
	}
	return b
}
