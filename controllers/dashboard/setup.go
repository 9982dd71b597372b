// Package dashboard serves the dashboard from the manager: over TLS, to users with a bearer token that the API server accepts, each of whom sees what
// they may read. It is fed from the cache of the manager, on every replica.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/webserver"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/dashboard/page"
	"github.com/tranche-dev/tranche/dashboard/server"
)

// A Config configures the dashboard.
type Config struct {
	// Settings are those of the configuration file, with their defaults.
	Settings configapi.Dashboard
	// Engine explains why stages wait.
	Engine *engine.Throttle
	// Search finds what would let stages in. The page names the verb that does so if it is nil.
	Search Search
	// Version is that of the program.
	Version string
}

// SetupWithManager adds the server to a manager, unless it is turned off.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	if !*config.Settings.Enable {
		return nil
	}
	files, err := page.Files()
	if err != nil {
		return fmt.Errorf("read the files of the dashboard: %w", err)
	}
	log := mgr.GetLogger().WithName("dashboard")
	reviews := &access.Config{OnError: atMostEvery(errorInterval, func(err error) { log.Error(err, "Reviewing users of the dashboard") })}
	if err := reviews.Connect(mgr.GetConfig()); err != nil {
		return fmt.Errorf("connect the dashboard to the API server: %w", err)
	}
	details, err := detailClient(mgr)
	if err != nil {
		return fmt.Errorf("connect the dashboard to the API server: %w", err)
	}
	f := &feed{store: server.NewStore(), log: log}
	if err := f.watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	search := newSearcher(config.Search, func() { f.change("Showing what would let a JobSet in", (*model.Model).Touch) }, log)
	reads := &reader{cache: mgr.GetClient(), store: f.store, engine: config.Engine, explained: newExplanations(), searcher: search}
	secure, err := webserver.Secure(mgr, config.Settings.CertDir)
	if err != nil {
		return fmt.Errorf("dashboard.certDir: %w", err)
	}
	l := &listener{address: config.Settings.BindAddress, secure: secure, log: log, handler: server.New(&server.Config{
		Store: f.store, JobSet: reads.jobSet, Reader: func(session *access.Session) client.Reader { return session.Reader(details) }, Gate: access.New(reviews), Page: files,
		About: func() server.About { return server.About{Version: config.Version, IsSynced: f.isSynced()} },
	})}
	return errors.Join(mgr.Add(f), mgr.Add(search), mgr.Add(l))
}

// errorInterval is the shortest time between two errors of reviews in the log: each request may cause one.
const errorInterval = 10 * time.Second

// Limits of the requests for pods, Events and objects as YAML, which are not in the cache: those of all users together.
const (
	detailQPS   = 10
	detailBurst = 40
)

// detailClient returns a client that reads from the API server. Its requests are limited apart from those of the controllers, which do not wait for them.
func detailClient(mgr ctrl.Manager) (client.Client, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS, config.Burst, config.RateLimiter = detailQPS, detailBurst, nil
	return client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
}
