package stages

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// kube is a scheduler of which the API server serves the objects of gangs, if it serves a version.
func kube(version string) schedulergang.API {
	return schedulergang.API{
		Name: string(configapi.GangProviderKube), IsConfigured: true, IsServed: version != "", Version: version, WantedVersion: "scheduling.k8s.io/v1alpha2",
	}
}

// asGangs makes a gang of each ReplicatedJob.
func asGangs(t *testing.T, s *jobsetstate.Snapshot) {
	t.Helper()
	for i := range s.JobSet.Spec.ReplicatedJobs {
		s.JobSet.Spec.ReplicatedJobs[i].GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	}
	s.Scheduler.API = kube("scheduling.k8s.io/v1alpha2")
	s.Scheduler.Default = s.Scheduler.Name
	s.Gangs = gangsOf(t, s, schedulergang.Kube{Version: schedulergang.V1alpha2})
}

func gangsOf(t *testing.T, s *jobsetstate.Snapshot, provider schedulergang.Provider) *schedulergang.State {
	t.Helper()
	shape, err := schedulergang.New(s.JobSet, s.Plan, provider)
	if err != nil {
		t.Fatal(err)
	}
	state, err := schedulergang.NewState(shape, provider, len(s.Plan.Stages))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// observe makes the objects of a stage exist.
func observe(s *jobsetstate.Snapshot, stage int, change func(*unstructured.Unstructured)) {
	for _, object := range s.Gangs.Missing(stage) {
		object = object.DeepCopy()
		if change != nil && object.GetKind() == "PodGroup" {
			change(object)
		}
		s.Gangs.Observe(object)
	}
}

func TestDesiredGangs(t *testing.T) {
	admitted := map[string]string{"init": "admitted", "train": "closed"}
	larger := func(object *unstructured.Unstructured) {
		object.Object["spec"].(map[string]any)["schedulingPolicy"] = map[string]any{"gang": map[string]any{"minCount": int64(7)}}
	}
	cases := map[string]struct {
		world world
		there func(*jobsetstate.Snapshot)
		want  []string
	}{
		"the gangs of an admitted stage are there before its Jobs run": {
			world: world{workloads: admitted, jobs: map[string]string{"init": "held"}},
			want:  []string{"start", "gather Workload js-gangs-jsuid", "gather PodGroup js-init-0-r0-jsuid", "release init-0 node=a100"},
		},
		"they are made once": {
			world: world{workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) { observe(s, 0, nil) },
			want:  []string{"start", "release init-0 node=a100"},
		},
		"nothing is made for a stage that waits": {
			world: world{workloads: map[string]string{"init": "waiting", "train": "closed"}, jobs: map[string]string{"init": "held"}},
		},
		"a gang that is deleted while it runs is made again": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "running"}, pods: []string{"init"}},
			want:  []string{"gather Workload js-gangs-jsuid", "gather PodGroup js-init-0-r0-jsuid"},
		},
		"a gang of another number of pods goes before its Jobs run": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) { observe(s, 0, larger) },
			want:  []string{"disperse PodGroup js-init-0-r0-jsuid"},
		},
		"a gang of another number of pods stays while pods go by it": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "running"}, pods: []string{"init"}},
			there: func(s *jobsetstate.Snapshot) { observe(s, 0, larger) },
		},
		"what the user has made is left alone": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) {
				observe(s, 0, func(object *unstructured.Unstructured) {
					object.SetOwnerReferences(nil)
					larger(object)
				})
			},
			want: []string{"release init-0 node=a100"},
		},
		"the gangs of an earlier attempt go": {
			world: world{started: true, restarts: 1, workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) {
				now := s.Gangs
				s.JobSet.Status.Restarts = 0
				s.Gangs = gangsOf(t, s, schedulergang.Kube{Version: schedulergang.V1alpha2})
				s.JobSet.Status.Restarts = 1
				for _, object := range s.Gangs.Missing(0) {
					now.Observe(object)
				}
				s.Gangs = now
			},
			want: []string{"disperse PodGroup js-init-0-r0-jsuid", "gather PodGroup js-init-0-r1-jsuid", "release init-0 node=a100"},
		},
		"those of a finished JobSet stay with it": {
			world: world{started: true, over: jobset.JobSetFailed, workloads: map[string]string{"init": "finished", "train": "finished"}},
			there: func(s *jobsetstate.Snapshot) { observe(s, 0, nil) },
		},
		"a gang that gets another size while it is suspended is held first": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted suspended", "train": "closed suspended"}, jobs: map[string]string{"init": "running"}, pods: []string{"init"}},
			there: func(s *jobsetstate.Snapshot) { observe(s, 0, larger) },
			want:  []string{"hold init-0"},
		},
		"it goes when its pods have ended": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "suspended", "train": "closed suspended"}, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) { observe(s, 0, larger) },
			want:  []string{"disperse PodGroup js-init-0-r0-jsuid"},
		},
		"it is not made again before its Jobs have been resized": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "held wide"}},
			there: func(s *jobsetstate.Snapshot) {
				s.Owned.Jobs[0].Labels[jobset.JobIndexKey] = "0"
				s.Owned.Jobs[0].Spec.CompletionMode = new(batchv1.IndexedCompletion)
			},
		},
		"a suspended JobSet keeps its gangs, and makes none": {
			world: world{started: true, suspended: true, workloads: map[string]string{"init": "admitted suspended", "train": "closed suspended"}, jobs: map[string]string{"init": "held"}, pods: []string{"init"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			asGangs(t, s)
			if c.there != nil {
				c.there(s)
			}
			if diff := cmp.Diff(c.want, render(Next(s))); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGangNews: the JobSet reports whether its gangs are placed as a whole, and why not.
func TestGangNews(t *testing.T) {
	job := func(group string) *batchv1.Job {
		job := world{}.job("init-0", "init", []string{"running"})
		job.Labels[jobset.JobIndexKey] = "0"
		if group != "" {
			job.Spec.Template.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &group}
		}
		return job
	}
	cases := map[string]struct {
		change     func(*jobsetstate.Snapshot)
		wantReason string
		want       string
	}{
		"all is well": {
			func(s *jobsetstate.Snapshot) { s.Owned.Jobs = []*batchv1.Job{job("js-init-0-r0-jsuid")} }, jobsetstatus.GangsKept,
			"2 gangs, each with a PodGroup of scheduling.k8s.io/v1alpha2 from when its stage is admitted",
		},
		"no provider": {
			func(s *jobsetstate.Snapshot) { s.Scheduler.API, s.Gangs = schedulergang.API{}, nil }, jobsetstatus.GangsNotConfigured,
			"spec.replicatedJobs[0].gangConfig, spec.replicatedJobs[1].gangConfig: gangs are not placed whole: neither gang.provider in the manager's configuration nor the annotation",
		},
		"no API": {
			func(s *jobsetstate.Snapshot) { s.Scheduler.API, s.Gangs = kube(""), nil }, jobsetstatus.GangsNotServed, "turn on the feature gate GenericWorkload",
		},
		"a gang that cannot be": {
			func(s *jobsetstate.Snapshot) { s.Plan, s.Gangs, s.Refusal = nil, nil, "fix it" }, jobsetstatus.GangsMisconfigured, "not placed whole: fix it",
		},
		"a Job whose pods name no gang": {
			func(s *jobsetstate.Snapshot) { s.Owned.Jobs = []*batchv1.Job{job("")} }, jobsetstatus.GangsNotNamed, `the pods of Job "init-0" have no spec.schedulingGroup`,
		},
		"gangs that the JobSet controller keeps": {
			func(s *jobsetstate.Snapshot) { s.JobSet.Spec.Scheduling, s.Gangs = &runtime.RawExtension{}, nil }, jobsetstatus.GangsOfJobSet,
			"Tranche keeps none",
		},
		"a gang of the user": {
			func(s *jobsetstate.Snapshot) {
				observe(s, 0, func(object *unstructured.Unstructured) { object.SetOwnerReferences(nil) })
			}, jobsetstatus.GangsOfUser,
			`PodGroup "js-init-0-r0-jsuid" was not created by Tranche`,
		},
		"no gangs": {
			func(s *jobsetstate.Snapshot) {
				for i := range s.JobSet.Spec.ReplicatedJobs {
					s.JobSet.Spec.ReplicatedJobs[i].GangConfig.GangMode = jobsetapi.GangModeOff
				}
			}, "", "",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := world{started: true, workloads: map[string]string{"init": "waiting", "train": "closed"}}.build(t)
			asGangs(t, s)
			c.change(s)
			got := apimeta.FindStatusCondition(Next(s).Conditions, jobsetstatus.GangScheduling)
			if c.wantReason == "" {
				if got != nil {
					t.Errorf("says %v", got)
				}
				return
			}
			if got == nil || got.Reason != c.wantReason || !strings.Contains(got.Message, c.want) {
				t.Fatalf("says %v, want %s: %s", got, c.wantReason, c.want)
			}
			if whole := got.Status == metav1.ConditionTrue; whole != slices.Contains([]string{jobsetstatus.GangsKept, jobsetstatus.GangsOfUser, jobsetstatus.GangsOfJobSet}, c.wantReason) {
				t.Errorf("status %s with reason %s", got.Status, got.Reason)
			}
		})
	}
}
