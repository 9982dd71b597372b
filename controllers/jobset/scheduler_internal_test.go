package jobset

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/conditions"
	shapes "github.com/tranche-dev/tranche/lifecycle/schedulergang"
)

// asVolcano makes Volcano place the gangs of a JobSet, though another scheduler is the default.
func asVolcano(t *testing.T, s *snapshot) {
	t.Helper()
	asGangs(t, s)
	all := keepers(t, "scheduling.volcano.sh/v1beta1", configapi.GangProviderKube)
	s.scheduler.byDefault = "Kube"
	var err error
	if s.backend, err = all.Of("Volcano"); err != nil {
		t.Fatal(err)
	}
	s.scheduler.schedulerName = all.SchedulerName(s.backend)
	s.gangs = gangsOf(t, s, shapes.Volcano{})
	for i := range s.jobSet.Spec.ReplicatedJobs {
		s.jobSet.Spec.ReplicatedJobs[i].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "0"}
	}
	for _, job := range s.mine.jobs {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, apis.GangGroupAnnotation, "0")
		job.Labels[jobset.JobIndexKey] = "0"
	}
}

// nameVolcano names Volcano in the pod templates of the JobSet.
func nameVolcano(s *snapshot) {
	for i := range s.jobSet.Spec.ReplicatedJobs {
		podTemplateOf(s.jobSet, i).Annotations = map[string]string{apis.GangProviderAnnotation: "Volcano"}
	}
}

// nameVolcanoInJobs names Volcano in the pod templates of its Jobs.
func nameVolcanoInJobs(s *snapshot) {
	for _, job := range s.mine.jobs {
		job.Spec.Template.Annotations = map[string]string{apis.GangProviderAnnotation: "Volcano"}
		job.Spec.Template.Spec.SchedulerName = "volcano"
	}
}

func TestDesiredOfOtherScheduler(t *testing.T) {
	admitted := map[string]string{"init": "admitted", "train": "closed"}
	gathered := "gather PodGroup js-init-0-r0-jsuid"
	cases := map[string]struct {
		world world
		there func(*snapshot)
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
			there: func(s *snapshot) { nameVolcano(s); nameVolcanoInJobs(s) },
			want:  []string{gathered, "release init-0 node=a100"},
		},
		"a Job of another of its own attempts waits until the JobSet tells of it": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "held"}},
			there: func(s *snapshot) {
				nameVolcano(s)
				nameVolcanoInJobs(s)
				s.mine.jobs[0].Labels[jobRestartAttemptLabel] = "1"
			},
			want: []string{gathered},
		},
		"its objects are changed while pods go by them": {
			world: world{started: true, workloads: admitted, jobs: map[string]string{"init": "running"}, pods: []string{"init"}},
			there: func(s *snapshot) {
				observe(s, 0, func(object *unstructured.Unstructured) {
					object.Object["spec"].(map[string]any)["minMember"] = int64(7)
				})
			},
			want: []string{"mend PodGroup js-init-0-r0-jsuid"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := c.world.build(t)
			asVolcano(t, s)
			if c.there != nil {
				c.there(s)
			}
			w := desired(s)
			if diff := cmp.Diff(c.want, render(w)); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
			for _, release := range w.release {
				for _, job := range release.jobs {
					if got := job.Spec.Template.Annotations["scheduling.k8s.io/group-name"]; got != "js-init-0-r0-jsuid" {
						t.Errorf("the pods of Job %s are in the gang %q", job.Name, got)
					}
				}
			}
		})
	}
}

// TestMend: the patch contains nothing that the scheduler has written.
func TestMend(t *testing.T) {
	s := world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}}.build(t)
	asVolcano(t, s)
	observe(s, 0, func(object *unstructured.Unstructured) {
		object.SetUID("old")
		object.Object["spec"].(map[string]any)["minMember"] = int64(7)
		object.Object["status"] = map[string]any{"phase": "Running"}
	})
	patch, err := s.gangs.Drifted(0)[0].Patch()
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

// A queue is an API server with one LocalQueue, and the name of the scheduler that places its gangs.
type queue struct {
	client.Client
	scheduler string
}

func (q queue) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetAnnotations(map[string]string{apis.GangProviderAnnotation: q.scheduler})
	return nil
}

func TestChooseScheduler(t *testing.T) {
	cases := map[string]struct {
		byDefault     configapi.GangProvider
		queue, flavor string
		started       string
		want          string
		// wantSays is what the JobSet reports about a choice that is not followed.
		wantSays string
	}{
		"the configuration": {byDefault: "Kube", want: "Kube"},
		"nobody":            {byDefault: "None", want: "None"},
		"the LocalQueue before the configuration": {byDefault: "Kube", queue: "Volcano", want: "Volcano"},
		"the LocalQueue, which wants none":        {byDefault: "Kube", queue: "None", want: "None"},
		"the flavor before the LocalQueue":        {byDefault: "Kube", queue: "Volcano", flavor: "KAI", want: "KAI"},
		"nobody of that name":                     {byDefault: "Kube", queue: "volcano", want: "Kube", wantSays: `of LocalQueue "ml": "volcano" must be one of None, Kube`},
		"what the JobSet was started for":         {byDefault: "Kube", queue: "Volcano", started: "Koordinator", want: "Koordinator"},
		"another than the JobSet was started for": {
			byDefault: "Kube", flavor: "Volcano", started: "KAI", want: "KAI", wantSays: `ResourceFlavor "a100" names Volcano for them`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := world{started: c.started != "", workloads: map[string]string{"init": "admitted", "train": "closed"}}.build(t)
			asGangs(t, s)
			s.jobSet.Labels = map[string]string{apis.QueueLabel: "ml"}
			s.jobSet.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "0"}
			if c.started != "" {
				podTemplateOf(s.jobSet, 0).Annotations = map[string]string{apis.GangProviderAnnotation: c.started}
			}
			s.flavors["a100"] = &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.GangProviderAnnotation: c.flavor}}}
			r := &Reconciler{config: Config{Client: queue{scheduler: c.queue}, Gangs: keepers(t, "scheduling.volcano.sh/v1beta1", c.byDefault)}}
			if err := r.chooseScheduler(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := s.backend.Name(); got != c.want {
				t.Errorf("%s places the gangs, want %s", got, c.want)
			}
			said := s.scheduler.problem + s.contradiction()
			if c.wantSays == "" && said != "" || !strings.Contains(said, c.wantSays) {
				t.Errorf("says %q, want %q", said, c.wantSays)
			}
			if c.want == "KAI" && c.wantSays != "" {
				reason, _ := gangNews(s)
				if reason != conditions.GangsContradicted {
					t.Errorf("the reason is %s", reason)
				}
			}
		})
	}
}

// A writer is an API server that keeps the last patch.
type writer struct {
	client.Client
	patch []byte
}

func (w *writer) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	var err error
	w.patch, err = patch.Data(object)
	return err
}

// TestName: nothing of the pod templates is lost, and a JobSet that has changed is not patched.
func TestName(t *testing.T) {
	s := world{workloads: map[string]string{"init": "admitted", "train": "closed"}}.build(t)
	asVolcano(t, s)
	s.jobSet.UID, s.jobSet.Generation = "uid", 3
	podTemplateOf(s.jobSet, 1).Annotations = map[string]string{"mine": "kept"}
	w := &writer{}
	r := &Reconciler{config: Config{Client: w}}
	if err := r.setScheduler(t.Context(), s, &actions{}); err != nil || w.patch != nil {
		t.Errorf("wrote %s, error %v, want nothing", w.patch, err)
	}
	if err := r.setScheduler(t.Context(), s, &actions{setScheduler: true}); err != nil {
		t.Fatal(err)
	}
	const want = `[{"op":"test","path":"/metadata/uid","value":"uid"},{"op":"test","path":"/metadata/generation","value":3},` +
		`{"op":"add","path":"/spec/replicatedJobs/0/template/spec/template/metadata",` +
		`"value":{"annotations":{"tranche.dev/gang-provider":"Volcano","tranche.dev/gang-scheduler":"volcano"}}},` +
		`{"op":"add","path":"/spec/replicatedJobs/1/template/spec/template/metadata/annotations",` +
		`"value":{"mine":"kept","tranche.dev/gang-provider":"Volcano","tranche.dev/gang-scheduler":"volcano"}}]`
	if diff := cmp.Diff(want, string(w.patch)); diff != "" {
		t.Errorf("the patch differs (-want +got):\n%s", diff)
	}
}
