// Package visibility serves Kueue's visibility API: which quota Workloads are pending in a ClusterQueue or LocalQueue, at which position,
// and, beyond Kueue, why. It is an aggregated API: the API server passes requests on to it, and authenticates and authorizes them.
//
// Every replica of the manager answers from its own engine, which also observes the cluster where it does not lead.
package visibility

import (
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

type server struct {
	config configapi.Visibility
	// engine answers.
	engine engine
	// reader reads quota Workloads from the cache.
	reader client.Reader
	// rest is the configuration for the API server, which authenticates and authorizes requests.
	rest *rest.Config
}

// SetupWithManager adds the server to a manager, unless it is turned off. The engine is a Runner of controllers/engine. The defaults of the
// configuration must be set.
func SetupWithManager(mgr ctrl.Manager, e engine, config configapi.Visibility) error {
	if !*config.Enable {
		return nil
	}
	return mgr.Add(&server{config: config, engine: e, reader: mgr.GetClient(), rest: mgr.GetConfig()})
}
