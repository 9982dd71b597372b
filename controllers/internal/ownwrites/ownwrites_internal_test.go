package ownwrites

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// A lagging client answers each write with the next version, and reads the versions that the test shows.
type lagging struct {
	client.Client
	version int
	shown   map[types.NamespacedName]int
}

func (l *lagging) Scheme() *runtime.Scheme { return scheme.Scheme }

func (l *lagging) GroupVersionKindFor(object runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(object, scheme.Scheme)
}

func (l *lagging) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	version, ok := l.shown[key]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "jobs"}, key.Name)
	}
	object.SetResourceVersion(strconv.Itoa(version))
	return nil
}

func (l *lagging) answer(object metav1.Object) error {
	l.version++
	object.SetResourceVersion(strconv.Itoa(l.version))
	return nil
}

func (l *lagging) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return l.answer(object)
}

func (l *lagging) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return l.answer(object)
}

func (l *lagging) Delete(context.Context, client.Object, ...client.DeleteOption) error { return nil }

func (l *lagging) Status() client.SubResourceWriter { return laggingStatus{l: l} }

type laggingStatus struct {
	client.SubResourceWriter
	l *lagging
}

func (s laggingStatus) Apply(_ context.Context, object runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	return s.l.answer(object.(metav1.Object))
}

func TestWait(t *testing.T) {
	const namespace = "ml"
	owner := types.NamespacedName{Namespace: namespace, Name: "train"}
	job := func(name string) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	key := func(name string) types.NamespacedName { return client.ObjectKeyFromObject(job(name)) }
	ours := For(t.Context(), owner)
	for name, c := range map[string]struct {
		// act writes with c, whose cache is that of l.
		act  func(c *Client, l *lagging) error
		want time.Duration
	}{
		"nothing was written":                  {func(*Client, *lagging) error { return nil }, 0},
		"a created object is not in the cache": {func(c *Client, _ *lagging) error { return c.Create(ours, job("a")) }, recheckAfter},
		"a created object is in the cache": {func(c *Client, l *lagging) error {
			l.shown[key("a")] = 1
			return c.Create(ours, job("a"))
		}, 0},
		"a changed object is older in the cache": {func(c *Client, l *lagging) error {
			l.version, l.shown[key("a")] = 9, 9
			return c.Patch(ours, job("a"), client.MergeFrom(job("a")))
		}, recheckAfter},
		"a changed object has been changed again in the cache": {func(c *Client, l *lagging) error {
			l.version, l.shown[key("a")] = 9, 100
			return c.Patch(ours, job("a"), client.MergeFrom(job("a")))
		}, 0},
		"a changed object has disappeared": {func(c *Client, _ *lagging) error { return c.Patch(ours, job("a"), client.MergeFrom(job("a"))) }, 0},
		"a created object was deleted": {func(c *Client, _ *lagging) error {
			_ = c.Create(ours, job("a"))
			return c.Delete(ours, job("a"))
		}, 0},
		"the second of two objects is older in the cache": {func(c *Client, l *lagging) error {
			l.shown[key("a")] = 2
			_ = c.Create(ours, job("a"))
			return c.Create(ours, job("b"))
		}, recheckAfter},
		"a status is older in the cache": {func(c *Client, l *lagging) error {
			l.version, l.shown[key("a")] = 9, 9
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(batchv1.SchemeGroupVersion.WithKind("Job"))
			u.SetNamespace(namespace)
			u.SetName("a")
			return c.Status().Apply(ours, client.ApplyConfigurationFromUnstructured(u))
		}, recheckAfter},
		"another kind": {func(c *Client, _ *lagging) error {
			return c.Create(ours, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}})
		}, 0},
		"another owner": {func(c *Client, _ *lagging) error { return c.Create(For(ours, key("other")), job("a")) }, 0},
		"no owner":      {func(c *Client, _ *lagging) error { return c.Create(t.Context(), job("a")) }, 0},
		"a created object is not in the cache for long": {func(c *Client, _ *lagging) error {
			defer time.Sleep(patience)
			return c.Create(ours, job("a"))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lagging{shown: map[types.NamespacedName]int{}}
				client, err := Follow(l, &batchv1.Job{})
				if err != nil {
					t.Fatal(err)
				}
				if err := c.act(client, l); err != nil {
					t.Fatal(err)
				}
				if got, err := client.Wait(t.Context(), owner); err != nil || got != c.want {
					t.Errorf("waits for %v, error %v, want %v", got, err, c.want)
				}
				if c.want == 0 && len(client.last[owner]) > 0 {
					t.Errorf("still remembers %v", client.last)
				}
			})
		})
	}
}
