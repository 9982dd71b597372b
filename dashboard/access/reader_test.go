package access_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// A library reads whatever it is asked for, and counts that.
type library struct {
	scheme  *runtime.Scheme
	read    []string
	failure error
}

func (l *library) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.read = append(l.read, fmt.Sprintf("get %T %s", object, key))
	return nil
}

func (l *library) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(options)
	l.read = append(l.read, fmt.Sprintf("list %T %s %d", list, all.Namespace, all.Limit))
	return l.failure
}

func (l *library) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, l.scheme)
}

func (l *library) RESTMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), apimeta.RESTScopeNamespace)
	mapper.Add(jobset.GroupVersion.WithKind("JobSet"), apimeta.RESTScopeNamespace)
	return mapper
}

// A reader reads what its user may read, and asks about the right to the object or the namespace first.
func TestReader(t *testing.T) {
	a := newAPIServer()
	a.allowed["ada list pods team/"] = true
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l := &library{scheme: scheme}
	c := open(t, a.gate(), "ada-token").Reader(l)
	js := &unstructured.Unstructured{}
	js.SetGroupVersionKind(jobset.GroupVersion.WithKind("JobSet"))
	for name, tc := range map[string]struct {
		read func() error
		want string
	}{
		"one that may be read": {read: func() error { return c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "js"}, js) }},
		"another one":          {read: func() error { return c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "other"}, js) }, want: `jobsets.jobset.x-k8s.io "other" is forbidden: user "ada" may not get jobsets.jobset.x-k8s.io in namespace "team"`},
		"a list": {read: func() error {
			return c.List(t.Context(), &corev1.PodList{}, client.InNamespace("team"), client.Limit(7))
		}},
		"another namespace":      {read: func() error { return c.List(t.Context(), &corev1.PodList{}, client.InNamespace("other")) }, want: `pods is forbidden: user "ada" may not list pods in namespace "other"`},
		"a list of everything":   {read: func() error { return c.List(t.Context(), &corev1.PodList{}) }, want: `pods is forbidden: user "ada" may not list pods`},
		"one of a list that may": {read: func() error { return c.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: "p"}, &corev1.Pod{}) }, want: `pods "p" is forbidden: user "ada" may not get pods in namespace "team"`},
	} {
		err := tc.read()
		if tc.want == "" && err != nil || tc.want != "" && (!apierrors.IsForbidden(err) || err.Error() != tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	slices.Sort(l.read)
	if want := []string{"get *unstructured.Unstructured team/js", "list *v1.PodList team 7"}; !slices.Equal(l.read, want) {
		t.Errorf("read %q, want %q", l.read, want)
	}
	// The manager may lack a right that the user has.
	l.failure = apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("user manager cannot list it"))
	if err := c.List(t.Context(), &corev1.PodList{}, client.InNamespace("team")); apierrors.IsForbidden(err) || err.Error() != "the manager itself may not list pods: its administrator has to apply config/dashboard, or to upgrade the chart" {
		t.Errorf("an error of the manager: %v", err)
	}
}
