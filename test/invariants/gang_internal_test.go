package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// A story is a sequence of observations of an auditor, one resource version after the other.
type story struct {
	*Auditor
	at   uint64
	pods map[string]*corev1.Pod
}

func newStory() *story {
	return &story{Auditor: newAuditorOf(clusterQueue("a", "", limits{"100"})), at: 1, pods: map[string]*corev1.Pod{}}
}

func (s *story) now() moment {
	s.at++
	return moment{s.at, s.at}
}

// pod makes the auditor observe a pod after a change. The first change creates it.
func (s *story) pod(name string, change func(*corev1.Pod)) {
	pod := s.pods[name]
	if pod == nil {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	}
	pod = pod.DeepCopy()
	change(pod)
	s.pods[name] = pod
	s.seePod(pod, s.now(), watch.Modified)
}

// gated creates a pod of a gang of pods that waits for quota.
func gated(pod *corev1.Pod) {
	pod.Labels[apis.QueueLabel], pod.Labels[apis.PodGroupNameLabel] = "queue", "gang"
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: apis.PodAdmissionGate}}
}

// ungate removes the gate of a pod, under the first admission of a quota Workload.
func ungate(workload string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.SchedulingGates = nil
		pod.Annotations[apis.AdmissionAnnotation] = workload + ".0/main"
	}
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func bind(pod *corev1.Pod) { pod.Spec.NodeName = "node" }

// workload makes the auditor observe a quota Workload of a gang that holds quota for two pods, after a change.
func (s *story) workload(name string, change func(*kueue.Workload)) {
	w := workload(name, "a", "2")
	w.Labels, w.Annotations = map[string]string{apis.PodGroupKey: "kueue.gang"}, map[string]string{}
	admit(w)
	change(w)
	s.seeWorkload(w, s.now(), watch.Modified)
}

func admit(w *kueue.Workload) {
	w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue})
}

func asAdmitted(*kueue.Workload) {}

// asChecked has quota, and an AdmissionCheck that is not Ready.
func asChecked(w *kueue.Workload) { w.Status.Conditions = w.Status.Conditions[:1] }

func asWaiting(w *kueue.Workload) {
	w.Status.Admission, w.Status.Conditions = nil, []metav1.Condition{{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue}}
}

// later advances the time, so that no change counts as in progress.
func (s *story) later() {
	for _, m := range s.members {
		if m.ended != nil {
			m.ended.seen = m.ended.seen.Add(-time.Hour)
		}
	}
}

func (s *story) wrong() []string {
	return slices.Concat(s.found, s.breaches(), s.strays(), s.overdrawn(), s.partial())
}

func (s *story) expect(t *testing.T, wrong int) {
	t.Helper()
	if found := s.wrong(); len(found) != wrong {
		t.Errorf("found %q, want %d", found, wrong)
	}
}

func TestPodsOfGangsLiveOnQuota(t *testing.T) {
	tests := map[string]struct {
		happens func(*story)
		want    int
	}{
		"admitted, then ungated": {happens: func(s *story) {
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
			s.pod("y", ungate("w"))
		}},
		"gated for long": {happens: func(*story) {}},
		"ungated without a note of what pays": {want: 1, happens: func(s *story) {
			s.pod("x", func(pod *corev1.Pod) { pod.Spec.SchedulingGates = nil })
		}},
		"ungated before its quota": {want: 1, happens: func(s *story) {
			s.pod("x", ungate("w"))
			s.workload("w", asAdmitted)
		}},
		"ungated before its AdmissionCheck is Ready": {want: 1, happens: func(s *story) {
			s.workload("w", asChecked)
			s.pod("x", ungate("w"))
			s.workload("w", asAdmitted)
		}},
		"ungated when its AdmissionCheck is Ready": {happens: func(s *story) {
			s.workload("w", asChecked)
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
		}},
		"runs on when its quota is released": {want: 1, happens: func(s *story) {
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
			s.workload("w", asWaiting)
		}},
		"ends before its quota is released": {happens: func(s *story) {
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
			s.pod("x", phase(corev1.PodFailed))
			s.workload("w", asWaiting)
		}},
		"more than are paid for": {want: 1, happens: func(s *story) {
			s.workload("w", asAdmitted)
			for _, name := range []string{"x", "y", "z"} {
				s.pod(name, ungate("w"))
			}
		}},
		"one takes the place of another": {happens: func(s *story) {
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
			s.pod("y", ungate("w"))
			s.pod("x", phase(corev1.PodFailed))
			s.pod("z", ungate("w"))
		}},
		"one takes the place of another whose quota was reclaimed": {want: 1, happens: func(s *story) {
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
			s.pod("y", ungate("w"))
			s.pod("x", phase(corev1.PodSucceeded))
			s.workload("w", func(w *kueue.Workload) { w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}} })
			s.pod("z", ungate("w"))
		}},
		"its quota is first seen when it was reclaimed": {happens: func(s *story) {
			s.pod("x", ungate("w"))
			s.pod("y", ungate("w"))
			s.pod("x", phase(corev1.PodSucceeded))
			w := workload("w", "a", "2")
			w.Labels = map[string]string{apis.PodGroupKey: "kueue.gang"}
			admit(w)
			w.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "main", Count: 1}}
			s.at++
			s.seeWorkload(w, moment{1, s.at}, watch.Modified)
		}},
		"ungated when one of the gang is gone": {want: 1, happens: func(s *story) {
			for _, name := range []string{"y", "z"} {
				s.pod(name, phase(corev1.PodFailed))
			}
			s.later()
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
		}},
		"ungated when one of the gang has just gone": {happens: func(s *story) {
			for _, name := range []string{"y", "z"} {
				s.pod(name, phase(corev1.PodFailed))
			}
			s.workload("w", asAdmitted)
			s.pod("x", ungate("w"))
		}},
		"alone, on top of a gang that has started": {happens: func(s *story) {
			for _, name := range []string{"y", "z"} {
				s.pod(name, phase(corev1.PodFailed))
			}
			s.later()
			s.workload("w", func(w *kueue.Workload) { w.Labels[apis.ExtraLabel] = "x" })
			s.pod("x", ungate("w"))
		}},
		"ungated before the other parts have quota": {want: 1, happens: func(s *story) {
			s.workload("w", part)
			s.pod("x", ungate("w"))
			s.workload("v", part)
		}},
		"ungated before another part is evicted, and comes back alone": {happens: func(s *story) {
			s.workload("w", part)
			s.workload("v", part)
			s.pod("x", ungate("w"))
			s.workload("v", asWaiting)
			s.workload("v", asAdmitted)
		}},
		"ungated when the other parts have quota": {happens: func(s *story) {
			s.workload("w", part)
			s.workload("v", part)
			s.pod("x", ungate("w"))
		}},
	}
	for name, test := range tests {
		for creator, create := range map[string]func(*corev1.Pod){"a user": gated, "a Job": gatedOfJob} {
			t.Run(name+", pods of "+creator, func(t *testing.T) {
				s := newStory()
				for _, pod := range []string{"x", "y", "z"} {
					s.pod(pod, create)
				}
				test.happens(s)
				s.expect(t, test.want)
			})
		}
	}
}

// gatedOfJob creates a pod of a gang of pods that a Job has created, and that waits for quota.
func gatedOfJob(pod *corev1.Pod) {
	gated(pod)
	pod.Labels[batchv1.ControllerUidLabel] = "uid-of-job"
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "uid-of-job", Controller: new(true)}}
}

func part(w *kueue.Workload) {
	w.Labels[apis.PlanUIDLabel], w.Annotations[apis.PartsAnnotation] = "plan", "2"
}

// ofJob creates a pod of a JobSet, in an attempt of it.
func ofJob(replicatedJob string, attempt int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		job := replicatedJob + "-" + strconv.Itoa(attempt)
		maps.Copy(pod.Labels, map[string]string{
			jobset.JobSetUIDKey: "js", jobset.ReplicatedJobNameKey: replicatedJob, constants.RestartsKey: strconv.Itoa(attempt),
			batchv1.JobNameLabel: job, batchv1.ControllerUidLabel: "uid-of-" + job,
		})
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: job, UID: types.UID("uid-of-" + job), Controller: new(true)}}
		pod.Spec.SchedulerName = corev1.DefaultSchedulerName
	}
}

// jobSet has two Jobs of two pods each.
func newJobSet(change func(*jobsetapi.JobSet)) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{UID: "js"}}
	for _, name := range []string{"a", "b"} {
		r := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: name, Replicas: 1}}
		r.Template.Spec = batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(5))}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, r)
	}
	change(js)
	return js
}

// create makes pods a-0, a-1 and so on.
func (s *story) create(replicatedJob string, attempt, pods int) {
	for i := range pods {
		s.pod(fmt.Sprintf("%s-%d-%d", replicatedJob, attempt, i), ofJob(replicatedJob, attempt))
	}
}

func TestGangsOfJobSetsArePlacedWhole(t *testing.T) {
	whole := func(js *jobsetapi.JobSet) {
		js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	}
	first := func(mode jobsetapi.GangMode) func(*jobsetapi.JobSet) {
		return func(js *jobsetapi.JobSet) {
			js.Spec.ReplicatedJobs[0].GangConfig = &jobsetapi.GangConfig{GangMode: mode}
		}
	}
	tests := map[string]struct {
		jobSet  func(*jobsetapi.JobSet)
		happens func(*story)
		want    int
	}{
		"all are there": {jobSet: whole, happens: func(s *story) {
			s.create("a", 0, 2)
			s.create("b", 0, 2)
			s.pod("a-0-0", bind)
		}},
		"one is missing": {jobSet: whole, want: 1, happens: func(s *story) {
			s.create("a", 0, 2)
			s.create("b", 0, 1)
			s.pod("a-0-0", bind)
			s.pod("b-0-1", ofJob("b", 0))
		}},
		"one is of the attempt before": {jobSet: whole, want: 1, happens: func(s *story) {
			s.create("a", 0, 1)
			s.create("a", 1, 1)
			s.create("b", 1, 2)
			s.pod("b-1-0", bind)
		}},
		"one has ended": {jobSet: whole, want: 1, happens: func(s *story) {
			s.create("a", 0, 2)
			s.create("b", 0, 2)
			s.pod("b-0-1", phase(corev1.PodFailed))
			s.later()
			s.pod("a-0-0", bind)
		}},
		"of a ReplicatedJob, without those of others": {jobSet: first(jobsetapi.GangModeGang), happens: func(s *story) {
			s.create("a", 0, 2)
			s.pod("a-0-0", bind)
			s.create("b", 0, 1)
			s.pod("b-0-0", bind)
		}},
		"of a ReplicatedJob, and one is missing": {jobSet: first(jobsetapi.GangModeGang), want: 1, happens: func(s *story) {
			s.create("b", 0, 2)
			s.create("a", 0, 1)
			s.pod("a-0-0", bind)
		}},
		"of a Job, and one is missing": {jobSet: first(jobsetapi.GangModeReplicatedGang), want: 1, happens: func(s *story) {
			s.create("a", 0, 1)
			s.pod("a-0-0", bind)
		}},
		"by annotation, and one is missing": {want: 1, jobSet: func(js *jobsetapi.JobSet) {
			js.Annotations = map[string]string{apis.GangAnnotation: "Gang"}
		}, happens: func(s *story) {
			s.create("a", 0, 2)
			s.pod("a-0-0", bind)
		}},
		"no gang": {jobSet: func(*jobsetapi.JobSet) {}, happens: func(s *story) {
			s.create("a", 0, 1)
			s.pod("a-0-0", bind)
		}},
		"a PodGroup of the user places them": {jobSet: whole, happens: func(s *story) {
			group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "own"}}
			s.see(group, s.now(), watch.Added)
			s.pod("a-0-0", func(pod *corev1.Pod) {
				ofJob("a", 0)(pod)
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("own")}
				bind(pod)
			})
		}},
		"a PodGroup of the JobSet places them": {jobSet: whole, want: 1, happens: func(s *story) {
			group := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
			group.OwnerReferences = []metav1.OwnerReference{{Kind: "JobSet", Controller: new(true)}}
			s.see(group, s.now(), watch.Added)
			s.pod("a-0-0", func(pod *corev1.Pod) {
				ofJob("a", 0)(pod)
				pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("all")}
				bind(pod)
			})
		}},
		"another scheduler places them": {jobSet: whole, happens: func(s *story) {
			s.create("a", 0, 1)
			s.pod("b-0-0", func(pod *corev1.Pod) {
				ofJob("b", 0)(pod)
				pod.Annotations[apis.GangProviderAnnotation] = "Volcano"
				bind(pod)
			})
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.placesGangs = true
			s.seeJobSet(newJobSet(test.jobSet))
			test.happens(s)
			s.expect(t, test.want)
		})
	}
}

func TestGroupsStartTogether(t *testing.T) {
	waits := func(replicatedJob string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			ofJob(replicatedJob, 0)(pod)
			pod.Spec.InitContainers = []corev1.Container{{Name: barrierContainer}}
			pod.Annotations[apis.ReleaseAnnotation], pod.Annotations[controlplane.FakeInit] = "1", "waits"
			pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: barrierContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}
	}
	run := phase(corev1.PodRunning)
	tests := map[string]struct {
		happens func(*story)
		want    int
	}{
		"all have started": {happens: func(s *story) {
			s.pod("a1", waits("a"))
			s.pod("b1", waits("b"))
			s.pod("b2", waits("b"))
			s.pod("a1", run)
		}},
		"one has not": {want: 1, happens: func(s *story) {
			s.pod("b1", waits("b"))
			s.pod("a1", waits("a"))
			s.pod("a1", run)
		}},
		"one has succeeded": {happens: func(s *story) {
			s.pod("a1", waits("a"))
			s.pod("b1", waits("b"))
			s.pod("b2", waits("b"))
			s.pod("b2", phase(corev1.PodSucceeded))
			s.later()
			s.pod("a1", run)
		}},
		"one has failed": {want: 1, happens: func(s *story) {
			s.pod("a1", waits("a"))
			s.pod("b1", waits("b"))
			s.pod("b2", waits("b"))
			s.pod("b2", phase(corev1.PodFailed))
			s.later()
			s.pod("a1", run)
		}},
		"one is replaced after the start": {happens: func(s *story) {
			s.pod("a1", waits("a"))
			s.pod("b1", waits("b"))
			s.pod("b2", waits("b"))
			for _, pod := range []string{"a1", "b1", "b2"} {
				s.pod(pod, run)
			}
			s.pod("b1", phase(corev1.PodFailed))
			s.pod("b2", phase(corev1.PodFailed))
			s.later()
			s.pod("b3", waits("b"))
			s.pod("b3", run)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory()
			s.seeJobSet(newJobSet(func(js *jobsetapi.JobSet) {
				for i := range js.Spec.ReplicatedJobs {
					r := &js.Spec.ReplicatedJobs[i]
					r.Template.Spec.Parallelism = new(int32(i + 1))
					r.Template.Annotations = map[string]string{apis.GroupStartAnnotation: "300"}
				}
			}))
			test.happens(s)
			s.expect(t, test.want)
		})
	}
}
