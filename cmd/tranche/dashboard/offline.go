package dashboard

import (
	"context"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/detail"
	"github.com/tranche-dev/tranche/dashboard/server"
	"github.com/tranche-dev/tranche/snapshot"
)

// offline fills the Store with a snapshot, and returns it as a source. Nothing changes after that but explanations, which are computed when they are
// asked for.
func (f *flags) offline(ctx context.Context, store *server.Store, in io.Reader, warnings io.Writer) (*source, error) {
	s, err := f.snapshot.Read(in, warnings)
	if err != nil {
		return nil, err
	}
	store.Use(func(m *model.Model) { observe(m, s) })
	scheme, err := query.NewScheme()
	if err != nil {
		return nil, err
	}
	about := server.About{Version: f.Version, Source: f.snapshot.Path, TakenAt: s.TakenAt, IsSynced: true, Namespaces: s.OnlyNamespaces, Gaps: s.Gaps}
	if f.snapshot.Path == snapshotfile.Stream {
		about.Source = "standard input"
	}
	e := newAskingExplainer(explain.NewSnapshotAsker(s, horizon), store)
	e.isFixed = true
	return &source{
		about: func() server.About { return about },
		jobSet: explained(ctx, func(_ context.Context, key types.NamespacedName) (*model.JobSetObjects, error) {
			return jobSetOf(s, key)
		}, e),
		reader: &detail.Fixed{Scheme: scheme, Objects: shownObjects(s)},
		now:    func() time.Time { return s.TakenAt },
		follow: func(ctx context.Context) error { <-ctx.Done(); return nil },
	}, nil
}

// observe lets a Model observe a snapshot.
func observe(m *model.Model, s *snapshot.Snapshot) {
	if len(s.OnlyNamespaces) > 0 || slices.ContainsFunc(s.Gaps, func(g snapshot.Gap) bool { return g.Resource == "workloads.kueue.x-k8s.io" }) {
		m.LacksWorkloads()
	}
	observeAll(m, s.ClusterQueues)
	observeAll(m, s.Cohorts)
	observeAll(m, s.LocalQueues)
	observeAll(m, s.JobSets)
	observeAll(m, s.Workloads)
}

func observeAll[T metav1.Object](m *model.Model, objects []T) {
	for _, object := range objects {
		m.Observe(object)
	}
}

// shownObjects returns the objects of a snapshot that the page shows as YAML.
func shownObjects(s *snapshot.Snapshot) []client.Object {
	var all []client.Object
	for _, q := range s.ClusterQueues {
		all = append(all, q)
	}
	for _, q := range s.LocalQueues {
		all = append(all, q)
	}
	for _, js := range s.JobSets {
		all = append(all, js)
	}
	return all
}

// jobSetOf returns a JobSet of a snapshot with its quota Workloads.
func jobSetOf(s *snapshot.Snapshot, key types.NamespacedName) (*model.JobSetObjects, error) {
	for _, js := range s.JobSets {
		if js.Namespace != key.Namespace || js.Name != key.Name {
			continue
		}
		objects := &model.JobSetObjects{JobSet: js, Explanations: map[string]*visibilityapi.Explanation{}, LetIn: map[string]*model.LetIn{}}
		for _, w := range s.Workloads {
			if w.Namespace == key.Namespace && w.Labels[apis.JobSetLabel] == key.Name {
				objects.Workloads = append(objects.Workloads, w)
			}
		}
		return objects, nil
	}
	return nil, apierrors.NewNotFound(jobset.Resource("jobsets"), key.Name)
}
