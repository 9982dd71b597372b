// Package visibility serves Kueue's visibility API: which quota Workloads are pending in a ClusterQueue or LocalQueue, at which position,
// and, beyond Kueue, why. It is an aggregated API: the API server passes requests on to it, and authenticates and authorizes them.
//
// Every replica of the manager answers from its own engine, which also observes the cluster where it does not lead.
package visibility

import (
	"errors"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A Config configures the server.
type Config struct {
	// Engine answers. It is a Runner of controllers/engine.
	Engine engine
	// Reader reads quota Workloads from the cache.
	Reader client.Reader
	// Rest is the configuration for the API server, which authenticates and authorizes requests.
	Rest *rest.Config
	// BindAddress is HOST:PORT or :PORT.
	BindAddress string
	// CertDir is a directory with tls.crt and tls.key. If it is empty, the server generates a certificate.
	CertDir string
}

func (c *Config) validate() error {
	if c.Engine == nil || c.Reader == nil || c.Rest == nil || c.BindAddress == "" {
		return errors.New("visibility.Config: Engine, Reader, Rest and BindAddress are required")
	}
	return nil
}

type server struct{ config Config }

// SetupWithManager adds the server to a manager. It serves as long as the manager runs.
func SetupWithManager(mgr ctrl.Manager, config Config) error {
	if err := config.validate(); err != nil {
		return err
	}
	return mgr.Add(&server{config})
}
