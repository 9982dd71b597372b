package stages

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// asVolcano makes Volcano place the gangs of a JobSet, though another scheduler is the default.
func asVolcano(t *testing.T, s *jobsetstate.Snapshot) {
	t.Helper()
	asGangs(t, s)
	s.Scheduler = jobsetstate.Scheduler{API: volcano(), Default: "Kube", SchedulerName: "volcano"}
	s.Gangs = gangsOf(t, s, schedulergang.Volcano{})
	for i := range s.JobSet.Spec.ReplicatedJobs {
		s.JobSet.Spec.ReplicatedJobs[i].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "0"}
	}
	for _, job := range s.Owned.Jobs {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, apis.GangGroupAnnotation, "0")
		job.Labels[jobset.JobIndexKey] = "0"
	}
}

// nameVolcano names Volcano in the pod templates of the JobSet.
func nameVolcano(s *jobsetstate.Snapshot) {
	for i := range s.JobSet.Spec.ReplicatedJobs {
		jobsetstate.PodTemplateOf(s.JobSet, i).Annotations = map[string]string{apis.GangProviderAnnotation: "Volcano"}
	}
}

// nameVolcanoInJobs names Volcano in the pod templates of its Jobs.
func nameVolcanoInJobs(s *jobsetstate.Snapshot) {
	for _, job := range s.Owned.Jobs {
		job.Spec.Template.Annotations = map[string]string{apis.GangProviderAnnotation: "Volcano"}
		job.Spec.Template.Spec.SchedulerName = "volcano"
	}
}

func TestDesiredOfOtherScheduler(t *testing.T) {
	admitted := map[string]string{"init": "admitted", "train": "closed"}
	gathered := "gather PodGroup js-init-0-r0-jsuid"
	cases := map[string]struct {
		world world
		there func(*jobsetstate.Snapshot)
		want  []string
	}{
		"it is named before the JobSet starts": {
			world: world{workloads: admitted, jobs: map[string]string{"init": "held"}},
			want:  []string{"name", gathered, "remake init-0"},
		},
		"the JobSet starts when it is named": {
			world: world{workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: nameVolcano,
			want:  []string{"start", gathered, "remake init-0"},
		},
		"Jobs that were made for it are released": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) { nameVolcano(s); nameVolcanoInJobs(s) },
			want:  []string{gathered, "release init-0 node=a100"},
		},
		"a Job of another of its own attempts waits until the JobSet reports that attempt": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *jobsetstate.Snapshot) {
				nameVolcano(s)
				nameVolcanoInJobs(s)
				s.Owned.Jobs[0].Labels[jobsetstate.JobRestartAttemptLabel] = "1"
			},
			want: []string{gathered},
		},
		"its objects are changed while pods go by them": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "running"}, pods: []string{"init"}},
			there: func(s *jobsetstate.Snapshot) {
				observe(s, 0, func(object *unstructured.Unstructured) {
					object.Object["spec"].(map[string]any)["minMember"] = int64(7)
				})
			},
			want: []string{"fix PodGroup js-init-0-r0-jsuid"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			asVolcano(t, s)
			if c.there != nil {
				c.there(s)
			}
			w := Next(s)
			if diff := cmp.Diff(c.want, render(w)); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
			for _, release := range w.ReleaseJobs {
				for _, job := range release.Jobs {
					if got := job.Spec.Template.Annotations["scheduling.k8s.io/group-name"]; got != "js-init-0-r0-jsuid" {
						t.Errorf("the pods of Job %s are in the gang %q", job.Name, got)
					}
				}
			}
		})
	}
}

// TestMend: the patch contains nothing that the scheduler has written.
func TestFixDrifted(t *testing.T) {
	s := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}}.build(t)
	asVolcano(t, s)
	observe(s, 0, func(object *unstructured.Unstructured) {
		object.SetUID("old")
		object.Object["spec"].(map[string]any)["minMember"] = int64(7)
		object.Object["status"] = map[string]any{"phase": "Running"}
	})
	patch, err := s.Gangs.Drifted(0)[0].Patch()
	if err != nil {
		t.Fatal(err)
	}
	var sent map[string]any
	if err := json.Unmarshal(patch, &sent); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"uid": "old"},
		"spec":     map[string]any{"minMember": 1.0, "minResources": map[string]any{"cpu": "1"}},
	}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("the patch differs (-want +got):\n%s", diff)
	}
}

// volcano is a scheduler of which the API server serves the objects of gangs.
func volcano() schedulergang.API {
	const version = "scheduling.volcano.sh/v1beta1"
	return schedulergang.API{Name: string(configapi.GangProviderVolcano), IsConfigured: true, IsServed: true, Version: version, WantedVersion: version}
}

// A flavor that names another scheduler than the one for which the JobSet was started is reported.
func TestContradictingFlavor(t *testing.T) {
	s := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}}.build(t)
	asGangs(t, s)
	s.Scheduler.Name = "Koordinator"
	s.Flavors["a100"] = &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.GangProviderAnnotation: "Volcano"}}}
	reason, message := jobsetstate.GangSchedulingOf(s)
	if want := `ResourceFlavor "a100" names Volcano for them`; reason != jobsetstatus.GangsContradicted || !strings.Contains(message, want) {
		t.Errorf("reports %s: %s, want %s: %s", reason, message, jobsetstatus.GangsContradicted, want)
	}
}
