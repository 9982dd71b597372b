package gangobjects_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/admission/stageplan"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/test/discovery"
)

func newBackends(served discovery.Served, provider configapi.GangProvider) (*gangobjects.Registry, error) {
	config := &configapi.Configuration{Gang: configapi.Gang{Provider: provider}}
	config.SetDefaults()
	return gangobjects.New(&config.Gang, nil, served)
}

// TestNew: each scheduler has the newest version of its API that has all of its kinds.
func TestNew(t *testing.T) {
	all := []string{"podgroups", "podgroups/status", "workloads"}
	cases := map[string]struct {
		served discovery.Served
		// of is the requested scheduler; empty means Kube.
		of         string
		want       string
		wantServed bool
		wantErr    error
	}{
		"Kubernetes 1.36 as it comes": {served: discovery.Served{"scheduling.k8s.io/v1": {"priorityclasses"}}},
		"Kubernetes 1.36":             {served: discovery.Served{"scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1alpha2", wantServed: true},
		"Kubernetes 1.37":             {served: discovery.Served{"scheduling.k8s.io/v1beta1": all, "scheduling.k8s.io/v1alpha3": all}, want: "scheduling.k8s.io/v1beta1", wantServed: true},
		"both":                        {served: discovery.Served{"scheduling.k8s.io/v1beta1": all, "scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1beta1", wantServed: true},
		"something else by that name": {
			served: discovery.Served{"scheduling.k8s.io/v1beta1": {"priorityclasses"}, "scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1alpha2", wantServed: true,
		},
		"Kubernetes 1.35, whose pods have another field": {served: discovery.Served{"scheduling.k8s.io/v1alpha1": {"workloads"}}},
		"only the status":             {served: discovery.Served{"scheduling.volcano.sh/v1beta1": {"podgroups/status"}}, of: "Volcano"},
		"Volcano":                     {served: discovery.Served{"scheduling.volcano.sh/v1beta1": {"podgroups"}}, of: "Volcano", want: "scheduling.volcano.sh/v1beta1", wantServed: true},
		"Volcano, only another there": {served: discovery.Served{"scheduling.x-k8s.io/v1alpha1": {"podgroups"}}, of: "Volcano"},
		"Coscheduling":                {served: discovery.Served{"scheduling.x-k8s.io/v1alpha1": {"podgroups"}}, of: "Coscheduling", want: "scheduling.x-k8s.io/v1alpha1", wantServed: true},
		"Koordinator":                 {served: discovery.Served{"scheduling.sigs.k8s.io/v1alpha1": {"podgroups"}}, of: "Koordinator", want: "scheduling.sigs.k8s.io/v1alpha1", wantServed: true},
		"no answer":                   {served: discovery.Served{"scheduling.k8s.io/v1beta1": nil}, wantErr: discovery.ErrUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			registry, err := newBackends(c.served, configapi.GangProviderNone)
			if !errors.Is(err, c.wantErr) {
				t.Fatalf("error %v, want %v", err, c.wantErr)
			}
			if err != nil {
				return
			}
			backend, err := registry.Of(cmp.Or(c.of, "Kube"))
			if err != nil {
				t.Fatal(err)
			}
			if backend.API.IsServed != c.wantServed || backend.API.Version != c.want {
				t.Errorf("served %t, version %q, want %t, %q", backend.API.IsServed, backend.API.Version, c.wantServed, c.want)
			}
			if registry.Default.API.IsConfigured {
				t.Errorf("by default %v, want none", registry.Default.API.Name)
			}
		})
	}
}

// TestOf: schedulers are named as in the configuration.
func TestOf(t *testing.T) {
	registry, err := newBackends(discovery.Served{}, configapi.GangProviderVolcano)
	if err != nil {
		t.Fatal(err)
	}
	if byDefault := registry.Default; byDefault.API.Name != "Volcano" || byDefault.SchedulerName != "volcano" {
		t.Errorf("by default %q with schedulerName %q", byDefault.API.Name, byDefault.SchedulerName)
	}
	if none, err := registry.Of("None"); err != nil || none.API.Name != "None" || none.API.IsConfigured || none.SchedulerName != "" {
		t.Errorf("None: %v, %v", none, err)
	}
	if _, err := registry.Of("volcano"); err == nil || !strings.Contains(err.Error(), `"volcano" must be one of None, Kube, Coscheduling, Volcano, Koordinator`) {
		t.Errorf("error %v", err)
	}
}

// TestNoGangs: nothing is read for a JobSet that asks for no gangs.
func TestNoGangs(t *testing.T) {
	registry, err := newBackends(discovery.Served{"scheduling.k8s.io/v1alpha2": {"podgroups", "workloads"}}, configapi.GangProviderKube)
	if err != nil {
		t.Fatal(err)
	}
	if kinds := len(registry.Kinds()); kinds != 2 {
		t.Errorf("%d kinds, want 2", kinds)
	}
	backend := registry.Default
	js := &jobsetapi.JobSet{}
	js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
	js.Spec.ReplicatedJobs[0].Name = "main"
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if state, refusal, err := backend.Read(t.Context(), js, plan); state != nil || refusal != "" || err != nil {
		t.Errorf("%v, %q, %v", state, refusal, err)
	}
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	js.Spec.Scheduling = &runtime.RawExtension{}
	if state, refusal, err := backend.Read(t.Context(), js, plan); state != nil || refusal != "" || err != nil {
		t.Errorf("gangs that the JobSet controller keeps: %v, %q, %v", state, refusal, err)
	}
	js.Spec.Scheduling = nil
	if state, refusal, err := backend.Read(t.Context(), js, plan); state != nil || refusal == "" || err != nil {
		t.Errorf("a gang without pods: %v, %q, %v", state, refusal, err)
	}
}

// TestNoBackend: without a provider no objects are kept.
func TestNoBackend(t *testing.T) {
	registry, err := newBackends(discovery.Served{}, configapi.GangProviderNone)
	if err != nil {
		t.Fatal(err)
	}
	backend := registry.Default
	state, refusal, err := backend.Read(t.Context(), nil, nil)
	if backend.API.IsServed || len(registry.Kinds()) > 0 || state != nil || refusal != "" || err != nil {
		t.Errorf("%v, %q, %v", state, refusal, err)
	}
}
