package mixed_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/test/bench/mixed"
)

// bytesOf returns everything that a seed draws.
func bytesOf(t *testing.T, s *mixed.Shape, seed uint64) string {
	t.Helper()
	all := s.Draw(seed)
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestSeeds(t *testing.T) {
	for name, s := range map[string]*mixed.Shape{"full": mixed.Full(), "scaled": mixed.Scaled()} {
		first := bytesOf(t, s, 1)
		if again := bytesOf(t, s, 1); again != first {
			t.Errorf("%s: the same seed draws something else", name)
		}
		if bytesOf(t, s, 2) == first {
			t.Errorf("%s: another seed draws the same", name)
		}
	}
}

// The load is what the shape asks for, arrivals are a Poisson process, half of the JobSets have limits, and all sizes occur.
func TestDistribution(t *testing.T) {
	s := mixed.Full()
	for seed := uint64(1); seed <= 3; seed++ {
		var sizes []int64
		work, limits := 0.0, 0
		var gaps []float64
		all := s.Draw(seed)
		for i := range all {
			size, need := gpusOf(t, s, &all[i])
			sizes, work = append(sizes, size), work+need
			if all[i].JobSet.Labels[apis.MaxExecTimeLabel] != "" {
				limits++
			}
			if i > 0 {
				gaps = append(gaps, (all[i].After - all[i-1].After).Seconds())
			}
		}
		span := all[len(all)-1].After.Seconds()
		if load := work / span / float64(s.Quota()); math.Abs(load-s.Load) > 0.01 {
			t.Errorf("seed %d: the load is %.3f, want %.3f", seed, load, s.Load)
		}
		if limits < 450 || limits > 550 {
			t.Errorf("seed %d: %d JobSets have limits", seed, limits)
		}
		if mean, deviation := moments(gaps); math.Abs(deviation/mean-1) > 0.1 {
			t.Errorf("seed %d: the gaps between arrivals have a mean of %.0f s and a deviation of %.0f s: those of a Poisson process are equal", seed, mean, deviation)
		}
		// The logarithm of a size is equally likely to be anywhere. JobSets with a leader have at least 2.
		for power := int64(1); power <= s.Largest; power *= 4 {
			count := 0
			for _, size := range sizes {
				if size > power/4 && size <= power {
					count++
				}
			}
			if count < 60 {
				t.Errorf("seed %d: %d JobSets have more than %d and up to %d GPUs", seed, count, power/4, power)
			}
		}
	}
}

// gpusOf returns the most GPUs that a JobSet holds at once, and for how long its stages hold them, in GPU-seconds, if none of them waits.
func gpusOf(t *testing.T, s *mixed.Shape, submission *mixed.Submission) (most int64, need float64) {
	t.Helper()
	js := submission.JobSet
	plan, err := stageplan.New(&js.Spec)
	if err != nil || len(plan.Stages) != len(js.Spec.ReplicatedJobs) {
		t.Fatalf("JobSet %s has the plan %v, %v", js.Name, plan, err)
	}
	leader := int64(0)
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		gpus := int64(*job.Template.Spec.Parallelism) * job.Template.Spec.Template.Spec.Containers[0].Resources.Requests.Name(mixed.GPU, "").Value()
		course := submission.Courses[job.Name]
		if !course.Ends {
			leader = gpus
			need += float64(gpus) * (course.Ready + submission.Courses[mixed.Workers].Run).Seconds()
			continue
		}
		need += float64(gpus) * course.Run.Seconds()
		most = max(most, gpus+leader)
	}
	nominal := int64(0)
	for _, q := range s.Queues().ClusterQueues {
		if q.Name == js.Namespace {
			nominal = q.Spec.ResourceGroups[1].Flavors[0].Resources[0].NominalQuota.Value()
		}
	}
	if most < 1 || most > max(s.Largest, 2) || most > nominal {
		t.Errorf("JobSet %s holds %d GPUs at once, of %d in its queue", js.Name, most, nominal)
	}
	return most, need
}

func moments(values []float64) (mean, deviation float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation)
}

// The scaled shape runs in minutes, and its tenants have the same parts of the quota.
func TestScaled(t *testing.T) {
	full, scaled := mixed.Full(), mixed.Scaled()
	if scaled.Quota() != 32 || full.Quota() != 512 || full.Largest != 256 || full.JobSets != 1000 {
		t.Errorf("%+v, %+v", full, scaled)
	}
	for i := range full.Tenants {
		if full.Tenants[i].GPUs*scaled.Quota() != scaled.Tenants[i].GPUs*full.Quota() {
			t.Errorf("%s has %d of %d GPUs and %d of %d", full.Tenants[i].Name, full.Tenants[i].GPUs, full.Quota(), scaled.Tenants[i].GPUs, scaled.Quota())
		}
	}
	all := scaled.Draw(1)
	if last := all[len(all)-1].After; last > 2*time.Minute {
		t.Errorf("the last JobSet is submitted after %s", last)
	}
}

// CPUs are never short: there is quota for all initializers at once beside as many pods as there are GPUs.
func TestCPUs(t *testing.T) {
	for name, s := range map[string]*mixed.Shape{"full": mixed.Full(), "scaled": mixed.Scaled()} {
		initializers, others, quota := int64(0), int64(0), int64(0)
		for _, submission := range s.Draw(1) {
			for i := range submission.JobSet.Spec.ReplicatedJobs {
				job := &submission.JobSet.Spec.ReplicatedJobs[i]
				cpus := job.Template.Spec.Template.Spec.Containers[0].Resources.Requests.Name(corev1.ResourceCPU, "").Value()
				if job.Name == mixed.Fetch {
					initializers += int64(*job.Template.Spec.Parallelism) * cpus
				} else {
					others = max(others, cpus*s.Quota())
				}
			}
		}
		for _, q := range s.Queues().ClusterQueues {
			quota += q.Spec.ResourceGroups[0].Flavors[0].Resources[0].NominalQuota.Value()
		}
		if initializers == 0 || initializers+others > quota {
			t.Errorf("%s: %d and %d CPUs, with a quota of %d", name, initializers, others, quota)
		}
	}
}
