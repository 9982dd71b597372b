package invariants

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
)

// Kueue's manager writes no note of what pays for a pod of a group: the quota Workload has the name of the group.
func TestPodsOfKueueLiveOnQuota(t *testing.T) {
	byKueue := func(pod *corev1.Pod) {
		pod.Labels[apis.KueueManagedKey], pod.Spec.SchedulingGates = "true", nil
		pod.Namespace = "ns"
	}
	for name, c := range map[string]struct {
		workload string
		status   func(*kueue.Workload)
		want     int
	}{
		"its quota is admitted": {"gang", asAdmitted, 0},
		"its quota waits":       {"gang", asWaiting, 1},
		"another group's quota": {"other", asAdmitted, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.workload(c.workload, func(w *kueue.Workload) {
				w.Namespace = "ns"
				c.status(w)
			})
			s.pod("x", gated)
			s.pod("x", byKueue)
			if found := s.strays(); len(found) != c.want {
				t.Errorf("found %q, want %d", found, c.want)
			}
		})
	}
}

// ofStage returns the quota Workload of stage a of a JobSet, which is admitted, after a change.
func ofStage(change func(*kueue.Workload)) *kueue.Workload {
	w := workload("w", "a", "2")
	w.Labels = map[string]string{apis.JobUIDLabel: "js"}
	w.Spec.PodSets[0].Name, w.Status.Admission.PodSetAssignments[0].Name = "a", "a"
	admit(w)
	change(w)
	return w
}

func TestPodsOfJobSetsRunAfterTheirAdmissionChecks(t *testing.T) {
	for name, want := range map[string]int{"Ready": 0, "Pending": 1} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			stage := func(change func(*kueue.Workload)) { s.seeWorkload(ofStage(change), s.now(), watch.Modified) }
			stage(asChecked)
			if want == 0 {
				stage(asAdmitted)
			}
			s.pod("a-0", ofJob("a", 0))
			stage(asAdmitted)
			s.expect(t, want)
		})
	}
}

// While the API server restarts, quota Workloads are served, and watched, later than pods. A stage may begin and end meanwhile.
func TestPodsWhileQuotaWorkloadsAreNotWatched(t *testing.T) {
	finished := func(w *kueue.Workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue})
	}
	for name, c := range map[string]struct {
		relisted func(*kueue.Workload) // what happens to the quota Workload before it is listed again
		late     bool                  // the pod ends after that
		want     int
	}{
		"its stage began and ended":          {finished, false, 0},
		"its stage began, ended, it goes on": {finished, true, 1},
		"its stage began":                    {asAdmitted, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.seeWorkload(ofStage(asWaiting), s.now(), watch.Modified)
			earliest := s.now().earliest
			s.pod("x", ofJob("a", 0))
			if !c.late {
				s.pod("x", phase(corev1.PodSucceeded))
			}
			s.seeAll(&kueue.WorkloadList{}, []client.Object{ofStage(c.relisted)}, moment{earliest, s.now().latest})
			s.pod("x", phase(corev1.PodSucceeded))
			if found := s.strays(); len(found) != c.want {
				t.Errorf("found %q, want %d", found, c.want)
			}
		})
	}
}

func TestPodsOfKueuesJobsMayOutliveTheirQuota(t *testing.T) {
	for name, c := range map[string]struct {
		isOfKueue, isAdmitted bool
		want                  int
	}{
		"evicted by Kueue":      {isOfKueue: true, isAdmitted: true},
		"evicted by Tranche":    {isAdmitted: true, want: 1},
		"not admitted by Kueue": {isOfKueue: true, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			ofTheJob := func(change func(*kueue.Workload)) {
				w := workload("w", "a", "2")
				w.Labels = map[string]string{apis.JobUIDLabel: "job"}
				w.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: new(true)}}
				if c.isOfKueue {
					w = applied(w)
				}
				if c.isAdmitted {
					admit(w)
				}
				change(w)
				s.seeWorkload(w, s.now(), watch.Modified)
			}
			ofTheJob(asAdmitted)
			ofTheJob(asWaiting)
			s.pod("pod", func(pod *corev1.Pod) {
				pod.Labels[batchv1.ControllerUidLabel] = "job"
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: new(true)}}
			})
			s.pod("pod", phase(corev1.PodFailed))
			s.expect(t, c.want)
		})
	}
}
