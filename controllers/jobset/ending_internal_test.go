package jobset

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	shapes "github.com/tranche-dev/tranche/admission/gang"
	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// TestEnding: the Jobs of a gang wait together for those of its pods that are still ending, whatever objects their scheduler knows it by.
func TestEnding(t *testing.T) {
	const off, whole, each = jobsetapi.GangModeOff, jobsetapi.GangModeGang, jobsetapi.GangModeReplicatedGang
	kube := shapes.Kube{Version: shapes.V1alpha2}
	cases := map[string]struct {
		provider shapes.Provider
		// jobSet and workers is what the JobSet and one of its two ReplicatedJobs ask for.
		jobSet, workers jobsetapi.GangMode
		// attempt is that of the pod which is still ending.
		attempt string
		want    []string
	}{
		"a gang of the JobSet":               {kube, whole, off, "1", []string{"driver-0", "workers-0", "workers-1"}},
		"a gang of several PodGroups":        {shapes.Koordinator{}, whole, off, "1", []string{"driver-0", "workers-0", "workers-1"}},
		"a gang without PodGroups of ours":   {shapes.KAI{}, off, whole, "1", []string{"workers-0", "workers-1"}},
		"a gang of each Job":                 {kube, off, each, "1", []string{"workers-0"}},
		"a gang whose attempt before ends":   {kube, whole, off, "0", []string{"workers-0"}},
		"no gang":                            {kube, off, off, "1", []string{"workers-0"}},
		"a gang that no scheduler is to see": {nil, whole, off, "1", []string{"workers-0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "js", UID: "js-uid"}}
			js.Status.Restarts = 1
			js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: c.jobSet}
			s, st := &seen{jobSet: js}, &stage{}
			for i, role := range []string{"driver", "workers"} {
				member := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: role, Replicas: int32(i + 1), Template: batchv1.JobTemplateSpec{Spec: jobSpec("1")}}}
				js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, member)
			}
			js.Spec.ReplicatedJobs[1].GangConfig = &jobsetapi.GangConfig{GangMode: c.workers}
			for _, name := range []string{"driver-0", "workers-0", "workers-1"} {
				role, index := name[:len(name)-2], name[len(name)-1:]
				st.jobs = append(st.jobs, &batchv1.Job{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{jobset.ReplicatedJobNameKey: role, jobset.JobIndexKey: index}},
					Spec:       batchv1.JobSpec{Suspend: new(true)},
				})
			}
			s.mine.pods = []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{batchv1.JobNameLabel: "workers-0", restartAttemptLabel: c.attempt}}}}
			var err error
			if s.plan, err = stageplan.New(&js.Spec); err != nil {
				t.Fatal(err)
			}
			if c.provider != nil {
				s.gangs = gangsOf(t, s, c.provider)
			}
			if diff := cmp.Diff(c.want, slices.Sorted(maps.Keys(st.ending(s)))); diff != "" {
				t.Errorf("Jobs differ (-want +got):\n%s", diff)
			}
		})
	}
}
