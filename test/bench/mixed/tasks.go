package mixed

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/sample"
)

// GPU is the resource that the tenants share.
const GPU = corev1.ResourceName("nvidia.com/gpu")

// Names of ReplicatedJobs. Fetch is the only one that needs no GPUs.
const (
	Fetch           = "fetch"
	Leader          = "leader"
	Workers         = "workers"
	train, evaluate = "train", "evaluate"
)

// A task is a ReplicatedJob: the requests of its pods, and how long they take.
type task struct {
	name             string
	pods, gpus, cpus int64
	// loads is how long it takes until the pods are ready, and runs for how long they run from then on. 0 means until they are deleted.
	loads, runs time.Duration
	// after is the task that it waits for, until that has this status.
	after  string
	status jobset.DependsOnStatus
	// beside is how long a task without an end runs if it waits for nothing: as long as the task that it opens.
	beside time.Duration
}

// holds returns for how long the task holds quota if nothing in its JobSet waits.
func (t *task) holds() time.Duration { return t.loads + t.runs + t.beside }

// onGPUs returns a task that divides GPUs among nodes.
func (d *draw) onGPUs(name string, gpus int64, runs time.Duration) *task {
	t := &task{name: name, pods: 1, gpus: gpus, cpus: 4, loads: d.between(1./40, 1./10), runs: runs}
	if gpus > PerNode {
		t.pods, t.gpus = gpus/PerNode, PerNode
	}
	return t
}

// once makes a task wait for another one.
func (t *task) once(other string, status jobset.DependsOnStatus) *task {
	t.after, t.status = other, status
	return t
}

// pretrain fetches data on CPUs and then trains.
func (d *draw) pretrain(size int64) []*task {
	return []*task{
		{name: Fetch, pods: 1, cpus: 8, runs: d.between(0.1, 0.4)},
		d.onGPUs(train, size, d.runTime()).once(Fetch, jobset.DependencyComplete),
	}
}

// sweep trains, and then evaluates on a quarter of the GPUs.
func (d *draw) sweep(size int64) []*task {
	part := max(1, size/4)
	if part > PerNode {
		part = part / PerNode * PerNode
	}
	return []*task{
		d.onGPUs(train, size, d.runTime()),
		d.onGPUs(evaluate, part, d.between(0.1, 0.4)).once(train, jobset.DependencyComplete),
	}
}

// distribute has a leader, which loads first and keeps its GPUs while its workers run: on a node of its own, or on one GPU.
func (d *draw) distribute(size int64) []*task {
	own := int64(1)
	if size > PerNode {
		own = PerNode
	}
	l, w := d.onGPUs(Leader, own, 0), d.onGPUs(Workers, max(1, size-own), d.runTime())
	l.beside = w.holds()
	return []*task{l, w.once(Leader, jobset.DependencyReady)}
}

// plain has one stage.
func (d *draw) plain(size int64) []*task { return []*task{d.onGPUs(train, size, d.runTime())} }

// replicatedJob makes the ReplicatedJob of a task, of one Job.
func (t *task) replicatedJob() jobsetapi.ReplicatedJob {
	requests := corev1.ResourceList{corev1.ResourceCPU: amount(t.cpus)}
	if t.gpus > 0 {
		requests[GPU] = amount(t.gpus)
	}
	job := sample.ReplicatedJob(t.name, int32(t.pods), requests, nil)
	if t.after != "" {
		job.DependsOn = []jobset.DependsOn{{Name: t.after, Status: t.status}}
	}
	return job
}

func amount(n int64) resource.Quantity { return resource.MustParse(strconv.FormatInt(n, 10)) }
