package stages

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
)

// A quota hold is noted once: when it has ended, or before its record is overwritten.
func TestEndedHolds(t *testing.T) {
	cases := map[string]struct {
		world world
		want  []string
	}{
		"nothing while a stage runs": {
			world: world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running up"}},
		},
		"not yet when it finishes": {
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "complete"}},
		},
		"a stage that has finished": {
			world: world{started: true, workloads: map[string]string{"init": "admitted ready finished", "train": "waiting"}, jobs: map[string]string{"init": "complete"}},
			want:  []string{"init"},
		},
		"a JobSet that has ended": {
			world: world{
				started: true, over: jobset.JobSetFailed, workloads: map[string]string{"init": "admitted finished", "train": "closed finished"},
				jobs: map[string]string{"init": "failed"},
			},
			want: []string{"init"},
		},
		"before an evicted stage forgets that it was ready": {
			world: world{
				started: true, workloads: map[string]string{"init": "admitted ready evicted", "train": "closed"}, jobs: map[string]string{"init": "running up"}, pods: []string{"init"},
			},
			want: []string{"init"},
		},
		"not while the pods of an evicted stage end": {
			world: world{
				started: true, workloads: map[string]string{"init": "admitted evicted", "train": "closed"}, jobs: map[string]string{"init": "running up"}, pods: []string{"init"},
			},
		},
		"before an evicted stage gives its quota back": {
			world: world{started: true, workloads: map[string]string{"init": "admitted evicted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"init"},
		},
		"before a suspended stage gives its quota back": {
			world: world{
				started: true, suspended: true, workloads: map[string]string{"init": "admitted ready suspended", "train": "closed suspended"},
				jobs: map[string]string{"init": "held"},
			},
			want: []string{"init"},
		},
		"before a suspended stage forgets that it was ready": {
			world: world{
				started: true, suspended: true, workloads: map[string]string{"init": "admitted ready suspended", "train": "closed suspended"},
				jobs: map[string]string{"init": "running"}, pods: []string{"init"},
			},
			want: []string{"init"},
		},
		"before a stage that a restart has closed forgets that it was ready": {
			world: world{
				started: true, restarts: 1, workloads: map[string]string{"init": "admitted", "train": "admitted closed ready"}, jobs: map[string]string{"init": "running"},
			},
			want: []string{"train closes"},
		},
		"before a stage that loses a pod forgets since when it was ready": {
			world: world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running"}},
			want:  []string{"init"},
		},
		"before a stage that was not ready yet is closed": {
			world: world{
				started: true, restarts: 1, workloads: map[string]string{"init": "admitted", "train": "admitted closed unready"}, jobs: map[string]string{"init": "running"},
			},
			want: []string{"train closes"},
		},
		"before a quota Workload that a user has deleted disappears": {
			world: world{started: true, workloads: map[string]string{"init": "admitted pinned deleted", "train": "closed"}, jobs: map[string]string{"init": "held"}},
			want:  []string{"init"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			for _, workload := range s.Owned.Workloads {
				for i := range workload.Status.Conditions {
					workload.Status.Conditions[i].LastTransitionTime = metav1.Unix(1e9, 0)
				}
			}
			var got []string
			var timeline apis.Timeline
			for _, h := range Next(s).EndedHolds {
				name := h.Stage
				if h.Closes {
					name += " closes"
				}
				got = append(got, name)
				h.Count(&timeline, []string{"init", "train"})
			}
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("ended (-want +got):\n%s", diff)
			}
			// Noted, what has finished is not noted again.
			value, err := jobsetstatus.RenderTimeline(timeline)
			if err != nil {
				t.Fatal(err)
			}
			s.JobSet.Annotations[apis.TimelineAnnotation] = value
			for _, h := range Next(s).EndedHolds {
				if finishedAt(h.Workload) != nil {
					t.Errorf("%s is noted again", h.Stage)
				}
			}
		})
	}
}

// The end of a stage is noted some time later, with all stages that have finished by then, and when the JobSet ends.
func TestFreshEndWaitsToBeNoted(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		train string
		ago   map[string]time.Duration // of what the quota Workload of a stage says
		over  jobset.JobSetConditionType
		want  []string
		again time.Duration
	}{
		"finished just now": {
			train: "waiting", ago: map[string]time.Duration{"init": time.Second}, again: noteAfter - time.Second,
		},
		"finished a while ago": {
			train: "waiting", ago: map[string]time.Duration{"init": noteAfter}, want: []string{"init"},
		},
		"together with an earlier end": {
			train: "admitted finished", ago: map[string]time.Duration{"init": noteAfter, "train": time.Second}, want: []string{"init", "train"},
			again: noteAfter - time.Second,
		},
		"the JobSet has ended": {
			train: "admitted finished", ago: map[string]time.Duration{"init": time.Second, "train": time.Second}, over: jobset.JobSetCompleted,
			want: []string{"init", "train"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			jobs := map[string]string{"init": "complete"}
			if c.train == "admitted finished" {
				jobs["train"] = "complete"
			}
			s := world{started: true, over: c.over, workloads: map[string]string{"init": "admitted finished", "train": c.train}, jobs: jobs}.build(t)
			s.Now = now
			for _, workload := range s.Owned.Workloads {
				for i := range workload.Status.Conditions {
					workload.Status.Conditions[i].LastTransitionTime = metav1.NewTime(now.Add(-c.ago[workload.Labels[apis.StageLabel]]))
				}
			}
			w := Next(s)
			var got []string
			for _, h := range w.EndedHolds {
				got = append(got, h.Stage)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("ended (-want +got):\n%s", diff)
			}
			if w.RequeueAfter != c.again {
				t.Errorf("looks again after %s, want %s", w.RequeueAfter, c.again)
			}
		})
	}
}

// If a JobSet has so many stages that its timeline is truncated, it is noted once. Otherwise each write would require the next one.
func TestCutTimelineIsNotedOnce(t *testing.T) {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	var stages []stage
	var order []string
	for i := range 1000 {
		order = append(order, fmt.Sprintf("%s-%d", strings.Repeat("x", 58), i))
		st := stage{Stage: &stageplan.Stage{Name: order[i]}, index: i, workload: &kueue.Workload{Status: kueue.WorkloadStatus{Admission: &kueue.Admission{}}}}
		for _, conditionType := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadFinished} {
			st.workload.Status.Conditions = append(st.workload.Status.Conditions, metav1.Condition{
				Type: conditionType, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Unix(1e9+int64(i), 0),
			})
		}
		stages = append(stages, st)
	}
	w, s := &Step{}, &jobsetstate.Snapshot{JobSet: js, Now: now()}
	for pass, want := range []int{1000, 0} {
		timeline := jobsetstatus.TimelineOf(js)
		ended := w.endedHolds(s, stages)
		if len(ended) != want {
			t.Fatalf("pass %d notes %d holds, want %d", pass, len(ended), want)
		}
		for _, h := range ended {
			h.Count(&timeline, order)
		}
		value, err := jobsetstatus.RenderTimeline(timeline)
		if err != nil {
			t.Fatal(err)
		}
		js.Annotations[apis.TimelineAnnotation] = value
	}
	if jobsetstatus.TimelineOf(js).Omitted == 0 {
		t.Error("the timeline was not cut")
	}
}

// train is kept waiting by init, which is ready: the quota of init is idle until train is ready, too.
func TestHoldKnowsWhatItOpens(t *testing.T) {
	s := world{
		started: true, ready: true, workloads: map[string]string{"init": "admitted ready finished", "train": "waiting"}, jobs: map[string]string{"init": "complete"},
	}.build(t)
	ended := Next(s).EndedHolds
	if len(ended) != 1 || len(ended[0].Opens) != 1 || ended[0].Opens[0].Name != "train" {
		t.Errorf("ended = %+v, want init, which opens train", ended)
	}
	s = world{
		started: true, workloads: map[string]string{"init": "admitted ready finished", "train": "waiting"}, jobs: map[string]string{"init": "complete"},
	}.build(t)
	if ended := Next(s).EndedHolds; len(ended) != 1 || len(ended[0].Opens) != 0 {
		t.Errorf("ended = %+v, want init, which opens nothing by being ready", ended)
	}
}
