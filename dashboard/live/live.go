// Package live feeds a dashboard from a cluster, with the rights of a user. It only lists, watches and reads.
package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
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
	store    *server.Store
	follower collect.Follower

	mu sync.Mutex
	// namespaces are those that are read, and fallback says why it is only one.
	namespaces []string
	fallback   *snapshot.Gap
	// withoutLeader is a sentence with the time since which no manager has led, and isUnanswered is true if the API server did not answer the last request for the Lease.
	withoutLeader string
	isUnanswered  bool
}

// New returns a Feed for a Store.
func New(config *Config, store *server.Store) *Feed {
	f := &Feed{Config: *config, store: store, namespaces: slices.Sorted(slices.Values(config.Namespaces))}
	f.follower = collect.Follower{
		Client: config.Client, Target: f, Role: dashboard.ReaderRole, Changed: func() { store.Use((*dashboard.Model).Touch) },
		Describe: func(_ *snapshot.Kind, gap *snapshot.Gap) {
			if gap.IsAbsent {
				gap.Cure = "install Tranche"
			}
		},
	}
	return f
}

// workloads are listed last: there may be very many.
const workloads = "workloads"

// sources returns what is followed, in the order in which it is read. ClusterQueues come first.
func (f *Feed) sources() []*collect.Source {
	kinds := map[string]*snapshot.Kind{}
	for _, k := range snapshot.Kinds() {
		kinds[k.Resource] = k
	}
	var all []*collect.Source
	for _, resource := range []string{"clusterqueues", "cohorts", "localqueues", "jobsets", workloads} {
		namespaces := f.namespaces
		if !kinds[resource].IsNamespaced || len(namespaces) == 0 {
			namespaces = []string{""}
		}
		for _, namespace := range namespaces {
			all = append(all, &collect.Source{Kind: kinds[resource], Namespace: namespace})
		}
	}
	return all
}

// Run watches until the context is done. It returns an error only if the API server does not answer at the start.
func (f *Feed) Run(ctx context.Context) error {
	f.chooseNamespaces(ctx)
	readable, err := f.follower.Readable(ctx, f.sources())
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	if !slices.ContainsFunc(readable, func(s *collect.Source) bool { return s.Kind.Resource == workloads && s.Namespace == "" }) {
		f.store.Use(func(m *dashboard.Model) { m.LacksWorkloads() })
	}
	var running sync.WaitGroup
	running.Go(func() { f.follower.Run(ctx, readable) })
	running.Go(func() { f.watchLeader(ctx) })
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
		f.fallback = &snapshot.Gap{Resource: "workloads.kueue.x-k8s.io", Reason: collect.ReasonOf(err), Cure: fmt.Sprintf(
			"only namespace %q is shown: name others with --namespace, or ask for the ClusterRole %s in all namespaces", f.Fallback, dashboard.ReaderRole)}
	}
}

// Reduce implements collect.Target: what the Model does not use is dropped.
func (f *Feed) Reduce(_ *collect.Source, object snapshot.Object) snapshot.Object {
	object.SetManagedFields(nil)
	switch object := object.(type) {
	case *kueue.Workload:
		for i := range object.Spec.PodSets {
			object.Spec.PodSets[i] = kueue.PodSet{Name: object.Spec.PodSets[i].Name, Count: object.Spec.PodSets[i].Count}
		}
	case *jobsetapi.JobSet:
		object.Spec.ReplicatedJobs, object.Annotations = nil, withoutLarge(object.Annotations)
	}
	return object
}

// withoutLarge removes annotations that are too large to matter for a state, such as those of kubectl and the timeline.
func withoutLarge(annotations map[string]string) map[string]string {
	const large = 256
	for key, value := range annotations {
		if len(value) > large {
			delete(annotations, key)
		}
	}
	return annotations
}

// Observe implements collect.Target.
func (f *Feed) Observe(_ *collect.Source, object snapshot.Object) {
	f.store.Use(func(m *dashboard.Model) { m.Observe(object) })
}

// Forget implements collect.Target.
func (f *Feed) Forget(_ *collect.Source, object snapshot.Object) {
	f.store.Use(func(m *dashboard.Model) { m.Forget(object) })
}

// Retain implements collect.Target.
func (f *Feed) Retain(from *collect.Source, uids map[types.NamespacedName]types.UID) {
	f.store.Use(func(m *dashboard.Model) {
		m.Retain(snapshot.NewObject(from.Kind), from.Namespace, func(key types.NamespacedName) bool {
			_, isCurrent := uids[key]
			return isCurrent
		})
	})
}

// About describes what is read.
func (f *Feed) About() server.About {
	state := f.follower.State()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fallback != nil {
		state.Gaps = append(state.Gaps, *f.fallback)
	}
	return server.About{
		IsSynced: state.IsSynced, Gaps: state.Gaps, Namespaces: f.namespaces, WithoutLeader: f.withoutLeader, IsStale: state.IsStale || f.isUnanswered,
	}
}
