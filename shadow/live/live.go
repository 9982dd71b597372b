// Package live lets a shadow.Recorder observe a cluster, with the rights of a user. It only lists and watches.
package live

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/snapshot"
	"github.com/tranche-dev/tranche/snapshot/collect"
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
	follower collect.Follower
	synced   chan struct{}

	mu       sync.Mutex
	recorder *shadow.Recorder
	// uids are those of the objects that exist.
	uids map[*collect.Source]map[types.NamespacedName]types.UID
}

// New returns a Feed that observes from now on, when Run is called.
func New(config *Config) *Feed {
	f := &Feed{
		synced: make(chan struct{}), recorder: shadow.NewRecorder(time.Now().UTC().Truncate(time.Second), config.Base, config.Limit),
		uids: map[*collect.Source]map[types.NamespacedName]types.UID{},
	}
	f.recorder.AssumeQuota(config.Assumed)
	var once sync.Once
	f.follower = collect.Follower{
		Client: config.Client, Target: f, Role: ReaderRole + " of config/shadow/role.yaml", Describe: describe,
		Changed: func() {
			if f.follower.State().IsSynced {
				once.Do(func() { close(f.synced) })
			}
		},
	}
	return f
}

// sources returns what is followed. JobSets come before what belongs to them, and Jobs are those of JobSets.
func sources() []*collect.Source {
	var all []*collect.Source
	for _, k := range snapshot.Kinds() {
		s := &collect.Source{Kind: k}
		switch k.GVK {
		case corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Pod"):
			continue
		case batchv1.SchemeGroupVersion.WithKind("Job"):
			s.Options = []client.ListOption{client.HasLabels{jobset.JobSetNameKey}}
		}
		all = append(all, s)
	}
	return all
}

// Run observes until the context is done. It returns an error if the API server does not answer at the start, or JobSets cannot be read.
func (f *Feed) Run(ctx context.Context) error {
	readable, err := f.follower.Readable(ctx, sources())
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(readable, func(s *collect.Source) bool { return s.Kind.GVK.Group == jobset.GroupVersion.Group }) {
		for _, gap := range f.follower.State().Gaps {
			if gap.Resource == "jobsets."+jobset.GroupVersion.Group {
				return fmt.Errorf("there is nothing to report without JobSets: %s", gap.String())
			}
		}
	}
	f.follower.Run(ctx, readable)
	return nil
}

// describe adds what is missing from the report.
func describe(kind *snapshot.Kind, gap *snapshot.Gap) {
	missing := "the replays go on without it"
	switch kind.Resource {
	case "jobsets":
		return
	case "workloads":
		missing = "what JobSets hold is measured from their Jobs, and other jobs are not replayed"
	case "jobs":
		missing = "no idle quota is measured, and JobSets never end in the replays"
	case "clusterqueues", "localqueues", "resourceflavors":
		missing = "no JobSet is admitted in the replays"
	}
	gap.Reason += " (" + missing + ")"
}

// Synced is closed when all kinds have been read once.
func (f *Feed) Synced() <-chan struct{} { return f.synced }

// Report compares what was observed until now. The Feed goes on meanwhile.
func (f *Feed) Report() (*shadow.Report, error) { return f.prepare().Report() }

func (f *Feed) prepare() *shadow.Draft {
	gaps := f.follower.State().Gaps
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recorder.Prepare(time.Now().UTC().Truncate(time.Second), gaps)
}

// Progress describes what was observed so far in one line.
func (f *Feed) Progress() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.recorder.Progress(time.Now())
}

// Reduce implements collect.Target: what does not decide admission is dropped.
func (f *Feed) Reduce(from *collect.Source, object snapshot.Object) snapshot.Object {
	return snapshot.ReducedObject(from.Kind, object)
}

// Observe implements collect.Target.
func (f *Feed) Observe(from *collect.Source, object snapshot.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := client.ObjectKeyFromObject(object)
	if uid, wasThere := f.uids[from][key]; wasThere && uid != object.GetUID() {
		f.gone(from, key, uid)
	}
	f.recorder.Observe(object, time.Now())
	if f.uids[from] == nil {
		f.uids[from] = map[types.NamespacedName]types.UID{}
	}
	f.uids[from][key] = object.GetUID()
}

// Forget implements collect.Target.
func (f *Feed) Forget(from *collect.Source, object snapshot.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recorder.Observe(object, time.Now()) // the last state is that at the deletion
	f.recorder.Gone(object, time.Now())
	delete(f.uids[from], client.ObjectKeyFromObject(object))
}

// Retain implements collect.Target.
func (f *Feed) Retain(from *collect.Source, uids map[types.NamespacedName]types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, uid := range f.uids[from] {
		if uids[key] != uid {
			f.gone(from, key, uid)
		}
	}
	f.uids[from] = uids
}

// gone notes that an object was deleted while it was not watched.
func (f *Feed) gone(from *collect.Source, key types.NamespacedName, uid types.UID) {
	object := snapshot.NewObject(from.Kind)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	object.SetUID(uid)
	f.recorder.Gone(object, time.Now())
}
