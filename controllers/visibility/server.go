// Package visibility serves Kueue's visibility API: which quota Workloads are pending in a ClusterQueue or LocalQueue, at which position,
// and, beyond Kueue, why. It is an aggregated API: the API server passes requests on to it, and authenticates and authorizes them.
//
// Every replica of the manager answers from its own engine, which also observes the cluster where it does not lead.
package visibility

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/compatibility"
	ctrl "sigs.k8s.io/controller-runtime"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/webserver"
)

type server struct {
	config configapi.Visibility
	// throttle passes requests to the engine, which answers.
	throttle *engine.Throttle
	// mgr connects to the API server, which authenticates and authorizes requests.
	mgr ctrl.Manager
}

// SetupWithManager adds the server to a manager, unless it is turned off. The defaults of the configuration must be
// set.
func SetupWithManager(mgr ctrl.Manager, throttle *engine.Throttle, config configapi.Visibility) error {
	if !*config.Enable {
		return nil
	}
	return mgr.Add(&server{config: config, throttle: throttle, mgr: mgr})
}

// kubernetesVersion is the version of the serving libraries.
const kubernetesVersion = "1.36"

// newScheme returns a scheme with the served types and the request options.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := visibility.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypeWithName(visibility.SchemeGroupVersion.WithKind("PendingWorkloadsQuestion"), &question{})
	err := scheme.AddConversionFunc((*url.Values)(nil), (*question)(nil), func(from, to any, _ conversion.Scope) error {
		query, isQuery := from.(*url.Values)
		q, isQuestion := to.(*question)
		if !isQuery || !isQuestion {
			return fmt.Errorf("read the query: cannot convert %T to %T", from, to)
		}
		return q.read(*query)
	})
	return scheme, err
}

// Limits of connections, of which the API server needs few.
const (
	maxConnections = 500
	maxOfAddress   = 100
)

// retryEvery is how often the server tries to start.
const retryEvery = 5 * time.Second

// errConfiguration marks errors that a retry does not resolve.
var errConfiguration = errors.New("check the configuration")

// Start serves until ctx ends. If the cluster is not ready for that (no aggregation layer, no permissions yet) it retries: admission must
// not wait for the visibility API.
func (s *server) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.serve(ctx)
		if err == nil || errors.Is(err, errConfiguration) {
			return err
		}
		ctrl.LoggerFrom(ctx).Error(err, "Starting the visibility API failed, retrying")
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
	return nil
}

func (s *server) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, err := s.prepare(ctx)
	if err != nil {
		return fmt.Errorf("serve the visibility API on %s: %w", s.config.BindAddress, err)
	}
	return server.PrepareRun().RunWithContext(ctx)
}

// NeedLeaderElection returns false: every replica answers, because the Service of an APIService picks any of them.
func (s *server) NeedLeaderElection() bool { return false }

func (s *server) prepare(ctx context.Context) (*genericapiserver.GenericAPIServer, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.NewEffectiveVersionFromString(kubernetesVersion, "", "")
	config.EnableIndex, config.EnableProfiling, config.EnableMetrics = false, false, false
	namer := apiopenapi.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	config.OpenAPIConfig.Info.Title, config.OpenAPIV3Config.Info.Title = "Tranche", "Tranche"
	if err := s.listen(config); err != nil {
		return nil, fmt.Errorf("%w: %w", errConfiguration, err)
	}
	c, err := kubernetes.NewForConfig(s.mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("create a client: %w", err)
	}
	if err := errors.Join(authenticate(ctx, config, c), authorize(config, c)); err != nil {
		return nil, errors.Join(err, config.SecureServing.Listener.Close())
	}
	server, err := config.Complete(nil).New("tranche-visibility", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, errors.Join(err, config.SecureServing.Listener.Close())
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(visibility.SchemeGroupVersion.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[visibility.SchemeGroupVersion.Version] = s.storage()
	return server, server.InstallAPIGroup(&group)
}

func (s *server) storage() map[string]rest.Storage {
	clusterQueue, localQueue := queue{singular: "clusterqueue"}, queue{singular: "localqueue", isNamespaced: true}
	return map[string]rest.Storage{
		"clusterqueues":                  clusterQueue,
		"clusterqueues/pendingworkloads": pendingWorkloads{queue: clusterQueue, throttle: s.throttle, reader: s.mgr.GetClient()},
		"localqueues":                    localQueue,
		"localqueues/pendingworkloads":   pendingWorkloads{queue: localQueue, throttle: s.throttle, reader: s.mgr.GetClient()},
	}
}

// listen opens the port, with the certificate of the directory or one that is generated now and kept in memory.
func (s *server) listen(config *genericapiserver.Config) error {
	serving := genericoptions.NewSecureServingOptions()
	if dir := s.config.CertDir; dir != "" {
		serving.ServerCert.CertKey.CertFile, serving.ServerCert.CertKey.KeyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	}
	serving.ServerCert.CertDirectory = ""
	listener, err := net.Listen("tcp", s.config.BindAddress)
	if err != nil {
		return err
	}
	serving.Listener = webserver.Guard(nil, listener, webserver.Limits{Total: maxConnections, Quiet: maxOfAddress})
	err = serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil)
	if err == nil {
		err = serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("set up TLS: %w", err), serving.Listener.Close())
	}
	return nil
}
