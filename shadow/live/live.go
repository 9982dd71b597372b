// Package live lets a shadow.Recorder observe a cluster, with the rights of a user. It only lists and watches.
package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/snapshot"
)

// ReaderRole is the ClusterRole of config/shadow/role.yaml that grants the right to list and watch every kind.
const ReaderRole = "tranche-shadow-reader"

// A Config configures what is read.
type Config struct {
	// Client reads from the API server. Its scheme has the kinds.
	Client client.WithWatch
	// Base has objects that are not read from the cluster, and the configuration of the manager; it may be nil.
	Base *snapshot.Snapshot
	// Limit is how many JobSets are kept one by one, or 0 for the default.
	Limit int
	// Assumed is the quota for JobSets that name no LocalQueue.
	Assumed corev1.ResourceList
}

// A Feed observes a cluster.
type Feed struct {
	Config

	mu       sync.Mutex
	recorder *shadow.Recorder
	gaps     map[string]snapshot.Gap
	unsynced int
	synced   chan struct{}
}

// New returns a Feed that observes from now on, when Run is called.
func New(config *Config) *Feed {
	f := &Feed{Config: *config, gaps: map[string]snapshot.Gap{}, synced: make(chan struct{})}
	f.recorder = shadow.NewRecorder(time.Now().UTC().Truncate(time.Second), f.Base, f.Limit)
	f.recorder.AssumeQuota(f.Assumed)
	return f
}

// kinds returns the kinds that are watched. JobSets come before what belongs to them.
func kinds() []*snapshot.Kind {
	return slices.DeleteFunc(snapshot.Kinds(), func(k *snapshot.Kind) bool {
		return k.GVK == corev1.SchemeGroupVersion.WithKind("Node") || k.GVK == corev1.SchemeGroupVersion.WithKind("Pod")
	})
}

// isNeeded reports whether there is no report without a kind.
func isNeeded(k *snapshot.Kind) bool { return k.GVK.Group == jobset.GroupVersion.Group }

// options select the objects of a kind: Jobs are those of JobSets.
func options(k *snapshot.Kind, raw *metav1.ListOptions) *client.ListOptions {
	o := &client.ListOptions{Raw: raw, Limit: raw.Limit, Continue: raw.Continue}
	if k.GVK == batchv1.SchemeGroupVersion.WithKind("Job") {
		client.HasLabels{jobset.JobSetNameKey}.ApplyToList(o)
	}
	return o
}

// Run observes until the context is done. It returns an error if the API server does not answer at the start, or JobSets cannot be read.
func (f *Feed) Run(ctx context.Context) error {
	var readable []*snapshot.Kind
	for _, k := range kinds() {
		if is, err := f.try(ctx, k); err != nil {
			return err
		} else if is {
			readable = append(readable, k)
		}
	}
	f.unsynced = len(readable)
	var running sync.WaitGroup
	for _, k := range readable {
		running.Go(func() { f.watch(ctx, k) })
	}
	running.Wait()
	return nil
}

// try reports whether a kind can be listed and watched.
func (f *Feed) try(ctx context.Context, k *snapshot.Kind) (isReadable bool, err error) {
	list, err := f.newList(k)
	if err != nil {
		return false, err
	}
	err = f.Client.List(ctx, list, options(k, &metav1.ListOptions{Limit: 1}))
	if err == nil {
		second := int64(1)
		var events watch.Interface
		if events, err = f.Client.Watch(ctx, list, options(k, &metav1.ListOptions{ResourceVersion: list.GetResourceVersion(), TimeoutSeconds: &second})); err == nil {
			events.Stop()
			return true, nil
		}
	}
	if !isUnserved(err) && !apierrors.IsForbidden(err) {
		return false, fmt.Errorf("list %s: %w", k.FullResource(), err)
	}
	gap := gapOf(k, err)
	if isNeeded(k) {
		return false, fmt.Errorf("there is nothing to report without JobSets: %s", gap.String())
	}
	f.setGap(k, gap)
	return false, nil
}

// gapOf returns why a kind cannot be read, what to do, and what is missing from the report.
func gapOf(k *snapshot.Kind, err error) *snapshot.Gap {
	gap := &snapshot.Gap{Resource: k.FullResource(), Reason: reasonOf(err)}
	if isUnserved(err) {
		gap.Reason = "the API server does not serve " + k.GVK.GroupVersion().String()
	} else if apierrors.IsForbidden(err) {
		gap.Cure = fmt.Sprintf("ask for the right to list and watch %s, for example by a ClusterRoleBinding to the ClusterRole %s of config/shadow/role.yaml", k.FullResource(), ReaderRole)
	}
	if missing := missingWithout(k); missing != "" {
		gap.Reason += " (" + missing + ")"
	}
	return gap
}

// missingWithout says what a report lacks without a kind.
func missingWithout(k *snapshot.Kind) string {
	switch k.Resource {
	case "workloads":
		return "what JobSets hold is measured from their Jobs, and other jobs are not replayed"
	case "jobs":
		return "no idle quota is measured, and JobSets never end in the replays"
	case "clusterqueues", "localqueues", "resourceflavors":
		return "no JobSet is admitted in the replays"
	}
	return "the replays go on without it"
}

func (f *Feed) newList(k *snapshot.Kind) (client.ObjectList, error) {
	object, err := f.Client.Scheme().New(k.GVK.GroupVersion().WithKind(k.GVK.Kind + "List"))
	if err != nil {
		return nil, err
	}
	list, isList := object.(client.ObjectList)
	if !isList {
		return nil, fmt.Errorf("%T is no list", object)
	}
	return list, nil
}

func (f *Feed) setGap(k *snapshot.Kind, gap *snapshot.Gap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if gap == nil {
		delete(f.gaps, k.FullResource())
	} else {
		f.gaps[k.FullResource()] = *gap
	}
}

// watch observes the objects of a kind until the context is done.
func (f *Feed) watch(ctx context.Context, k *snapshot.Kind) {
	note := func(err error) {
		switch {
		case err == nil:
			f.setGap(k, nil)
		case ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err):
			f.setGap(k, &snapshot.Gap{Resource: k.FullResource(), Reason: "out of date, because the API server does not answer: " + reasonOf(err)})
		}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list, err := f.newList(k)
			if err == nil {
				err = f.Client.List(ctx, list, options(k, &raw))
			}
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			list, err := f.newList(k)
			if err != nil {
				return nil, err
			}
			events, err := f.Client.Watch(ctx, list, options(k, &raw))
			note(err)
			return events, err
		},
	}
	cache.NewReflectorWithOptions(source, snapshot.NewObject(k), &sink{feed: f, kind: k, names: map[string]snapshot.Object{}},
		cache.ReflectorOptions{Name: "shadow", TypeDescription: k.FullResource()}).RunWithContext(ctx)
}

// Synced is closed when all kinds have been read once.
func (f *Feed) Synced() <-chan struct{} { return f.synced }

// Report compares what was observed until now. The Feed goes on meanwhile.
func (f *Feed) Report() (*shadow.Report, error) { return f.prepare().Report() }

func (f *Feed) prepare() *shadow.Draft {
	f.mu.Lock()
	defer f.mu.Unlock()
	gaps := []snapshot.Gap{}
	for _, gap := range f.gaps {
		gaps = append(gaps, gap)
	}
	slices.SortFunc(gaps, func(a, b snapshot.Gap) int { return strings.Compare(a.Resource, b.Resource) })
	return f.recorder.Prepare(time.Now().UTC().Truncate(time.Second), gaps)
}

// Progress describes what was observed so far in one line.
func (f *Feed) Progress() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recorder.Progress(time.Now())
}

// isUnserved reports whether the API server does not serve a kind.
func isUnserved(err error) bool {
	_, isUndiscovered := errors.AsType[*apiutil.ErrResourceDiscoveryFailed](err)
	return isUndiscovered || meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
}

// reasonOf returns the message of the API server about a missing right, without the resource, which the Gap names.
func reasonOf(err error) string {
	if _, reason, isLong := strings.Cut(err.Error(), " is forbidden: "); isLong {
		return reason
	}
	return err.Error()
}
