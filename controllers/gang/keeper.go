// Package gang keeps the objects by which a scheduler knows the gangs of JobSets. It is no controller: it reads and compares for who leads
// the JobSets, and what should be made or deleted is written in the order that the life of stages asks for.
//
// Objects that a user has made under the name of ours are never touched.
package gang

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	shapes "github.com/tranche-dev/tranche/admission/gang"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const kubeGroup = "scheduling.k8s.io"

// Resources tells what an API server serves. client-go's discovery clients do.
type Resources interface {
	// ServerResourcesForGroupVersion lists the resources of a version, or says that it is not found.
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// A Keeper knows the objects of gangs in one version of one API. The nil Keeper keeps none.
type Keeper struct {
	reader   client.Reader
	provider shapes.Provider
	version  string
	kinds    []string
}

// NewKube returns the Keeper for the scheduler of Kubernetes, in the newest version that the API server has. If it has none, the Keeper
// is not Served. The reader must be a cache.
func NewKube(reader client.Reader, resources Resources) (*Keeper, error) {
	for _, version := range []shapes.KubeVersion{shapes.V1beta1, shapes.V1alpha2} {
		list, err := resources.ServerResourcesForGroupVersion(kubeGroup + "/" + string(version))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("ask the API server for %s/%s: %w", kubeGroup, version, err)
		}
		if serves(list, "workloads") && serves(list, "podgroups") {
			return &Keeper{
				reader: reader, provider: shapes.Kube{Version: version}, version: kubeGroup + "/" + string(version), kinds: []string{"Workload", "PodGroup"},
			}, nil
		}
	}
	return &Keeper{reader: reader}, nil
}

func serves(list *metav1.APIResourceList, name string) bool {
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
}

// Served tells whether the API server has the objects of gangs.
func (k *Keeper) Served() bool { return k != nil && k.provider != nil }

// Version is the version of the API, such as scheduling.k8s.io/v1alpha2.
func (k *Keeper) Version() string { return k.version }

// Kinds returns an empty object of each kind that there may be, to be watched.
func (k *Keeper) Kinds() []*unstructured.Unstructured {
	if !k.Served() {
		return nil
	}
	var kinds []*unstructured.Unstructured
	for _, kind := range k.kinds {
		kinds = append(kinds, k.empty(kind))
	}
	return kinds
}

func (k *Keeper) empty(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.version, kind))
	return object
}

// Read compares what a JobSet asks for with what is there. It returns nil if the JobSet asks for no gangs or nothing can be kept, and why
// the JobSet asks for what cannot be, which only its user can mend.
func (k *Keeper) Read(ctx context.Context, js *jobsetapi.JobSet, plan *stageplan.Plan) (state *State, refusal string, err error) {
	if !k.Served() {
		return nil, "", nil
	}
	shape, err := shapes.New(js, plan, k.provider)
	if err != nil {
		return nil, err.Error(), nil //nolint:nilerr // trying again would not help
	}
	if len(shape.Groups)+len(shape.Own) == 0 {
		return nil, "", nil
	}
	if state, err = NewState(shape, k.provider, len(plan.Stages)); err != nil {
		return nil, "", err
	}
	return state, "", k.readObjects(ctx, state)
}

// readObjects reads what the JobSet has made, and what others have made under the names that it needs.
func (k *Keeper) readObjects(ctx context.Context, state *State) error {
	for _, kind := range k.kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(k.version, kind+"List"))
		err := k.reader.List(ctx, list, client.InNamespace(state.Shape.JobSet.Namespace), client.MatchingLabels{apis.JobSetLabel: state.Shape.JobSet.Name})
		if err != nil {
			return fmt.Errorf("list %ss of JobSet %q: %w", kind, state.Shape.JobSet, err)
		}
		for i := range list.Items {
			if object := &list.Items[i]; state.isOurs(object) {
				state.Observe(object)
			}
		}
	}
	for _, stage := range state.wanted {
		for _, object := range stage {
			if state.there[idOf(object)] != nil {
				continue
			}
			found := k.empty(object.GetKind())
			err := k.reader.Get(ctx, client.ObjectKeyFromObject(object), found)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read %s %q: %w", object.GetKind(), object.GetName(), err)
			}
			state.Observe(found)
		}
	}
	return nil
}
