package stages

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

var waitStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A waiting is a Job with the pods of a gang, created at waitStart. Each entry names the scheduler of a pod; a plus sign at its end means
// that the pod has a node.
type waiting []string

func (w waiting) build(t *testing.T) *jobsetstate.Snapshot {
	t.Helper()
	s := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "running"}}.build(t)
	parallelism := int32(2)
	s.JobSet.Spec.ReplicatedJobs[0].Template.Spec.Parallelism, s.JobSet.Spec.ReplicatedJobs[0].Template.Spec.Completions = &parallelism, &parallelism
	s.Plan.Stages[0].PodSets[0].Count = parallelism
	asGangs(t, s)
	job := s.Owned.Jobs[0]
	group := "js-init-0-r0-jsuid"
	job.Labels[jobset.JobIndexKey] = "0"
	job.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
	job.Status.StartTime = new(metav1.NewTime(waitStart))
	for _, scheduler := range w {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(waitStart), Labels: map[string]string{
			batchv1.JobNameLabel: job.Name, jobset.ReplicatedJobNameKey: "init", jobsetstate.RestartAttemptLabel: "0",
		}}}
		var placed bool
		if pod.Spec.SchedulerName, placed = strings.CutSuffix(scheduler, "+"); placed {
			pod.Spec.NodeName = "node"
		}
		s.Owned.Pods = append(s.Owned.Pods, pod)
		job.Status.Active++
	}
	s.Patience = time.Minute
	s.Now = waitStart.Add(time.Minute)
	return s
}

// scheduled returns a condition of a PodGroup that reports whether it is placed.
func scheduled(status, message string) func(*unstructured.Unstructured) {
	return func(object *unstructured.Unstructured) {
		object.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "PodGroupScheduled", "status": status, "message": message}}}
	}
}

// refuse lets the scheduler say why no pod has a node.
func refuse(s *jobsetstate.Snapshot, why string) {
	for _, pod := range s.Owned.Pods {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why}}
	}
}

func TestGangWait(t *testing.T) {
	two := waiting{"default-scheduler", "default-scheduler"}
	nothing := func(*unstructured.Unstructured) {}
	cases := map[string]struct {
		pods waiting
		// group changes the PodGroup, which does not exist if group is nil.
		group      func(*unstructured.Unstructured)
		change     func(*jobsetstate.Snapshot)
		wantReason string
		want       string
		wantAgain  time.Duration
	}{
		"all are placed": {pods: waiting{"default-scheduler+", "default-scheduler+"}, group: nothing},
		"they have not waited long": {
			pods: two, group: nothing, change: func(s *jobsetstate.Snapshot) { s.Now = waitStart.Add(50 * time.Second) }, wantAgain: 10 * time.Second,
		},
		"there is no PodGroup": {pods: two, wantReason: jobsetstatus.GangMissing, want: "wait for a PodGroup of this name", wantAgain: time.Minute},
		"one has ended":        {pods: two[:1], group: nothing, wantReason: jobsetstatus.GangTooSmall, want: "1 of the 2 pods exist", wantAgain: time.Minute},
		"none was made":        {group: nothing, wantReason: jobsetstatus.GangTooSmall, want: "0 of the 2 pods exist", wantAgain: time.Minute},
		"those of an earlier attempt do not count": {
			pods: two, group: nothing, change: func(s *jobsetstate.Snapshot) { s.Owned.Pods[0].Labels[jobsetstate.RestartAttemptLabel] = "7" },
			wantReason: jobsetstatus.GangTooSmall, want: "1 of the 2 pods exist", wantAgain: time.Minute,
		},
		"those that are ending do not count": {
			pods: two, group: nothing, change: func(s *jobsetstate.Snapshot) { s.Owned.Pods[0].DeletionTimestamp = new(metav1.Now()) },
			wantReason: jobsetstatus.GangTooSmall, want: "1 of the 2 pods exist", wantAgain: time.Minute,
		},
		"some have ended, and the rest runs": {pods: waiting{"default-scheduler+"}, group: nothing},
		"the PodGroup is of another number of pods": {
			pods: two, group: func(object *unstructured.Unstructured) {
				object.Object["spec"].(map[string]any)["schedulingPolicy"] = map[string]any{"gang": map[string]any{"minCount": int64(7)}}
			}, wantReason: jobsetstatus.GangChanged, want: "is for another number of pods", wantAgain: time.Minute,
		},
		"they go to two schedulers": {
			pods: waiting{"other", "default-scheduler"}, group: nothing, wantReason: jobsetstatus.GangSplit, want: "(default-scheduler, other)", wantAgain: time.Minute,
		},
		"there are no nodes for them": {
			pods: two, group: scheduled("False", "0/3 nodes"), wantReason: jobsetstatus.GangUnschedulable,
			want: `2 of 2 pods of gang "js-init-0-r0-jsuid" have no node: 0/3 nodes`, wantAgain: time.Minute,
		},
		"the scheduler reports on the pods only": {
			pods: two, group: nothing, change: func(s *jobsetstate.Snapshot) {
				s.Scheduler.Name = "Coscheduling"
				refuse(s, "0/2 nodes")
				s.Owned.Pods[0].Status.Conditions = nil
			}, wantReason: jobsetstatus.GangUnschedulable, want: `2 of 2 pods of gang "js-init-0-r0-jsuid" have no node: 0/2 nodes; add nodes`, wantAgain: time.Minute,
		},
		"the scheduler of Kubernetes reports on the pods only": {
			pods: two, group: nothing, change: func(s *jobsetstate.Snapshot) { refuse(s, "0/2 nodes") },
			wantReason: jobsetstatus.GangUnheard, want: "the feature gates GenericWorkload and GangScheduling", wantAgain: time.Minute,
		},
		"one more is about to be placed": {pods: waiting{"default-scheduler+", "default-scheduler"}, group: scheduled("True", ""), wantAgain: time.Minute},
		"the scheduler says nothing": {
			pods: two, group: nothing, wantReason: jobsetstatus.GangUnheard, want: "the feature gates GenericWorkload and GangScheduling", wantAgain: time.Minute,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.pods.build(t)
			if c.group != nil {
				observe(s, 0, c.group)
			}
			if c.change != nil {
				c.change(s)
			}
			w := Next(s)
			if w.RequeueAfter != c.wantAgain {
				t.Errorf("looks again after %s, want %s", w.RequeueAfter, c.wantAgain)
			}
			got := apimeta.FindStatusCondition(w.Conditions, jobsetstatus.GangScheduling)
			if c.wantReason == "" {
				c.wantReason = jobsetstatus.GangsKept
			}
			if got.Reason != c.wantReason || !strings.Contains(got.Message, c.want) {
				t.Errorf("says %s: %s\nwant %s: %s", got.Reason, got.Message, c.wantReason, c.want)
			}
			if (got.Status == metav1.ConditionTrue) != (c.wantReason == jobsetstatus.GangsKept) {
				t.Errorf("status %s with reason %s", got.Status, got.Reason)
			}
		})
	}
}
