// Package ownwrites lets a reconcile wait until the cache shows what earlier reconciles have written. Without that, a reconcile that another event has
// caused in the meantime repeats these writes, and the API server refuses most of them.
//
// It is the remedy of KEP-5647 (stale controller handling), which the controllers of Kubernetes have.
package ownwrites

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patience is for how long a write is awaited. After that it may be repeated: the cache may never show it, for instance if it has become invisible to
	// the cache, or is so late that it would hold up the owner.
	patience = 2 * time.Second
	// recheckAfter is when to look again. Mostly the watch that delivers the write causes a reconcile before.
	recheckAfter = 20 * time.Millisecond
)

// A Client reads from a cache, and remembers for each owner the last version of each object that was written. The owner is that of the context (For). A write
// without an owner, or of another kind than those that it follows, is not remembered, nor is an update: its users patch. Its methods may be called from several
// goroutines.
type Client struct {
	client.Client
	kinds map[schema.GroupVersionKind]bool

	mu   sync.Mutex
	last map[types.NamespacedName]map[object]write
}

type object struct {
	kind schema.GroupVersionKind
	key  types.NamespacedName
}

type write struct {
	version string
	creates bool
	at      time.Time
}

// Follow returns a Client that remembers the writes of some kinds, which must be in its cache.
func Follow(c client.Client, kinds ...client.Object) (*Client, error) {
	w := &Client{Client: c, kinds: map[schema.GroupVersionKind]bool{}, last: map[types.NamespacedName]map[object]write{}}
	for _, kind := range kinds {
		gvk, err := c.GroupVersionKindFor(kind)
		if err != nil {
			return nil, fmt.Errorf("find the kind of %T: %w", kind, err)
		}
		w.kinds[gvk] = true
	}
	return w, nil
}

type ownerKey struct{}

// For returns a context in which all writes are those of an owner.
func For(ctx context.Context, owner types.NamespacedName) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// Wait returns after which time to try again, because the cache does not show all writes of an owner yet, or zero if it does.
func (c *Client) Wait(ctx context.Context, owner types.NamespacedName) (time.Duration, error) {
	c.mu.Lock()
	writes := maps.Clone(c.last[owner])
	c.mu.Unlock()
	for o, w := range writes {
		isShown, err := c.shows(ctx, o, w)
		if err != nil {
			return 0, err
		}
		if !isShown && time.Since(w.at) < patience {
			return recheckAfter, nil
		}
		c.forget(owner, o, w)
	}
	return 0, nil
}

// shows reports whether the cache has an object as it was written, or a later version of it. An object that has disappeared since it was read is not awaited.
func (c *Client) shows(ctx context.Context, o object, w write) (bool, error) {
	empty, err := c.Scheme().New(o.kind)
	if err != nil {
		return false, fmt.Errorf("read %s %s from the cache: %w", o.kind.Kind, o.key, err)
	}
	cached, ok := empty.(client.Object)
	if !ok {
		return false, fmt.Errorf("read %s %s from the cache: %T is no object", o.kind.Kind, o.key, empty)
	}
	if err := c.Get(ctx, o.key, cached, &client.GetOptions{UnsafeDisableDeepCopy: new(true)}); err != nil {
		if apierrors.IsNotFound(err) {
			return !w.creates, nil
		}
		return false, fmt.Errorf("read %s %s from the cache: %w", o.kind.Kind, o.key, err)
	}
	order, err := resourceversion.CompareResourceVersion(cached.GetResourceVersion(), w.version)
	return err != nil || order >= 0, nil //nolint:nilerr // versions that cannot be compared cannot be awaited
}

// forget drops a write, unless there has been a later one.
func (c *Client) forget(owner types.NamespacedName, o object, w write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[owner][o] == w {
		delete(c.last[owner], o)
	}
	if len(c.last[owner]) == 0 {
		delete(c.last, owner)
	}
}

// note remembers a write that has succeeded, with the answer of the API server in the object.
func (c *Client) note(ctx context.Context, written any, creates bool) {
	owner, ok := ctx.Value(ownerKey{}).(types.NamespacedName)
	if !ok {
		return
	}
	o, version, ok := c.identify(written)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last[owner] == nil {
		c.last[owner] = map[object]write{}
	}
	c.last[owner][o] = write{version, creates, time.Now()}
}

// drop forgets the writes to an object that is being deleted.
func (c *Client) drop(ctx context.Context, deleted client.Object) {
	owner, _ := ctx.Value(ownerKey{}).(types.NamespacedName)
	if o, _, ok := c.identify(deleted); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.last[owner], o)
	}
}

func (c *Client) identify(written any) (o object, version string, ok bool) {
	meta, isObject := written.(metav1.Object)
	typed, hasKind := written.(runtime.Object)
	if !isObject || !hasKind {
		return o, "", false
	}
	kind, err := c.GroupVersionKindFor(typed)
	if err != nil || !c.kinds[kind] {
		return o, "", false
	}
	return object{kind, types.NamespacedName{Namespace: meta.GetNamespace(), Name: meta.GetName()}}, meta.GetResourceVersion(), true
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := c.Client.Create(ctx, obj, opts...)
	if err == nil {
		c.note(ctx, obj, true)
	}
	return err
}

// Patch implements client.Client.
func (c *Client) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	err := c.Client.Patch(ctx, obj, patch, opts...)
	if err == nil {
		c.note(ctx, obj, false)
	}
	return err
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	err := c.Client.Delete(ctx, obj, opts...)
	if err == nil {
		c.drop(ctx, obj)
	}
	return err
}

// Status implements client.Client.
func (c *Client) Status() client.SubResourceWriter { return status{c.Client.Status(), c} }

type status struct {
	client.SubResourceWriter
	client *Client
}

// Patch implements client.SubResourceWriter.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	err := s.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	if err == nil {
		s.client.note(ctx, obj, false)
	}
	return err
}

// Apply implements client.SubResourceWriter.
func (s status) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	err := s.SubResourceWriter.Apply(ctx, obj, opts...)
	if err == nil {
		s.client.note(ctx, obj, false)
	}
	return err
}
