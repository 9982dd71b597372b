// Package dashboard is the verb `tranche dashboard`: it serves a page about queues and JobSets on loopback, with the rights of a kubeconfig.
package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/explain"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	model "github.com/tranche-dev/tranche/dashboard"
	"github.com/tranche-dev/tranche/dashboard/live"
	"github.com/tranche-dev/tranche/dashboard/page"
	"github.com/tranche-dev/tranche/dashboard/server"
)

const (
	// loopback is the only address that is served.
	loopback = "127.0.0.1"

	// horizon is how long after a snapshot the simulation of expected starts ends, as in the verb explain.
	horizon = 7 * 24 * time.Hour

	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	stopTimeout   = 2 * time.Second
	maxPort       = 65535
)

type flags struct {
	query.Flags
	namespaces []string
	port       int
}

// NewCommand returns the verb of a program of this version.
func NewCommand(version string) *cobra.Command {
	f := flags{Flags: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a page about queues and JobSets on this machine",
		Long: "Serve a page that shows the tree of Cohorts and ClusterQueues with their quota, the line of each ClusterQueue, and the stages of each\n" +
			"JobSet over time. The page is served on " + loopback + " only, changes nothing, and shows what the user of the kubeconfig may read: the\n" +
			"ClusterRole tranche-dashboard-viewer grants all that it can show. If the user may not read all namespaces, it shows the namespace of the\n" +
			"kubeconfig, or those that --namespace names. The printed URL has a token, without which other users of the machine get no answer.\n\n" +
			"Exit codes: 0 it was stopped by a signal, 1 the API server did not answer or the port is in use, 2 bad flags.",
		Example: "  tranche dashboard\n  tranche dashboard -n team-a -n team-b --port 8080",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return exitcode.AsBadInput(err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.port < 0 || f.port > maxPort {
				return exitcode.AsBadInput(fmt.Errorf("--port is %d: it must be from 1 to %d, or 0 for a free port", f.port, maxPort))
			}
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitcode.AsBadInput(err) })
	f.AddKubeconfig(cmd)
	cmd.Flags().StringSliceVarP(&f.namespaces, "namespace", "n", nil, "namespace to show; may be repeated; defaults to all that the user may read")
	cmd.Flags().IntVar(&f.port, "port", 0, "port on "+loopback+"; 0 takes a free one")
	return cmd
}

// run serves until the context is done.
func (f *flags) run(ctx context.Context, out io.Writer) error {
	// The page shows what cannot be read; the log of client-go would show it on the terminal once a second.
	klog.SetLogger(logr.Discard())
	store := server.NewStore()
	feed, about, err := f.connect(store)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, f.port)
	if err != nil {
		return err
	}
	files, err := page.Files()
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	address := listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	// A cookie of 127.0.0.1 would go to servers of other users on other ports of this machine. They do not know this name, which browsers resolve to
	// loopback themselves (RFC 6761).
	host := strings.ToLower(rand.Text()) + ".localhost:" + port
	token := rand.Text()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	asker, err := explain.NewAsker(f.Flags, horizon)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	handler := server.New(&server.Config{
		Store: store, JobSet: jobSetReader(ctx, feed, asker, store), Page: files, Hosts: []string{host}, Token: token, Cookie: "tranche-dashboard-" + port,
		About: func() server.About {
			current := feed.About()
			current.Version, current.Source, current.User = about.Version, about.Source, about.User
			return current
		},
	})
	reading := make(chan error, 1)
	go func() {
		defer stop()
		reading <- feed.Run(ctx)
	}()
	if _, err := fmt.Fprintf(out, "Dashboard of %s: http://%s/?token=%s\nPress Ctrl+C to stop.\n", about.Source, host, token); err != nil {
		return errors.Join(err, listener.Close())
	}
	err = serve(ctx, listener, handler)
	stop()
	return errors.Join(err, <-reading)
}

// jobSetReader returns a function that reads a JobSet, and adds what the verb explain finds about it. The context is that of the program.
func jobSetReader(
	program context.Context, feed *live.Feed, asker *explain.Asker, store *server.Store,
) func(context.Context, types.NamespacedName) (*model.JobSetObjects, error) {
	e := newExplainer(func(ctx context.Context, key types.NamespacedName) (*explanation, error) {
		report, err := asker.JobSet(ctx, key)
		return &explanation{report, asker.TakenAt()}, err
	}, func() { store.Use((*model.Model).Touch) })
	return func(ctx context.Context, key types.NamespacedName) (*model.JobSetObjects, error) {
		objects, err := feed.JobSet(ctx, key)
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

// listen opens the port.
func listen(ctx context.Context, port int) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d is in use: choose another one with --port, or 0 for a free one", port)
	}
	return listener, err
}

// serve answers requests until the context is done, and then those that have begun.
func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	// The streams of events end with the context.
	s := &http.Server{Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the dashboard: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := s.Shutdown(ending); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	// Browsers keep connections open on which they have not asked anything yet.
	return s.Close()
}
