package gang_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/controllers/gang"
)

// served lists the resources of each version that an API server has.
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
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// TestNewKube: the newest version that has both kinds is the one.
func TestNewKube(t *testing.T) {
	all := []string{"podgroups", "podgroups/status", "workloads"}
	cases := map[string]struct {
		served  served
		want    string
		wantErr error
	}{
		"Kubernetes 1.36 as it comes": {served: served{"scheduling.k8s.io/v1": {"priorityclasses"}}},
		"Kubernetes 1.36":             {served: served{"scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1alpha2"},
		"Kubernetes 1.37":             {served: served{"scheduling.k8s.io/v1beta1": all, "scheduling.k8s.io/v1alpha3": all}, want: "scheduling.k8s.io/v1beta1"},
		"both":                        {served: served{"scheduling.k8s.io/v1beta1": all, "scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1beta1"},
		"something else by that name": {served: served{"scheduling.k8s.io/v1beta1": {"priorityclasses"}, "scheduling.k8s.io/v1alpha2": all}, want: "scheduling.k8s.io/v1alpha2"},
		"Kubernetes 1.35, whose pods have another field": {served: served{"scheduling.k8s.io/v1alpha1": {"workloads"}}},
		"no answer": {served: served{"scheduling.k8s.io/v1beta1": nil}, wantErr: errBroken},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			keeper, err := gang.NewKube(nil, c.served)
			if !errors.Is(err, c.wantErr) {
				t.Fatalf("error %v, want %v", err, c.wantErr)
			}
			if err != nil {
				return
			}
			if keeper.Served() != (c.want != "") || keeper.Version() != c.want {
				t.Errorf("served %t, version %q, want %q", keeper.Served(), keeper.Version(), c.want)
			}
			if kinds := keeper.Kinds(); len(kinds) != 0 != keeper.Served() {
				t.Errorf("%d kinds", len(kinds))
			}
		})
	}
}

// TestNoGangs: nothing is read for a JobSet that asks for no gangs.
func TestNoGangs(t *testing.T) {
	keeper, err := gang.NewKube(nil, served{"scheduling.k8s.io/v1alpha2": {"podgroups", "workloads"}})
	if err != nil {
		t.Fatal(err)
	}
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
	if state, refusal, err := keeper.Read(t.Context(), js, plan); state != nil || refusal == "" || err != nil {
		t.Errorf("a gang without pods: %v, %q, %v", state, refusal, err)
	}
}

// TestNoKeeper: without a provider nothing is kept.
func TestNoKeeper(t *testing.T) {
	var keeper *gang.Keeper
	state, refusal, err := keeper.Read(t.Context(), nil, nil)
	if keeper.Served() || len(keeper.Kinds()) > 0 || state != nil || refusal != "" || err != nil {
		t.Errorf("%v, %q, %v", state, refusal, err)
	}
}
