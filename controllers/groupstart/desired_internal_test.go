package groupstart

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
	"github.com/tranche-dev/tranche/lifecycle/childjob"
)

// newJobSet returns a JobSet with a group of 2 Jobs of 2 pods, w, and one of 1 pod, d, and with a Job x that is in no group.
func newJobSet(change func(*jobsetapi.JobSet)) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "js", UID: "js"}}
	for _, r := range []struct {
		name           string
		replicas, pods int32
	}{{"w", 2, 2}, {"d", 1, 1}, {"x", 1, 5}} {
		job := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: r.name, Replicas: r.replicas}}
		job.Template.Spec.Parallelism = &r.pods
		if r.name != "x" {
			job.Template.Annotations = map[string]string{apis.GroupStartAnnotation: "60"}
		}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, job)
	}
	change(js)
	return js
}

// newJob returns the Job of a ReplicatedJob, released once and waiting.
func newJob(replicatedJob string, index int, change func(*batchv1.Job)) batchv1.Job {
	name := fmt.Sprintf("%s%d", replicatedJob, index)
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{
			jobset.ReplicatedJobNameKey: replicatedJob, restartAttemptLabel: "0", jobset.JobIndexKey: strconv.Itoa(index),
		},
	}}
	pods := map[string]int32{"w": 2, "d": 1, "x": 5}[replicatedJob]
	job.Spec.Parallelism = &pods
	job.Spec.Template.Annotations = map[string]string{apis.ReleaseAnnotation: "1"}
	job.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: barrier.Container}}
	change(&job)
	return job
}

func same(*batchv1.Job) {}

// newPod returns a pod of a Job: waits, runs, ended, gave-up, new, gone (terminating), passed (no longer waits), or with the number of its
// release, as in waits.2.
func newPod(job, state string) corev1.Pod {
	state, release, _ := strings.Cut(state, ".")
	if release == "" {
		release = "1"
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Annotations:     map[string]string{apis.ReleaseAnnotation: release},
		OwnerReferences: []metav1.OwnerReference{{UID: types.UID(job), Controller: new(true)}},
	}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	say := func(s corev1.ContainerState) {
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "istio"}, {Name: barrier.Container, State: s}}
	}
	switch state {
	case "waits":
		say(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	case "gone":
		say(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
		pod.DeletionTimestamp = new(metav1.Unix(1, 0))
	case "passed":
		say(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	case "gave-up":
		say(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}})
	case "runs":
		pod.Status.Phase = corev1.PodRunning
	case "ended":
		pod.Status.Phase = corev1.PodSucceeded
	case "failed":
		pod.Status.Phase = corev1.PodFailed
		say(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})
	}
	return pod
}

func newPods(states map[string][]string) []corev1.Pod {
	var pods []corev1.Pod
	for job, all := range states {
		for _, state := range all {
			pods = append(pods, newPod(job, state))
		}
	}
	return pods
}

func allJobs() []batchv1.Job {
	return []batchv1.Job{newJob("w", 0, same), newJob("w", 1, same), newJob("d", 0, same), newJob("x", 0, same)}
}

func TestCount(t *testing.T) {
	whole := []string{"d0.1", "w0.1", "w1.1"}
	all := func(change func([]batchv1.Job)) []batchv1.Job {
		jobs := allJobs()
		change(jobs)
		return jobs
	}
	finish := func(job *batchv1.Job) {
		job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	}
	cases := map[string]struct {
		change    func(*jobsetapi.JobSet)
		jobs      []batchv1.Job
		pods      map[string][]string
		done      childjob.Succeeded
		want      groupCounts
		wantWhole bool
	}{
		"no Jobs yet": {want: groupCounts{pods: 5}},
		"one Job is missing": {
			jobs: allJobs()[1:], pods: map[string][]string{"w1": {"waits", "waits"}, "d0": {"waits"}},
			want: groupCounts{started: 3, pods: 5, signals: []string{"d0.1", "w1.1"}, pending: []string{"d0.1", "w1.1"}, waits: true},
		},
		"one pod is missing": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"waits", "new"}, "w1": {"waits", "waits"}, "d0": {"waits"}, "x0": {"waits"}},
			want: groupCounts{started: 4, pods: 5, signals: whole, pending: whole, complete: true, waits: true},
		},
		"all wait": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}, "d0": {"waits"}},
			want: groupCounts{started: 5, pods: 5, signals: whole, pending: whole, complete: true, waits: true}, wantWhole: true,
		},
		"some no longer wait": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"runs", "ended"}, "w1": {"passed", "waits"}, "d0": {"waits"}},
			want: groupCounts{started: 5, pods: 5, signals: whole, pending: whole, complete: true, waits: true}, wantWhole: true,
		},
		"those that go, have failed or are of another release do not count": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"gone", "failed"}, "w1": {"waits.2", "waits.0"}, "d0": {"waits"}},
			want: groupCounts{started: 1, pods: 5, signals: whole, pending: whole, complete: true, waits: true},
		},
		"more pods of one Job do not stand for those of another": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"waits", "waits", "waits"}, "w1": {"waits"}, "d0": {"waits"}},
			want: groupCounts{started: 4, pods: 5, signals: whole, pending: whole, complete: true, waits: true},
		},
		"one gave up": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"gave-up", "waits"}, "w1": {"waits", "waits"}},
			want: groupCounts{started: 3, pods: 5, signals: whole, pending: whole, complete: true, gaveUp: true, waits: true},
		},
		"one Job is held": {
			jobs: all(func(jobs []batchv1.Job) { jobs[2].Spec.Suspend = new(true) }),
			pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}, "d0": {"waits"}},
			want: groupCounts{started: 4, pods: 5, signals: whole, pending: whole, waits: true},
		},
		"one Job was released again": {
			jobs: all(func(jobs []batchv1.Job) { jobs[2].Spec.Template.Annotations[apis.ReleaseAnnotation] = "2" }),
			pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}, "d0": {"waits", "waits.2"}},
			want: groupCounts{started: 5, pods: 5, signals: []string{"d0.2", "w0.1", "w1.1"}, pending: []string{"d0.2", "w0.1", "w1.1"}, complete: true, waits: true}, wantWhole: true,
		},
		"one Job has succeeded, and its pods are gone": {
			jobs: all(func(jobs []batchv1.Job) { finish(&jobs[2]) }), pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"runs", "runs"}},
			want: groupCounts{started: 5, pods: 5, signals: whole, pending: whole[1:], complete: true, waits: true}, wantWhole: true,
		},
		"pods that have succeeded are gone": {
			jobs: all(func(jobs []batchv1.Job) { jobs[0].Status.Succeeded = 1 }),
			pods: map[string][]string{"w0": {"runs"}, "w1": {"runs", "runs"}, "d0": {"waits"}},
			want: groupCounts{started: 5, pods: 5, signals: whole, pending: whole, complete: true, waits: true}, wantWhole: true,
		},
		"one Job has succeeded, and was recreated and stays held": {
			jobs: all(func(jobs []batchv1.Job) {
				jobs[2].Spec.Suspend, jobs[2].Labels[apis.HoldLabel] = new(true), apis.HoldValue
			}),
			pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}}, done: childjob.Succeeded{"d": {0: true}},
			want: groupCounts{started: 5, pods: 5, signals: whole[1:], pending: whole[1:], complete: true, waits: true}, wantWhole: true,
		},
		"one Job has succeeded, and was recreated and is complete without pods": {
			jobs: all(func(jobs []batchv1.Job) {
				jobs[2].Spec.Suspend, jobs[2].Spec.Template.Annotations = new(true), nil
				finish(&jobs[2])
			}),
			pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}},
			want: groupCounts{started: 5, pods: 5, signals: whole[1:], pending: whole[1:], complete: true, waits: true}, wantWhole: true,
		},
		"one Job has succeeded and disappeared": {
			jobs: allJobs()[:2], pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}}, done: childjob.Succeeded{"d": {0: true}},
			want: groupCounts{started: 5, pods: 5, signals: whole[1:], pending: whole[1:], complete: true, waits: true}, wantWhole: true,
		},
		"one Job runs although one of its name has succeeded": {
			jobs: allJobs(), pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}}, done: childjob.Succeeded{"d": {0: true}},
			want: groupCounts{started: 4, pods: 5, signals: whole, pending: whole, complete: true, waits: true},
		},
		"a Job that goes on after a suspension has pods to start": {
			jobs: all(func(jobs []batchv1.Job) {
				jobs[0].Spec.Completions, jobs[0].Status.Succeeded = new(int32(9)), 3
				jobs[1].Spec.Completions, jobs[1].Status.Succeeded = new(int32(9)), 8
			}),
			pods: map[string][]string{"w0": {"waits"}, "w1": {"waits"}, "d0": {"waits"}},
			want: groupCounts{started: 4, pods: 5, signals: whole, pending: whole, complete: true, waits: true},
		},
		"fewer completions than parallelism": {
			jobs: all(func(jobs []batchv1.Job) { jobs[0].Spec.Completions = new(int32(1)) }),
			pods: map[string][]string{"w0": {"waits"}, "w1": {"waits", "waits"}, "d0": {"waits"}},
			want: groupCounts{started: 4, pods: 4, signals: whole, pending: whole, complete: true, waits: true}, wantWhole: true,
		},
		"Jobs of the attempt before do not count": {
			change: func(js *jobsetapi.JobSet) { js.Status.Restarts = 1 },
			jobs:   allJobs(), pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}, "d0": {"waits"}},
			want: groupCounts{pods: 5},
		},
		"Jobs that are being deleted do not count": {
			jobs: all(func(jobs []batchv1.Job) { jobs[2].DeletionTimestamp = new(metav1.Unix(1, 0)) }),
			pods: map[string][]string{"w0": {"waits", "waits"}, "w1": {"waits", "waits"}, "d0": {"waits"}},
			want: groupCounts{started: 4, pods: 5, signals: whole[1:], pending: whole[1:], waits: true},
		},
		"pods that do not wait": {
			jobs: all(func(jobs []batchv1.Job) {
				jobs[1].Spec.Template.Spec.InitContainers, jobs[2].Spec.Template.Spec.InitContainers = nil, nil
			}),
			want: groupCounts{pods: 5, signals: whole, pending: whole, complete: true, unaware: "d0", waits: true},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*jobsetapi.JobSet) {}
			}
			got := count(newJobSet(c.change), c.jobs, newPods(c.pods), c.done)
			if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(groupCounts{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got.isWhole() != c.wantWhole {
				t.Errorf("isWhole = %t", got.isWhole())
			}
		})
	}
}

func newSnapshot(change func(*snapshot)) *snapshot {
	s := &snapshot{jobSet: newJobSet(func(*jobsetapi.JobSet) {}), endpoint: "http://tranche/v1/groups/ml/js", injected: true}
	s.groupCounts = groupCounts{started: 5, pods: 5, complete: true, waits: true, signals: []string{"d0.1", "w0.1"}, pending: []string{"d0.1", "w0.1"}}
	s.configMap = &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "js-group-scheduling", Labels: map[string]string{apis.JobSetLabel: "js"},
			OwnerReferences: []metav1.OwnerReference{{UID: "js", Controller: new(true)}},
		},
		Data: map[string]string{"endpoint": s.endpoint, "token": "t", "pods": "5"},
	}
	change(s)
	return s
}

func TestDesired(t *testing.T) {
	released, started := "d0.1\nw0.1\n", "true\n"
	cases := map[string]struct {
		change func(*snapshot)
		// wantData is the written data, or nil if nothing is written.
		wantData               map[string]string
		wantReason             string
		wantMessage            string
		wantRelease, wantAgain bool
	}{
		"whole": {
			func(*snapshot) {},
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5", "released": released, "started": started},
			"AllStarted", "spec.replicatedJobs[0].template.metadata.annotations[tranche.dev/group-start]: all 5 pods of the group had started", true, false,
		},
		"whole, and said so": {
			func(s *snapshot) { s.configMap.Data["released"], s.configMap.Data["started"] = released, started }, nil, "AllStarted", "all 5 pods", false, false,
		},
		"released by a manager that did not write the file started": {
			func(s *snapshot) { s.configMap.Data["released"] = released },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5", "released": released, "started": started},
			"AllStarted", "", false, false,
		},
		"not whole": {func(s *snapshot) { s.groupCounts.started = 4 }, nil, "WaitingForPods", "wait until all 5 pods of the group have started", false, false},
		"no ConfigMap yet": {
			func(s *snapshot) { s.configMap, s.groupCounts = nil, groupCounts{pods: 5} },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "", "pods": "5"},
			"WaitingForPods", "", false, false,
		},
		"a ConfigMap without a token": {
			func(s *snapshot) { s.groupCounts.started, s.configMap.Data = 4, nil },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "", "pods": "5"},
			"WaitingForPods", "", false, false,
		},
		"a ConfigMap with an empty token": {
			func(s *snapshot) { s.groupCounts.started, s.configMap.Data["token"] = 4, "" },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "", "pods": "5"},
			"WaitingForPods", "", false, false,
		},
		"the server for pods was turned off": {
			func(s *snapshot) { s.groupCounts.started, s.endpoint = 4, "" }, map[string]string{"token": "t", "pods": "5"}, "WaitingForPods", "", false, false,
		},
		"the label is gone": {
			func(s *snapshot) { s.configMap.Labels = nil; s.groupCounts.started = 4 },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5"},
			"WaitingForPods", "", false, false,
		},
		"what was released stays so": {
			func(s *snapshot) {
				s.configMap.Data["released"], s.configMap.Data["started"], s.groupCounts.started = released, started, 1
			}, nil, "AllStarted", "", false, false,
		},
		"another attempt waits": {
			func(s *snapshot) { s.configMap.Data["released"] = "d0.0\nw0.0\n"; s.groupCounts.started = 1 }, nil, "WaitingForPods", "", false, false,
		},
		"another attempt waits, and the file of the one before is there": {
			func(s *snapshot) {
				s.configMap.Data["released"], s.configMap.Data["started"], s.groupCounts.started = "d0.0\nw0.0\n", started, 1
			},
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5", "released": "d0.0\nw0.0\n"},
			"WaitingForPods", "", false, false,
		},
		"a Job is held again before it is released again": {
			func(s *snapshot) {
				s.configMap.Data["released"], s.configMap.Data["started"], s.groupCounts.started, s.groupCounts.complete = released, started, 3, false
			},
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5", "released": released},
			"WaitingForPods", "", false, false,
		},
		"another attempt is whole": {
			func(s *snapshot) { s.configMap.Data["released"] = "d0.0\nw0.0\n" },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5", "released": released, "started": started},
			"AllStarted", "", true, false,
		},
		"a pod gave up": {
			func(s *snapshot) { s.groupCounts.started, s.groupCounts.gaveUp = 4, true }, nil, "TimedOut", "a pod timed out waiting for all 5 pods", false, false,
		},
		"a pod gave up, and is gone": {func(s *snapshot) {
			s.groupCounts.started = 4
			s.jobSet.Status.Conditions = []metav1.Condition{{Type: "GroupScheduling", Reason: "TimedOut"}}
		}, nil, "TimedOut", "", false, false},
		"a pod gave up in the attempt before": {func(s *snapshot) {
			s.groupCounts.started, s.groupCounts.complete = 4, false
			s.jobSet.Status.Conditions = []metav1.Condition{{Type: "GroupScheduling", Reason: "TimedOut"}}
		}, nil, "WaitingForPods", "", false, false},
		"pods that do not wait": {func(s *snapshot) { s.groupCounts.started, s.groupCounts.unaware = 4, "w0" }, nil, "PodsDoNotWait", `the pods of Job "w0"`, false, false},
		"turned off":            {func(s *snapshot) { s.injected, s.groupCounts.waits = false, false }, nil, "NotConfigured", "groupStartImage", false, false},
		"turned off while pods wait": {
			func(s *snapshot) { s.injected = false },
			map[string]string{"endpoint": "http://tranche/v1/groups/ml/js", "token": "t", "pods": "5", "released": released, "started": started},
			"AllStarted", "", true, false,
		},
		"the user's ConfigMap": {func(s *snapshot) { s.configMap.OwnerReferences = nil }, nil, "ConfigMapOfUser", `Tranche did not create ConfigMap "js-group-scheduling"`, false, true},
		"that of something else": {
			func(s *snapshot) { s.configMap.OwnerReferences[0].UID = "else" }, nil, "ConfigMapOfUser", "", false, true,
		},
		"that of another JobSet": {
			func(s *snapshot) {
				s.configMap.OwnerReferences[0] = metav1.OwnerReference{Kind: "JobSet", Name: "another", UID: "another", Controller: new(true)}
			},
			nil, "ConfigMapOfUser", "", false, true,
		},
		"that of a JobSet that is gone": {
			func(s *snapshot) {
				s.configMap.OwnerReferences[0] = metav1.OwnerReference{Kind: "JobSet", Name: "js", UID: "before", Controller: new(true)}
			},
			nil, "WaitingForPods", "of a deleted JobSet of the same name has been deleted", false, false,
		},
		"too many Jobs": {func(s *snapshot) { s.groupCounts.signals = make([]string, maxJobs+1) }, nil, "Misconfigured", "20001 Jobs, but at most 20000 are possible", false, false},
		"no members": {func(s *snapshot) {
			s.jobSet.Spec.GroupSchedulingConfig = &jobsetapi.GroupSchedulingConfig{}
			for i := range s.jobSet.Spec.ReplicatedJobs {
				s.jobSet.Spec.ReplicatedJobs[i].Template.Annotations = nil
			}
		}, nil, "Misconfigured", "spec.groupSchedulingConfig: no ReplicatedJob has the annotation tranche.dev/group-start", false, false},
		"later stages": {func(s *snapshot) {
			s.jobSet.Annotations = map[string]string{apis.GroupStartAnnotation: "60"}
			s.jobSet.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "w", Status: jobset.DependencyReady}}
		}, nil, "Misconfigured", `metadata.annotations[tranche.dev/group-start]: ReplicatedJobs "w" and "d" are in one group, but start in different stages`, false, false},
		"no plan": {func(s *snapshot) {
			s.jobSet.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "unknown", Status: jobset.DependencyReady}}
		}, nil, "Misconfigured", `"unknown"`, false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := desired(newSnapshot(c.change))
			var data map[string]string
			if w.configMap != nil {
				data = w.configMap.Data
				if !metav1.IsControlledBy(w.configMap, newSnapshot(c.change).jobSet) || w.configMap.Name != "js-group-scheduling" || w.configMap.Labels[apis.JobSetLabel] != "js" {
					t.Errorf("the ConfigMap is %v", w.configMap.ObjectMeta)
				}
			}
			if diff := cmp.Diff(c.wantData, data); diff != "" {
				t.Errorf("ConfigMap (-want +got):\n%s", diff)
			}
			if w.condition.Reason != c.wantReason || !strings.Contains(w.condition.Message, c.wantMessage) {
				t.Errorf("condition %s: %s; want %s: %s", w.condition.Reason, w.condition.Message, c.wantReason, c.wantMessage)
			}
			if (w.condition.Status == metav1.ConditionTrue) != (c.wantReason == "AllStarted") {
				t.Errorf("status %s", w.condition.Status)
			}
			if w.releases != c.wantRelease || w.retries != c.wantAgain {
				t.Errorf("releases %t, retries %t", w.releases, w.retries)
			}
		})
	}
}

// TestKeepOfStatus: the cached part of a status gives the same result as the whole status.
func TestKeepOfStatus(t *testing.T) {
	for state, want := range map[string]bool{
		"waits": true, "gone": true, "passed": true, "gave-up": false, "runs": true, "ended": true, "failed": false, "new": false,
	} {
		pod := newPod("w0", state)
		if hasStarted(&pod) != want {
			t.Errorf("%s has started: %t", state, !want)
		}
		kept := pod
		kept.Status.InitContainerStatuses = KeepOfStatus(&pod)
		if hasStarted(&pod) != hasStarted(&kept) || hasGivenUp(&pod) != hasGivenUp(&kept) {
			t.Errorf("%s: %v is kept as %v", state, pod.Status, kept.Status)
		}
		if len(kept.Status.InitContainerStatuses) > 1 {
			t.Errorf("%s: more is kept than needed: %v", state, kept.Status)
		}
		if waiting, kept := barrierOf(&pod), barrierOf(&kept); waiting != nil && waiting.Running != nil && *waiting.Running != *kept.Running {
			t.Errorf("%s: since %v is kept as %v", state, waiting.Running, kept.Running)
		}
		pod.Annotations = nil
		if kept := KeepOfStatus(&pod); kept != nil {
			t.Errorf("%s: of a pod in no group %v is kept", state, kept)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := SetupWithManager(t.Context(), nil, Config{}); err == nil || !strings.Contains(err.Error(), "required") {
		t.Errorf("err = %v", err)
	}
}

// TestWaits: a group waits from the start of its first pod until it is released, even if it never is.
func TestWaits(t *testing.T) {
	waiting := func(started int64) corev1.Pod {
		pod := newPod("w0", "waits")
		pod.Status.InitContainerStatuses[1].State.Running.StartedAt = metav1.Unix(started, 0)
		return pod
	}
	got := count(newJobSet(func(*jobsetapi.JobSet) {}), allJobs(), []corev1.Pod{newPod("w0", "waits"), waiting(20), newPod("d0", "passed"), waiting(10)}, nil)
	if got.since.Unix() != 10 {
		t.Errorf("waits since %v, want the first of those that do", got.since)
	}
	for name, c := range map[string]struct {
		change func(*snapshot)
		want   bool
	}{
		"not whole":                    {func(s *snapshot) { s.groupCounts.started = 4 }, true},
		"not whole, and no pod there":  {func(s *snapshot) { s.groupCounts.started, s.groupCounts.since = 0, time.Time{} }, false},
		"whole":                        {func(*snapshot) {}, false},
		"whole, but some do not wait":  {func(s *snapshot) { s.groupCounts.unaware = "w0" }, false},
		"whole, but not to be written": {func(s *snapshot) { s.configMap.OwnerReferences = nil }, true},
	} {
		s := newSnapshot(func(s *snapshot) { s.groupCounts.since = time.Unix(10, 0) })
		c.change(s)
		if got := desired(s).waits; got != c.want {
			t.Errorf("%s: waits = %t", name, got)
		}
	}
	s := newSnapshot(func(s *snapshot) { s.groupCounts.since = time.Unix(10, 0) })
	w := desired(s)
	if w.refuse(s, errors.New("exceeded quota")); !w.waits || !w.retries || w.condition.Reason != "ConfigMapRefused" {
		t.Errorf("refused: waits = %t, retries = %t, condition %v", w.waits, w.retries, w.condition)
	}
}
