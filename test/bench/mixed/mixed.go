// Package mixed draws the load on which scheduling policies are compared: staged JobSets of several tenants that share GPUs, of all sizes from one GPU to
// half of the quota. The same Shape and seed always give the same JobSets.
package mixed

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
)

// A Shape is what JobSets are drawn for.
type Shape struct {
	// JobSets is how many there are.
	JobSets int
	// Tenants share the quota of GPUs in one Cohort. A JobSet asks for at most Largest GPUs at once, and belongs to a tenant that has as much nominal quota.
	Tenants []Tenant
	Largest int64
	// Load is how much the JobSets run, in GPUs times time, divided by the quota times the time within which they are submitted.
	Load float64
	// Median is that of the run times of the largest stages. Times are multiples of Resolution.
	Median, Resolution time.Duration
}

// A Tenant has a namespace, a ClusterQueue of the same name, and a LocalQueue.
type Tenant struct {
	Name string
	GPUs int64
}

// Full is the shape of the study: 1,000 JobSets that arrive within about five days.
func Full() *Shape {
	return &Shape{
		JobSets: 1000, Tenants: []Tenant{{"research", 256}, {"product", 128}, {"platform", 128}}, Largest: 256,
		Load: 0.9, Median: 40 * time.Minute, Resolution: time.Second,
	}
}

// Scaled is a small shape with run times of seconds, for a control plane with fake nodes.
func Scaled() *Shape {
	return &Shape{
		JobSets: 40, Tenants: []Tenant{{"research", 16}, {"product", 8}, {"platform", 8}}, Largest: 16,
		Load: 0.9, Median: 5 * time.Second, Resolution: 100 * time.Millisecond,
	}
}

// Quota is how many GPUs all tenants have together.
func (s *Shape) Quota() int64 {
	sum := int64(0)
	for _, t := range s.Tenants {
		sum += t.GPUs
	}
	return sum
}

// A Submission is a JobSet, when it is submitted, and how long the Jobs of each of its ReplicatedJobs take.
type Submission struct {
	After   time.Duration
	JobSet  *jobsetapi.JobSet
	Courses map[string]replay.Course
}

// PerNode is how many GPUs a node has: larger jobs use whole nodes.
const PerNode = 8

// A draw makes JobSets from a seed.
type draw struct {
	*rand.Rand
	*Shape
}

// Draw draws the JobSets in the order of their submission.
func (s *Shape) Draw(seed uint64) []Submission {
	d := &draw{rand.New(rand.NewPCG(seed, 0)), s}
	kinds := []struct {
		name string
		draw func(size int64) []*task
	}{{"pretrain", d.pretrain}, {"sweep", d.sweep}, {"distribute", d.distribute}, {"plain", d.plain}}
	all := make([]Submission, s.JobSets)
	work := 0.0
	for i := range all {
		kind, size := kinds[d.IntN(len(kinds))], d.size()
		tasks := kind.draw(size)
		for j := range tasks {
			work += float64(tasks[j].pods*tasks[j].gpus) * tasks[j].holds().Seconds()
		}
		all[i] = s.submission(fmt.Sprintf("%s-%04d", kind.name, i), d.tenant(size), tasks, d.limit(tasks))
	}
	span := time.Duration(work / (s.Load * float64(s.Quota())) * float64(time.Second))
	for i, after := range d.arrivals(span) {
		all[i].After = after
		all[i].JobSet.CreationTimestamp = metav1.NewTime(Begin().Add(after).Truncate(time.Second))
	}
	return all
}

// Begin is when the time of submissions begins. Its date has no meaning.
func Begin() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// arrivals draws a Poisson process with as many arrivals as there are JobSets: given their number, the gaps between them are exponential ones, scaled to
// the span.
func (d *draw) arrivals(span time.Duration) []time.Duration {
	sums, sum := make([]float64, d.JobSets), 0.0
	for i := range sums {
		sum += d.ExpFloat64()
		sums[i] = sum
	}
	sum += d.ExpFloat64()
	times := make([]time.Duration, d.JobSets)
	for i := range times {
		times[i] = d.rounded(time.Duration(sums[i] / sum * float64(span)))
	}
	return times
}

// size draws a number of GPUs. Its logarithm is equally likely to be anywhere, and more than one node is whole nodes.
func (d *draw) size() int64 {
	size := int64(math.Exp(d.Float64() * math.Log(float64(d.Largest+1))))
	if size > PerNode {
		size = (size + PerNode - 1) / PerNode * PerNode
	}
	return min(size, d.Largest)
}

// tenant draws a tenant, by its quota, that has as much nominal quota.
func (d *draw) tenant(size int64) *Tenant {
	at := d.Int64N(d.Quota())
	for i := range d.Tenants {
		if at -= d.Tenants[i].GPUs; at < 0 && d.Tenants[i].GPUs >= size {
			return &d.Tenants[i]
		}
	}
	large := slices.MaxFunc(d.Tenants, func(a, b Tenant) int { return cmp.Compare(a.GPUs, b.GPUs) })
	return &large
}

// runTime draws a run time: lognormal, between a twentieth and twenty times the median.
func (d *draw) runTime() time.Duration {
	factor := math.Exp(d.NormFloat64())
	return d.rounded(time.Duration(min(max(factor, 1./20), 20) * float64(d.Median)))
}

// between draws a part of the median run time.
func (d *draw) between(least, most float64) time.Duration {
	return d.rounded(time.Duration((least + d.Float64()*(most-least)) * float64(d.Median)))
}

func (d *draw) rounded(t time.Duration) time.Duration {
	return max(t.Round(d.Resolution), d.Resolution)
}

// limit draws the maximum execution time of each stage, or 0 for none. It is some multiple of what the JobSet takes alone. Half of all JobSets have one:
// two thirds of those without a leader, because for a leader the time counts in which it waits for its workers.
func (d *draw) limit(tasks []*task) time.Duration {
	alone := time.Duration(0)
	for i := range tasks {
		if tasks[i].runs == 0 {
			return 0
		}
		alone += tasks[i].loads + tasks[i].runs
	}
	if d.IntN(3) == 0 {
		return 0
	}
	return (time.Duration((1.2+4*d.Float64())*float64(alone)) + time.Minute).Round(time.Second)
}

// submission makes a JobSet.
func (s *Shape) submission(name string, tenant *Tenant, tasks []*task, limit time.Duration) Submission {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant.Name, Name: name, UID: types.UID(tenant.Name + "/" + name), Labels: map[string]string{apis.QueueLabel: queueName},
	}}
	if limit > 0 {
		js.Labels[apis.MaxExecTimeLabel] = strconv.Itoa(int(limit / time.Second))
	}
	courses := map[string]replay.Course{}
	for i := range tasks {
		t := tasks[i]
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, t.replicatedJob())
		courses[t.name] = replay.Course{Ready: t.loads, Run: t.loads + t.runs, GetsReady: true, Ends: t.runs > 0}
		if t.name == Workers {
			// The leader runs until it is deleted.
			js.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{Workers}}
		}
	}
	return Submission{JobSet: js, Courses: courses}
}

// Arrival returns the submission for a replay.
func (s *Submission) Arrival() *replay.Arrival {
	a := &replay.Arrival{At: Begin().Add(s.After), JobSet: s.JobSet, Jobs: map[replay.Job]replay.Course{}}
	for name, course := range s.Courses {
		a.Jobs[replay.Job{ReplicatedJob: name}] = course
	}
	return a
}
