// Package live feeds a dashboard from a cluster, with the rights of a user. It only lists, watches and reads.
package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/snapshot"
)

// A Config configures what is read.
type Config struct {
	// Client reads from the API server. Its scheme has the kinds.
	Client client.WithWatch
	// Raw requests the visibility API. Explanations are missing without it.
	Raw rest.Interface
	// Namespaces are those whose objects are read. If it is empty, the objects of all namespaces are read, or those of Fallback if the user may
	// not read all.
	Namespaces []string
	Fallback   string
}

// A Feed keeps a Store up to date.
type Feed struct {
	Config
	store *server.Store

	mu sync.Mutex
	// namespaces are those that are read.
	namespaces []string
	// gaps are by resource and namespace.
	gaps map[string]snapshot.Gap
	// isStarted is true if all watches have been started, and unsynced is how many of them have not read their objects yet.
	isStarted bool
	unsynced  int
}

// New returns a Feed for a Store.
func New(config *Config, store *server.Store) *Feed {
	return &Feed{Config: *config, store: store, namespaces: slices.Sorted(slices.Values(config.Namespaces)), gaps: map[string]snapshot.Gap{}}
}

// A kind is a kind of objects that are watched.
type kind struct {
	gvr          string
	isNamespaced bool
	object       func() client.Object
	list         func() client.ObjectList
}

// kinds returns the kinds in the order in which they are read. ClusterQueues come first, quota Workloads last.
func kinds() []*kind {
	full := func(group, resource string) string { return resource + "." + group }
	return []*kind{
		{
			full(kueue.SchemeGroupVersion.Group, "clusterqueues"), false,
			func() client.Object { return &kueue.ClusterQueue{} }, func() client.ObjectList { return &kueue.ClusterQueueList{} },
		},
		{
			full(kueue.SchemeGroupVersion.Group, "cohorts"), false,
			func() client.Object { return &kueue.Cohort{} }, func() client.ObjectList { return &kueue.CohortList{} },
		},
		{
			full(kueue.SchemeGroupVersion.Group, "localqueues"), true,
			func() client.Object { return &kueue.LocalQueue{} }, func() client.ObjectList { return &kueue.LocalQueueList{} },
		},
		{
			full(jobset.GroupVersion.Group, "jobsets"), true,
			func() client.Object { return &jobsetapi.JobSet{} }, func() client.ObjectList { return &jobsetapi.JobSetList{} },
		},
		{
			full(kueue.SchemeGroupVersion.Group, "workloads"), true,
			func() client.Object { return &kueue.Workload{} }, func() client.ObjectList { return &kueue.WorkloadList{} },
		},
	}
}

// Run watches until the context is done. It returns an error only if the API server does not answer at the start.
func (f *Feed) Run(ctx context.Context) error {
	f.chooseNamespaces(ctx)
	var running sync.WaitGroup
	for _, k := range kinds() {
		for _, namespace := range f.namespacesOf(k) {
			isReadable, err := f.try(ctx, k, namespace)
			if ctx.Err() != nil {
				running.Wait()
				return nil
			}
			if err != nil {
				return err
			}
			if _, isWorkload := k.object().(*kueue.Workload); isWorkload && (namespace != "" || !isReadable) {
				f.store.Use(func(m *dashboard.Model) { m.LacksWorkloads() })
			}
			if isReadable {
				f.sync(1)
				running.Go(func() { f.watch(ctx, k, namespace) })
			}
		}
	}
	f.mu.Lock()
	f.isStarted = true
	f.mu.Unlock()
	f.store.Use((*dashboard.Model).Touch)
	ticker := time.NewTicker(dashboard.SampleInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-ticker.C:
			f.store.Use(func(m *dashboard.Model) { m.Sample(now) })
		}
	}
	running.Wait()
	return nil
}

// chooseNamespaces falls back to one namespace if the user may not list the quota Workloads of all.
func (f *Feed) chooseNamespaces(ctx context.Context) {
	if len(f.namespaces) > 0 || f.Fallback == "" {
		return
	}
	err := f.Client.List(ctx, &kueue.WorkloadList{}, client.Limit(1))
	if apierrors.IsForbidden(err) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.namespaces = []string{f.Fallback}
		g := snapshot.Gap{Resource: "workloads.kueue.x-k8s.io", Reason: reasonOf(err), Cure: fmt.Sprintf(
			"only namespace %q is shown: name others with --namespace, or ask for the ClusterRole %s in all namespaces", f.Fallback, ReaderRole)}
		f.gaps["all namespaces"] = g
	}
}

func (f *Feed) namespacesOf(k *kind) []string {
	if !k.isNamespaced || len(f.namespaces) == 0 {
		return []string{""}
	}
	return f.namespaces
}

// ReaderRole is the ClusterRole that grants the right to read every kind.
const ReaderRole = "tranche-dashboard-viewer"

// try reports whether a kind can be read. If rights or the kind are missing, it records a Gap.
func (f *Feed) try(ctx context.Context, k *kind, namespace string) (isReadable bool, err error) {
	switch err := f.Client.List(ctx, k.list(), client.Limit(1), client.InNamespace(namespace)); {
	case err == nil:
		return true, nil
	case isUnserved(err) || apierrors.IsForbidden(err):
		f.setGap(k, namespace, gapOf(k, namespace, err))
		return false, nil
	default:
		return false, fmt.Errorf("list %s: %w", k.gvr, err)
	}
}

// gapOf returns why a kind cannot be read, and what to do.
func gapOf(k *kind, namespace string, err error) *snapshot.Gap {
	gap := &snapshot.Gap{Resource: k.gvr, Reason: reasonOf(err)}
	place := ""
	if namespace != "" {
		gap.Namespaces, place = []string{namespace}, " in namespace "+namespace
	}
	switch {
	case isUnserved(err):
		gap.Reason, gap.Cure = "the API server does not serve it", "install Tranche"
	case apierrors.IsForbidden(err):
		gap.Cure = fmt.Sprintf("ask for the right to list and watch %s%s, for example by a binding to the ClusterRole %s", k.gvr, place, ReaderRole)
	default:
		gap.Reason = "the page is out of date, because the API server does not answer: " + gap.Reason
	}
	return gap
}

// setGap records what is missing of a kind, or that nothing is missing if the Gap is nil.
func (f *Feed) setGap(k *kind, namespace string, gap *snapshot.Gap) {
	f.mu.Lock()
	key := k.gvr + " " + namespace
	before, was := f.gaps[key]
	if gap == nil {
		delete(f.gaps, key)
	} else {
		f.gaps[key] = *gap
	}
	f.mu.Unlock()
	if was != (gap != nil) || was && before.String() != gap.String() {
		f.store.Use((*dashboard.Model).Touch)
	}
}

// note records as a Gap that a kind cannot be read at present, or that it can be read again.
func (f *Feed) note(ctx context.Context, k *kind, namespace string, err error) {
	switch {
	case err == nil:
		f.setGap(k, namespace, nil)
	case ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
		f.setGap(k, namespace, gapOf(k, namespace, err))
	}
}

// sync counts the watches that have not read their objects yet.
func (f *Feed) sync(more int) {
	f.mu.Lock()
	f.unsynced += more
	f.mu.Unlock()
	f.store.Use((*dashboard.Model).Touch)
}

// watch keeps the objects of a kind up to date until the context is done.
func (f *Feed) watch(ctx context.Context, k *kind, namespace string) {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := k.list()
			err := f.Client.List(ctx, list, &client.ListOptions{Namespace: namespace, Raw: &options, Limit: options.Limit, Continue: options.Continue})
			f.note(ctx, k, namespace, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := f.Client.Watch(ctx, k.list(), &client.ListOptions{Namespace: namespace, Raw: &options})
			f.note(ctx, k, namespace, err)
			return events, err
		},
	}
	reflector := cache.NewReflectorWithOptions(source, k.object(), &sink{feed: f, kind: k, namespace: namespace},
		cache.ReflectorOptions{Name: "dashboard", TypeDescription: k.gvr})
	reflector.RunWithContext(ctx)
}

// About describes what is read.
func (f *Feed) About() server.About {
	f.mu.Lock()
	defer f.mu.Unlock()
	about := server.About{IsSynced: f.isStarted && f.unsynced == 0, Namespaces: f.namespaces}
	for _, gap := range f.gaps {
		about.Gaps = append(about.Gaps, gap)
	}
	slices.SortFunc(about.Gaps, func(a, b snapshot.Gap) int { return strings.Compare(a.String(), b.String()) })
	return about
}

// isUnserved reports whether the API server does not serve a kind.
func isUnserved(err error) bool {
	_, isUndiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	return isUndiscovered || meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// reasonOf returns the message of the API server about a missing right, without the resource, which the Gap names.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if _, reason, isLong := strings.Cut(err.Error(), " is forbidden: "); isLong {
		return reason
	}
	return err.Error()
}
