package dashboard

import (
	"context"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/live"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A jobSetReader reads a JobSet with what belongs to it.
type jobSetReader func(ctx context.Context, key types.NamespacedName) (*model.JobSetObjects, error)

// A source is what the page shows: a cluster or a snapshot.
type source struct {
	about  func() server.About
	jobSet jobSetReader
	// reader reads what the Model does not keep.
	reader client.Reader
	// now is nil for the clock.
	now func() time.Time
	// follow changes the Store until the context is done. An error ends the program.
	follow func(ctx context.Context) error
}

// source returns the snapshot or the cluster. The context is that of the program.
func (f *flags) source(ctx context.Context, store *server.Store, in io.Reader, warnings io.Writer) (*source, error) {
	if f.snapshot.Path != "" {
		return f.offline(ctx, store, in, warnings)
	}
	feed, about, err := f.connect(store)
	if err != nil {
		return nil, err
	}
	asker, err := explain.NewAsker(f.Flags, horizon)
	if err != nil {
		return nil, err
	}
	return &source{
		about: func() server.About {
			current := feed.About()
			current.Version, current.Source, current.User = about.Version, about.Source, about.User
			return current
		},
		jobSet: explained(ctx, feed.JobSet, newAskingExplainer(asker, store)), reader: feed.Client, follow: feed.Run,
	}, nil
}

// newAskingExplainer returns an explainer that adds what the verb explain finds.
func newAskingExplainer(asker *explain.Asker, store *server.Store) *explainer {
	return newExplainer(func(ctx context.Context, key types.NamespacedName) (*explanation, error) {
		report, err := asker.JobSet(ctx, key)
		return &explanation{report, asker.TakenAt()}, err
	}, func() { store.Use((*model.Model).Touch) })
}

// explained returns a function that reads a JobSet, and adds explanations. The context is that of the program.
func explained(program context.Context, read jobSetReader, e *explainer) jobSetReader {
	return func(ctx context.Context, key types.NamespacedName) (*model.JobSetObjects, error) {
		objects, err := read(ctx, key)
		if err == nil {
			e.add(program, objects)
		}
		return objects, err
	}
}

// connect returns the feed of a cluster, and how the kubeconfig names the cluster.
func (f *flags) connect(store *server.Store) (*live.Feed, *server.About, error) {
	loader, config, err := query.LoadKubeconfig(f.Kubeconfig, f.Version)
	if err != nil {
		return nil, nil, err
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, nil, fmt.Errorf("read the namespace of kubeconfig %q: %w", f.Kubeconfig, err)
	}
	scheme, err := query.NewScheme()
	if err != nil {
		return nil, nil, err
	}
	// A handful of watches and one request for each opened JobSet need no throttling by the client.
	config.QPS = -1
	reader, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	plain := rest.CopyConfig(config)
	plain.GroupVersion, plain.NegotiatedSerializer = &visibility.SchemeGroupVersion, serializer.NewCodecFactory(scheme).WithoutConversion()
	raw, err := rest.UnversionedRESTClientFor(plain)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	about := &server.About{Version: f.Version, Source: config.Host}
	if names, err := loader.RawConfig(); err == nil {
		if current := names.Contexts[names.CurrentContext]; current != nil {
			about.Source, about.User = current.Cluster, current.AuthInfo
		}
	}
	return live.New(&live.Config{Client: reader, Raw: raw, Namespaces: f.namespaces, Fallback: namespace}, store), about, nil
}
