package jobset

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/schedulergang"
	"github.com/tranche-dev/tranche/lifecycle/stages"
	"github.com/tranche-dev/tranche/test/discovery"
)

// newSnapshot returns the snapshot of a JobSet init -> train that has no other objects.
func newSnapshot(t *testing.T) *jobsetstate.Snapshot {
	t.Helper()
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "js", UID: "js-uid", Labels: map[string]string{apis.QueueLabel: "ml"},
	}}
	for _, name := range []string{"init", "train"} {
		job := jobsetapi.ReplicatedJob{ReplicatedJob: jobset.ReplicatedJob{Name: name, Replicas: 1}}
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, job)
	}
	js.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "init", Status: jobset.DependencyComplete}}
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return &jobsetstate.Snapshot{Key: types.NamespacedName{Namespace: "ns", Name: "js"}, JobSet: js, Plan: plan}
}

// registry returns the registry for the schedulers that use this version of an API, and asks one by default.
func registry(t *testing.T, version string, byDefault configapi.GangProvider) *gangobjects.Registry {
	t.Helper()
	config := &configapi.Configuration{Gang: configapi.Gang{Provider: byDefault}}
	config.SetDefaults()
	k, err := gangobjects.New(&config.Gang, nil, discovery.Served{version: {"workloads", "podgroups"}})
	if err != nil {
		t.Fatal(err)
	}
	return k
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
		"no scheduler":      {byDefault: "None", want: "None"},
		"the LocalQueue before the configuration": {byDefault: "Kube", queue: "Volcano", want: "Volcano"},
		"the LocalQueue, which wants none":        {byDefault: "Kube", queue: "None", want: "None"},
		"the flavor before the LocalQueue":        {byDefault: "Kube", queue: "Volcano", flavor: "Koordinator", want: "Koordinator"},
		"an unknown scheduler":                    {byDefault: "Kube", queue: "volcano", want: "Kube", wantSays: `of LocalQueue "ml": "volcano" must be one of None, Kube`},
		"what the JobSet was started for":         {byDefault: "Kube", queue: "Volcano", flavor: "Volcano", started: "Koordinator", want: "Koordinator"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSnapshot(t)
			s.JobSet.Spec.ReplicatedJobs[0].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "0"}
			if c.started != "" {
				s.JobSet.Annotations = map[string]string{apis.StartedAnnotation: "true"}
				jobsetstate.PodTemplateOf(s.JobSet, 0).Annotations = map[string]string{apis.GangProviderAnnotation: c.started}
			}
			s.Flavors = map[kueue.ResourceFlavorReference]*kueue.ResourceFlavor{"a100": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{apis.GangProviderAnnotation: c.flavor}}}}
			r := &Reconciler{config: Config{Client: queue{scheduler: c.queue}, Gangs: registry(t, "scheduling.volcano.sh/v1beta1", c.byDefault)}}
			if _, err := r.chooseScheduler(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if got := s.Scheduler.Name; got != c.want {
				t.Errorf("%s places the gangs, want %s", got, c.want)
			}
			said := s.Scheduler.Problem
			if c.wantSays == "" && said != "" || !strings.Contains(said, c.wantSays) {
				t.Errorf("says %q, want %q", said, c.wantSays)
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
	s := newSnapshot(t)
	for i := range s.JobSet.Spec.ReplicatedJobs {
		s.JobSet.Spec.ReplicatedJobs[i].Template.Annotations = map[string]string{apis.GangGroupAnnotation: "0"}
	}
	s.Scheduler = jobsetstate.Scheduler{API: schedulergang.API{Name: "Volcano", IsConfigured: true}, Default: "Kube", SchedulerName: "volcano"}
	s.JobSet.UID, s.JobSet.Generation = "uid", 3
	jobsetstate.PodTemplateOf(s.JobSet, 1).Annotations = map[string]string{"mine": "kept"}
	w := &writer{}
	r := &Reconciler{config: Config{Client: w}}
	if err := r.setScheduler(t.Context(), s, &stages.Step{SetScheduler: true}); err != nil {
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
