package stages

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// TestEnding: the Jobs of a gang wait together until all of its terminating pods are gone, whatever gang objects the scheduler uses.
func TestEnding(t *testing.T) {
	const off, whole, each = jobsetapi.GangModeOff, jobsetapi.GangModeGang, jobsetapi.GangModeReplicatedGang
	kube := schedulergang.Kube{Version: schedulergang.V1alpha2}
	cases := map[string]struct {
		provider schedulergang.Provider
		// jobSet and workers is what the JobSet and one of its two ReplicatedJobs ask for.
		jobSet, workers jobsetapi.GangMode
		// attempt is the attempt of the terminating pod.
		attempt string
		want    []string
	}{
		"a gang of the JobSet":               {kube, whole, off, "1", []string{"driver-0", "workers-0", "workers-1"}},
		"a gang of several PodGroups":        {schedulergang.Koordinator{}, whole, off, "1", []string{"driver-0", "workers-0", "workers-1"}},
		"a gang of a ReplicatedJob":          {kube, off, whole, "1", []string{"workers-0", "workers-1"}},
		"a gang of each Job":                 {kube, off, each, "1", []string{"workers-0"}},
		"a gang whose attempt before ends":   {kube, whole, off, "0", []string{"workers-0"}},
		"no gang":                            {kube, off, off, "1", []string{"workers-0"}},
		"a gang that no scheduler is to see": {nil, whole, off, "1", []string{"workers-0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, st := newGangs(t, c.provider, c.jobSet, c.workers)
			s.Owned.Pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: "workers-0", jobsetstate.RestartAttemptLabel: c.attempt}}}}
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(st.ending(s)))); diff != "" {
				t.Errorf("Jobs differ (-want +got):\n%s", diff)
			}
		})
	}
}

// newGangs returns a JobSet of a driver and two workers, in its second attempt, which asks for gangs in these two places. Its Jobs are
// held.
func newGangs(t *testing.T, provider schedulergang.Provider, jobSet, workers jobsetapi.GangMode) (*jobsetstate.Snapshot, *stage) {
	t.Helper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "js", UID: "js-uid"}}
	js.Status.Restarts = 1
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobSet}
	for i, role := range []string{"driver", "workers"} {
		member := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: role, Replicas: int32(i + 1), Template: batchv1.JobTemplateSpec{Spec: jobSpec("1")}}}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, member)
	}
	js.Spec.ReplicatedJobs[1].GangConfig = &jobsetapi.GangConfig{GangMode: workers}
	s, st := &jobsetstate.Snapshot{JobSet: js}, &stage{}
	for _, name := range []string{"driver-0", "workers-0", "workers-1"} {
		role, index := name[:len(name)-2], name[len(name)-1:]
		st.jobs = append(st.jobs, &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{jobset.ReplicatedJobNameKey: role, jobset.JobIndexKey: index}},
			Spec:       batchv1.JobSpec{Suspend: new(true), Parallelism: new(int32(2)), Completions: new(int32(4))},
		})
	}
	var err error
	if s.Plan, err = stageplan.New(&js.Spec); err != nil {
		t.Fatal(err)
	}
	if provider != nil {
		s.Gangs = gangsOf(t, s, provider)
	}
	return s, st
}

// TestSpent: a restarting gang starts as a whole, and from its beginning if some of its pods have succeeded.
func TestSpent(t *testing.T) {
	const off, whole, each = jobsetapi.GangModeOff, jobsetapi.GangModeGang, jobsetapi.GangModeReplicatedGang
	finish := func(condition batchv1.JobConditionType) func(*batchv1.Job) {
		return func(job *batchv1.Job) {
			job.Status.Succeeded = 4
			job.Status.Conditions = []batchv1.JobCondition{{Type: condition, Status: corev1.ConditionTrue}}
		}
	}
	succeeded := func(pods int32) func(*batchv1.Job) { return func(job *batchv1.Job) { job.Status.Succeeded = pods } }
	run := func(job *batchv1.Job) { job.Spec.Suspend = new(false) }
	same := func(*batchv1.Job) {}
	cases := map[string]struct {
		jobSet, workers jobsetapi.GangMode
		// jobs changes the driver and the workers, each of which has 2 pods at once and 4 in all.
		jobs   [3]func(*batchv1.Job)
		ending bool
		want   []string
	}{
		"nothing has ended":                      {whole, off, [3]func(*batchv1.Job){same, same, same}, false, nil},
		"as many are left as it has at once":     {whole, off, [3]func(*batchv1.Job){same, succeeded(2), same}, false, nil},
		"fewer are left":                         {whole, off, [3]func(*batchv1.Job){same, succeeded(3), same}, false, []string{"workers-0"}},
		"a Job has completed":                    {whole, off, [3]func(*batchv1.Job){finish(batchv1.JobComplete), same, same}, false, []string{"driver-0"}},
		"a Job has failed":                       {whole, off, [3]func(*batchv1.Job){finish(batchv1.JobFailed), same, same}, false, nil},
		"a Job is about to fail":                 {whole, off, [3]func(*batchv1.Job){finish(batchv1.JobFailureTarget), same, same}, false, nil},
		"one of them runs":                       {whole, off, [3]func(*batchv1.Job){run, succeeded(3), same}, false, nil},
		"pods of it are still ending":            {whole, off, [3]func(*batchv1.Job){same, succeeded(3), same}, true, nil},
		"a gang of each, and another one runs":   {off, each, [3]func(*batchv1.Job){same, succeeded(3), run}, false, []string{"workers-0"}},
		"a gang has completed as a whole":        {off, each, [3]func(*batchv1.Job){same, finish(batchv1.JobComplete), same}, false, nil},
		"Jobs in no gang go on where they ended": {off, off, [3]func(*batchv1.Job){same, succeeded(3), same}, false, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, st := newGangs(t, schedulergang.Kube{Version: schedulergang.V1alpha2}, c.jobSet, c.workers)
			ending, want := map[string]bool{}, map[string]bool{}
			for i, change := range c.jobs {
				change(st.jobs[i])
				ending[st.jobs[i].Name] = c.ending
			}
			jobs, gangs := st.spent(s, ending)
			var names []string
			for _, job := range jobs {
				names, want[s.GangOf(job)] = append(names, job.Name), true
			}
			if diff := cmp.Diff(c.want, names); diff != "" {
				t.Errorf("Jobs differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, gangs); diff != "" {
				t.Errorf("gangs differ (-want +got):\n%s", diff)
			}
		})
	}
}
