// Package watched receives quota Workloads and JobSets for the cache of the manager. There may be a hundred thousand of them, in JSON.
//
// client-go lists objects by a watch that begins with all of them, and reads each event of a watch at least seven times before it has the object. The API server
// needs twice as long for such a watch as for a list. So this package lists in pages, decodes each object while the next ones arrive, and decodes an event in less
// than half of the time. See docs/decisions/0054-the-manager-lists-and-decodes-by-itself.md.
package watched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// NewCache is cache.New with informers that receive objects by this package. All objects of the two kinds are received, and transformed by the default
// transform: it returns an error if the options have anything else for them.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	if options.HTTPClient == nil || len(options.DefaultNamespaces) > 0 || options.DefaultLabelSelector != nil || options.DefaultFieldSelector != nil {
		return nil, errors.New("watched.NewCache needs an HTTP client, and does not select objects")
	}
	byObject := map[client.Object]cache.ByObject{}
	maps.Copy(byObject, options.ByObject)
	sources := map[reflect.Type]*source{}
	for _, k := range kinds() {
		object, d := k.new(), newDecoder(options.Scheme, k, options.DefaultTransform)
		for other := range options.ByObject {
			if reflect.TypeOf(other) == reflect.TypeOf(object) {
				return nil, fmt.Errorf("watched.NewCache does not select %s", k.resource)
			}
		}
		api, err := d.client(config, options.HTTPClient)
		if err != nil {
			return nil, fmt.Errorf("configure the client of %s: %w", k.resource, err)
		}
		sources[reflect.TypeOf(object)] = &source{api, d}
		byObject[object] = cache.ByObject{Transform: func(o any) (any, error) { return o, nil }}
	}
	options.ByObject = byObject
	options.NewInformer = func(
		lister toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		if s := sources[reflect.TypeOf(example)]; s != nil {
			lister = &listerWatcher{toolscache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}}
		}
		return toolscache.NewSharedIndexInformer(lister, example, resync, indexers)
	}
	return cache.New(config, options)
}

// kinds returns the kinds of which there may be very many objects in JSON. Jobs and pods come in Protobuf.
func kinds() []kind {
	return []kind{
		{kueue.SchemeGroupVersion.WithKind("Workload"), "workloads", func() client.Object { return &kueue.Workload{} }},
		{jobset.GroupVersion.WithKind("JobSet"), "jobsets", func() client.Object { return &jobsetapi.JobSet{} }},
	}
}

// client returns a client that decodes the events of watches by the decoder.
func (d *decoder) client(config *rest.Config, httpClient *http.Client) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	group := d.kind.gvk.GroupVersion()
	config.GroupVersion, config.APIPath = &group, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = newSerializer(d)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return rest.RESTClientForConfigAndClient(config, httpClient)
}

// A listerWatcher lists by a list.
type listerWatcher struct{ toolscache.ListWatch }

// IsWatchListSemanticsUnSupported makes an informer list by a list, not by a watch.
func (*listerWatcher) IsWatchListSemanticsUnSupported() bool { return true }

// A source is where the objects of a kind come from.
type source struct {
	client  rest.Interface
	decoder *decoder
}

// pageSize is how many objects are asked for at a time. The API server copies all objects of a list before it sends them, and ends a request after a minute.
const pageSize = 10_000

// list returns all objects, at least as new as the call. It reads the pages itself, whatever page is asked for: an informer would ask for what any cache of the
// API server has, so that a manager that starts could miss admissions of the one before it, and takes what it is given after a page has expired
// for everything.
func (s *source) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.Limit, options.Continue = pageSize, ""
	all, _, err := (&pager.ListPager{PageSize: pageSize, PageFn: s.page}).List(ctx, options)
	return all, err
}

func (s *source) page(ctx context.Context, options metav1.ListOptions) (_ runtime.Object, err error) {
	// To compress and expand it would take both sides longer than the network.
	body, err := s.request(&options).SetHeader("Accept-Encoding", "identity").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	return s.decoder.decodeList(body)
}

func (s *source) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch, options.AllowWatchBookmarks = true, true
	return s.request(&options).Watch(ctx)
}

func (s *source) request(options *metav1.ListOptions) *rest.Request {
	return s.client.Get().Resource(s.decoder.kind.resource).SpecificallyVersionedParams(options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}
