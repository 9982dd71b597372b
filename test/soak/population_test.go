package soak_test

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// kindsOfWork is after how many submissions the kinds of work begin again. Two of them are staged JobSets.
const kindsOfWork = 6

// submit creates the object with this number, and reports whether it could: a gang of pods, a Job that is queued by itself, or a JobSet with stages,
// with gangs or with a group that starts together.
func (s *soak) submit(i int) bool {
	switch i % kindsOfWork {
	case 2:
		return s.submitJobSet(s.newGangs(i))
	case 3:
		return s.submitJobSet(s.newGroup(i))
	case 4:
		return s.submitPods(s.newPods(i))
	case 5:
		return s.submitJob(s.newJob(i))
	default:
		return s.submitJobSet(s.newStaged(i))
	}
}

// tenantOf returns the tenant that submits a number, so that each submits everything.
func tenantOf(i int) int { return (i + i/kindsOfWork) % tenants }

func (s *soak) submitJobSet(js *jobsetapi.JobSet) bool {
	if err := s.admin.Create(s.t.Context(), js); err != nil {
		s.log("JobSet %s is not accepted: %v", js.Name, err)
		return false
	}
	key := client.ObjectKeyFromObject(js)
	s.jobSets = append(s.jobSets, key)
	s.doomed[key] = js.Spec.FailurePolicy != nil
	return true
}

// newJobSet makes a JobSet without ReplicatedJobs.
func (s *soak) newJobSet(i int) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenantName(tenantOf(i)), Name: fmt.Sprintf("run-%03d", i), Labels: map[string]string{apis.QueueLabel: "queue"},
	}}
	if s.random.IntN(5) == 0 {
		js.Labels[apis.PriorityClassLabel] = "urgent"
	}
	return js
}

// newGangs makes a JobSet with gangs: one of all its pods, or those of two stages. The scheduler does not replace a pod of a gang of which others
// have ended, so a pod that is lost restarts the JobSet.
func (s *soak) newGangs(i int) *jobsetapi.JobSet {
	js := s.newJobSet(i)
	const most = nominal / 2
	for _, name := range []string{"driver", "workers"} {
		r := s.newRigid(name, most)
		r.Template.Spec.BackoffLimit = new(int32(0))
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	js.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1000}
	if s.random.IntN(3) == 0 {
		js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
		return js
	}
	for j := range js.Spec.ReplicatedJobs {
		mode := []jobsetapi.GangMode{jobsetapi.GangModeGang, jobsetapi.GangModeReplicatedGang}[s.random.IntN(2)]
		js.Spec.ReplicatedJobs[j].GangConfig = &jobsetapi.GangConfig{GangMode: mode}
	}
	s.order(js)
	return js
}

func hasGangs(js *jobsetapi.JobSet) bool {
	return js.Spec.GangConfig != nil || slices.ContainsFunc(js.Spec.ReplicatedJobs, func(r jobsetapi.ReplicatedJob) bool { return r.GangConfig != nil })
}

// newGroup makes a JobSet of which two ReplicatedJobs start together, perhaps after another stage.
func (s *soak) newGroup(i int) *jobsetapi.JobSet {
	js := s.newJobSet(i)
	const most = nominal / 3
	js.Spec.GroupSchedulingConfig = &jobsetapi.GroupSchedulingConfig{TimeoutAfterSeconds: new(int32(600)), TargetReplicatedJobs: []string{"driver", "workers"}}
	hasFirst := s.random.IntN(2) == 0
	if hasFirst {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, s.newRigid("download", most))
	}
	for _, name := range js.Spec.GroupSchedulingConfig.TargetReplicatedJobs {
		r := s.newRigid(name, most)
		r.Template.Spec.Template.Annotations[controlplane.FakeInit] = "waits"
		if s.random.IntN(3) == 0 {
			r.Template.Spec.Template.Annotations[controlplane.FakeReadyAfter] = "1500ms"
		}
		if hasFirst {
			r.DependsOn = []jobset.DependsOn{{Name: "download", Status: jobset.DependencyComplete}}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	return js
}

// newRigid makes a ReplicatedJob that is not elastic.
func (s *soak) newRigid(name string, most int) jobsetapi.ReplicatedJob {
	r := s.newReplicatedJob(name, most)
	r.Template.Spec.CompletionMode = new(batchv1.NonIndexedCompletion)
	return r
}
