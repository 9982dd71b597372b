package gangobjects_test

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/admission/stageplan"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
)

// served lists the resources of each version that an API server serves.
type served map[string][]string

var errBroken = errors.New("no answer")

func (s served) ServerResourcesForGroupVersion(version string) (*metav1.APIResourceList, error) {
	names, ok := s[version]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, version)
	case names == nil:
		return nil, errBroken
	}
	list := &metav1.APIResourceList{}
	for _, name := range names {
		resource := metav1.APIResource{Name: name, Kind: map[string]string{"workloads": "Workload"}[name]}
		if strings.HasPrefix(name, "podgroups") {
			resource.Kind = "PodGroup"
		}
		list.APIResources = append(list.APIResources, resource)
	}
	return list, nil
}

func newKeepers(served served, provider configapi.GangProvider) (*gangobjects.Keepers, error) {
	config := &configapi.Configuration{Gang: configapi.Gang{Provider: provider}}
	config.SetDefaults()
	return gangobjects.New(gangobjects.Config{Gang: &config.Gang, Resources: served})
}

// TestNew: each scheduler has the newest version of its API that has all of its kinds.
func TestNew(t *testing.T) {
	all := []string{"podgroups", "podgroups/status", "workloads"}
	cases := map[string]struct {
		served served
		// of is the requested scheduler; empty means Kube.
		of         string
		want       string
		wantServed bool
		wantErr    error
	}{
		"Kubernetes 1.36 as it comes": {served: served{"scheduling.k8s.io/v1": {"priorityclasses"}}},
		"Kubernetes 1.36":             {served: served{"scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1alpha2", wantServed: true},
		"Kubernetes 1.37":             {served: served{"scheduling.k8s.io/v1beta1": all, "scheduling.k8s.io/v1alpha3": all}, want: "scheduling.k8s.io/v1beta1", wantServed: true},
		"both":                        {served: served{"scheduling.k8s.io/v1beta1": all, "scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1beta1", wantServed: true},
		"something else by that name": {
			served: served{"scheduling.k8s.io/v1beta1": {"priorityclasses"}, "scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1alpha2", wantServed: true,
		},
		"Kubernetes 1.35, whose pods have another field": {served: served{"scheduling.k8s.io/v1alpha1": {"workloads"}}},
		"only the status":                       {served: served{"scheduling.volcano.sh/v1beta1": {"podgroups/status"}}, of: "Volcano"},
		"Volcano":                               {served: served{"scheduling.volcano.sh/v1beta1": {"podgroups"}}, of: "Volcano", want: "scheduling.volcano.sh/v1beta1", wantServed: true},
		"Volcano, only another there":           {served: served{"scheduling.x-k8s.io/v1alpha1": {"podgroups"}}, of: "Volcano"},
		"Coscheduling":                          {served: served{"scheduling.x-k8s.io/v1alpha1": {"podgroups"}}, of: "Coscheduling", want: "scheduling.x-k8s.io/v1alpha1", wantServed: true},
		"Koordinator":                           {served: served{"scheduling.sigs.k8s.io/v1alpha1": {"podgroups"}}, of: "Koordinator", want: "scheduling.sigs.k8s.io/v1alpha1", wantServed: true},
		"KAI, which makes its PodGroups itself": {of: "KAI", wantServed: true},
		"no answer":                             {served: served{"scheduling.k8s.io/v1beta1": nil}, wantErr: errBroken},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			keepers, err := newKeepers(c.served, configapi.GangProviderNone)
			if !errors.Is(err, c.wantErr) {
				t.Fatalf("error %v, want %v", err, c.wantErr)
			}
			if err != nil {
				return
			}
			keeper, err := keepers.Of(cmp.Or(c.of, "Kube"))
			if err != nil {
				t.Fatal(err)
			}
			if keeper.Served() != c.wantServed || keeper.Version() != c.want {
				t.Errorf("served %t, version %q, want %t, %q", keeper.Served(), keeper.Version(), c.wantServed, c.want)
			}
			if keepers.Default() != nil {
				t.Errorf("by default %v, want none", keepers.Default().Name())
			}
		})
	}
}

// TestOf: schedulers are named as in the configuration.
func TestOf(t *testing.T) {
	keepers, err := newKeepers(served{}, configapi.GangProviderVolcano)
	if err != nil {
		t.Fatal(err)
	}
	if byDefault := keepers.Default(); byDefault.Name() != "Volcano" || keepers.SchedulerName(byDefault) != "volcano" {
		t.Errorf("by default %q with schedulerName %q", byDefault.Name(), keepers.SchedulerName(byDefault))
	}
	if none, err := keepers.Of("None"); none != nil || err != nil || none.Name() != "None" || keepers.SchedulerName(none) != "" {
		t.Errorf("None: %v, %v", none, err)
	}
	if _, err := keepers.Of("volcano"); err == nil || !strings.Contains(err.Error(), `"volcano" must be one of None, Kube, Coscheduling, Volcano, Koordinator, KAI`) {
		t.Errorf("error %v", err)
	}
	if _, err := gangobjects.New(gangobjects.Config{}); err == nil {
		t.Error("a Config without anything is taken")
	}
}

// TestNoGangs: nothing is read for a JobSet that asks for no gangs.
func TestNoGangs(t *testing.T) {
	keepers, err := newKeepers(served{"scheduling.k8s.io/v1alpha2": {"podgroups", "workloads"}}, configapi.GangProviderKube)
	if err != nil {
		t.Fatal(err)
	}
	if kinds := len(keepers.Kinds()); kinds != 2 {
		t.Errorf("%d kinds, want 2", kinds)
	}
	keeper := keepers.Default()
	js := &jobsetapi.JobSet{}
	js.Spec.ReplicatedJobs = make([]jobsetapi.ReplicatedJob, 1)
	js.Spec.ReplicatedJobs[0].Name = "main"
	plan, err := stageplan.New(&js.Spec)
	if err != nil {
		t.Fatal(err)
	}
	if state, refusal, err := keeper.Read(t.Context(), js, plan); state != nil || refusal != "" || err != nil {
		t.Errorf("%v, %q, %v", state, refusal, err)
	}
	js.Spec.GangConfig = &jobsetapi.GangConfig{GangMode: jobsetapi.GangModeGang}
	js.Spec.Scheduling = &runtime.RawExtension{}
	if state, refusal, err := keeper.Read(t.Context(), js, plan); state != nil || refusal != "" || err != nil {
		t.Errorf("gangs that the JobSet controller keeps: %v, %q, %v", state, refusal, err)
	}
	js.Spec.Scheduling = nil
	if state, refusal, err := keeper.Read(t.Context(), js, plan); state != nil || refusal == "" || err != nil {
		t.Errorf("a gang without pods: %v, %q, %v", state, refusal, err)
	}
}

// TestNoKeeper: without a provider no objects are kept.
func TestNoKeeper(t *testing.T) {
	var keepers *gangobjects.Keepers
	keeper := keepers.Default()
	state, refusal, err := keeper.Read(t.Context(), nil, nil)
	if keeper.Served() || len(keepers.Kinds()) > 0 || state != nil || refusal != "" || err != nil {
		t.Errorf("%v, %q, %v", state, refusal, err)
	}
}
