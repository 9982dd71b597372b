package access

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Client reads objects, and knows their kinds and resources.
type Client interface {
	client.Reader
	GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error)
	RESTMapper() apimeta.RESTMapper
}

// Reader returns a reader of the objects that the user may read, by a client that may read more. It asks the API server about the right to each read: that of all
// names in the namespace for a list.
func (s *Session) Reader(c Client) client.Reader { return &reader{s, c} }

// A reader is the reader of a session.
type reader struct {
	*Session
	client Client
}

// Get implements client.Reader.
func (r *reader) Get(ctx context.Context, k client.ObjectKey, object client.Object, options ...client.GetOption) error {
	resource, err := r.require(ctx, "get", object, k)
	if err != nil {
		return err
	}
	return ofManager("get", resource, r.client.Get(ctx, k, object, options...))
}

// List implements client.Reader.
func (r *reader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var all client.ListOptions
	all.ApplyOptions(options)
	resource, err := r.require(ctx, "list", list, types.NamespacedName{Namespace: all.Namespace})
	if err != nil {
		return err
	}
	return ofManager("list", resource, r.client.List(ctx, list, options...))
}

// ofManager returns an error of the client for the user, who has the right that the manager may lack.
func ofManager(verb string, resource schema.GroupResource, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	refused := apierrors.NewMethodNotSupported(resource, verb)
	refused.ErrStatus.Message = fmt.Sprintf("the manager itself may not %s %s: its administrator has to apply config/dashboard, or to upgrade the chart", verb, resource)
	return refused
}

// require returns the resource of an object, or of the objects of a list, or an error unless the user has the right to it.
func (r *reader) require(ctx context.Context, verb string, of runtime.Object, k types.NamespacedName) (schema.GroupResource, error) {
	kind, err := r.client.GroupVersionKindFor(of)
	if err != nil {
		return schema.GroupResource{}, fmt.Errorf("the kind of %T: %w", of, err)
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	mapping, err := r.client.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return schema.GroupResource{}, fmt.Errorf("the resource of %s: %w", kind, err)
	}
	resource := mapping.Resource
	q := question{user: r.user.key, right: right{verb, resource.Group, resource.Version, resource.Resource}, namespace: k.Namespace, name: k.Name}
	if allowed, err := r.gate.review(ctx, r.user, q); err != nil || allowed {
		return resource.GroupResource(), err
	}
	where := ""
	if k.Namespace != "" {
		where = fmt.Sprintf(" in namespace %q", k.Namespace)
	}
	return resource.GroupResource(), apierrors.NewForbidden(resource.GroupResource(), k.Name, fmt.Errorf("user %q may not %s %s%s", r.Name(), verb, resource.GroupResource(), where))
}
