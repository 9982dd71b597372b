package invariants

import (
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// job makes the auditor observe a Job of newJobSet, which has two pods at once.
func (s *story) job(name string, attempt int, status batchv1.JobStatus) {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID("uid-of-" + name + "-" + strconv.Itoa(attempt)), Labels: map[string]string{
			jobset.JobSetUIDKey: "js", jobset.ReplicatedJobNameKey: name, constants.RestartsKey: strconv.Itoa(attempt),
		}},
		Spec: batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(5))}, Status: status,
	}
	s.seeProgress(job, s.now())
}

func ready(pods int32) batchv1.JobStatus { return batchv1.JobStatus{Ready: &pods} }

func complete() batchv1.JobStatus {
	return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
}

func TestStagesStartInOrder(t *testing.T) {
	held := func(js *jobsetapi.JobSet) {
		for i := range js.Spec.ReplicatedJobs {
			js.Spec.ReplicatedJobs[i].Template.Labels = map[string]string{apis.HoldLabel: apis.HoldUnqueued}
		}
	}
	on := func(status jobset.DependsOnStatus) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			held(js)
			js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "a", Status: status}}
		}
	}
	tests := map[string]struct {
		jobSet  func(*jobsetapi.JobSet)
		happens func(*story)
		want    int
	}{
		"after it was ready": {jobSet: on(jobset.DependencyReady), happens: func(s *story) {
			s.job("a", 0, ready(2))
			s.job("a", 0, ready(1)) // one pod has failed meanwhile
			s.create("b", 0, 2)
		}},
		"before all are ready": {jobSet: on(jobset.DependencyReady), want: 1, happens: func(s *story) {
			s.job("a", 0, ready(1))
			s.create("b", 0, 2)
			s.job("a", 0, ready(2))
		}},
		"ready is not complete": {jobSet: on(jobset.DependencyComplete), want: 1, happens: func(s *story) {
			s.job("a", 0, ready(2))
			s.create("b", 0, 2)
		}},
		"complete": {jobSet: on(jobset.DependencyComplete), happens: func(s *story) {
			s.job("a", 0, complete())
			s.create("b", 0, 2)
		}},
		"complete in the attempt before": {jobSet: on(jobset.DependencyComplete), want: 1, happens: func(s *story) {
			s.job("a", 0, complete())
			s.create("b", 0, 2)
			s.create("b", 1, 2)
		}},
		"one of two Jobs": {want: 1, jobSet: func(js *jobsetapi.JobSet) {
			on(jobset.DependencyComplete)(js)
			js.Spec.ReplicatedJobs[0].Replicas = 2
		}, happens: func(s *story) {
			s.job("a", 0, complete())
			s.create("b", 0, 2)
		}},
		"no order": {jobSet: held, happens: func(s *story) { s.create("b", 0, 2) }},
		"not held": {jobSet: func(js *jobsetapi.JobSet) {
			on(jobset.DependencyReady)(js)
			js.Spec.ReplicatedJobs[0].Template.Labels = nil
		}, happens: func(s *story) { s.create("b", 0, 2) }},
		"while nothing was watched": {jobSet: on(jobset.DependencyReady), happens: func(s *story) {
			s.gaps = append(s.gaps, span{s.now().earliest, s.now().latest})
			s.create("b", 0, 2)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.seeOrder(newJobSet(test.jobSet))
			test.happens(s)
			if found := s.misordered(); len(found) != test.want {
				t.Errorf("found %q, want %d", found, test.want)
			}
		})
	}
}
