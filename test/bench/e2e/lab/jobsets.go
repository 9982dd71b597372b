package lab

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/simulator/replay"
	"github.com/tranche-dev/tranche/test/bench/mixed"
	"github.com/tranche-dev/tranche/test/sample"
)

// Names of ReplicatedJobs.
const (
	fetch, train, evaluate = "fetch", "train", "evaluate"
	leader, workers        = "leader", "workers"
)

// arrivals is the time within which all JobSets are submitted.
const arrivals = 20 * time.Second

// A draw makes JobSets from a seed.
type draw struct {
	*rand.Rand
	courses map[string]replay.Course // of the current JobSet
}

// Draw makes so many JobSets for the tenants in turn, of each kind as many as of the others. They have no queue yet. The same seed makes the same ones.
func Draw(seed uint64, count int) []mixed.Submission {
	d := draw{Rand: rand.New(rand.NewPCG(seed, 0))}
	kinds := []func() []jobsetapi.ReplicatedJob{d.pretrain, d.fineTune, d.distribute, d.sweep}
	names := []string{"pretrain", "fine-tune", "distribute", "sweep"}
	var all []mixed.Submission
	for i := range count {
		kind := i % len(kinds)
		js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: tenants()[i%len(tenants())].name, Name: fmt.Sprintf("%s-%02d", names[kind], i),
		}}
		d.courses = map[string]replay.Course{}
		js.Spec.ReplicatedJobs = kinds[kind]()
		for j := range js.Spec.ReplicatedJobs {
			if js.Spec.ReplicatedJobs[j].Name == workers {
				// The leader runs until it is deleted.
				js.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{workers}}
			}
		}
		all = append(all, mixed.Submission{After: arrivals * time.Duration(i) / time.Duration(count), JobSet: js, Courses: d.courses})
	}
	return all
}

// pretrain fetches data on CPUs and then trains on many accelerators.
func (d *draw) pretrain() []jobsetapi.ReplicatedJob {
	pool, pods := d.placed(2, 4)
	return []jobsetapi.ReplicatedJob{
		d.newJob(fetch, 2, task{cpus: 8, runs: d.between(3, 6)}),
		after(fetch, jobset.DependencyComplete, d.newJob(train, pods, task{pool: pool, gpus: perNode, loads: d.between(0.5, 1.5), runs: d.between(8, 14)})),
	}
}

// fineTune fetches a model on CPUs, trains, and evaluates on a quarter of a node.
func (d *draw) fineTune() []jobsetapi.ReplicatedJob {
	pool, pods := d.placed(1, 3)
	return []jobsetapi.ReplicatedJob{
		d.newJob(fetch, 1, task{cpus: 8, runs: d.between(2, 5)}),
		after(fetch, jobset.DependencyComplete, d.newJob(train, pods, task{pool: pool, gpus: perNode, loads: d.between(0.5, 1.5), runs: d.between(6, 10)})),
		after(train, jobset.DependencyComplete, d.newJob(evaluate, 1, task{pool: pool, gpus: 2, loads: d.between(0.5, 1), runs: d.between(3, 5)})),
	}
}

// distribute has a leader that loads first and keeps its accelerators while its workers run.
func (d *draw) distribute() []jobsetapi.ReplicatedJob {
	pool, pods := d.placed(1, 3)
	return []jobsetapi.ReplicatedJob{
		d.newJob(leader, 1, task{pool: pool, gpus: 2, loads: d.between(2, 4)}),
		after(leader, jobset.DependencyReady, d.newJob(workers, pods, task{pool: pool, gpus: perNode, loads: d.between(0.5, 1.5), runs: d.between(6, 12)})),
	}
}

// sweep trains on parts of nodes and evaluates on another part.
func (d *draw) sweep() []jobsetapi.ReplicatedJob {
	pool, pods := d.placed(2, 5)
	return []jobsetapi.ReplicatedJob{
		d.newJob(train, pods, task{pool: pool, gpus: 4, loads: d.between(0.5, 1), runs: d.between(6, 10)}),
		after(train, jobset.DependencyComplete, d.newJob(evaluate, 1, task{pool: pool, gpus: 4, loads: d.between(0.5, 1), runs: d.between(4, 6)})),
	}
}

// placed draws a pool of nodes, half of the time any, and a number of pods. No task asks for the most pods of the smaller pool.
func (d *draw) placed(least, most int) (pool string, pods int32) {
	switch d.IntN(6) {
	case 0:
		pool, most = h100, most-1
	case 1, 2:
		pool = a100
	}
	return pool, int32(least + d.IntN(most-least+1))
}

// between draws a time, in steps of a tenth of a second.
func (d *draw) between(least, most float64) time.Duration {
	const step = 100 * time.Millisecond
	steps := int((most-least)*10 + 0.5)
	return time.Duration(least*float64(time.Second)) + time.Duration(d.IntN(steps+1))*step
}

// A task is the request of each pod of a ReplicatedJob, and how long it runs.
type task struct {
	cpus, gpus int64
	// pool is where it runs; empty means anywhere.
	pool string
	// loads is how long it takes until it is ready, runs for how long it runs from then on. 0 means until it is deleted.
	loads, runs time.Duration
}

func (d *draw) newJob(name string, pods int32, t task) jobsetapi.ReplicatedJob {
	d.courses[name] = replay.Course{Ready: t.loads, Run: t.loads + t.runs, GetsReady: true, Ends: t.runs > 0}
	requests := corev1.ResourceList{corev1.ResourceCPU: amount(max(t.cpus, 4))}
	if t.gpus > 0 {
		requests[GPU] = amount(t.gpus)
	}
	var selector map[string]string
	if t.pool != "" {
		selector = map[string]string{poolLabel: t.pool}
	}
	job := sample.ReplicatedJob(name, pods, requests, nil)
	job.Template.Spec.Template.Spec.NodeSelector = selector
	return job
}

// after makes a ReplicatedJob wait for another one.
func after(other string, status jobset.DependsOnStatus, job jobsetapi.ReplicatedJob) jobsetapi.ReplicatedJob {
	job.DependsOn = []jobset.DependsOn{{Name: other, Status: status}}
	return job
}
