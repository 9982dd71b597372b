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
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/dashboard/access"
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
	snapshot   snapshotfile.Flags
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
			"With --snapshot, the page shows a snapshot of a cluster as of the time when it was taken, without the cluster.\n\n" +
			"Exit codes: 0 it was stopped by a signal, 1 the API server did not answer or the port is in use, 2 bad flags, or a snapshot that is not readable.",
		Example: "  tranche dashboard\n  tranche dashboard -n team-a -n team-b --port 8080\n  tranche dashboard --snapshot cluster.tar.gz   # offline",
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
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitcode.AsBadInput(err) })
	f.AddKubeconfig(cmd)
	cmd.Flags().StringSliceVarP(&f.namespaces, "namespace", "n", nil, "namespace to show; may be repeated; defaults to all that the user may read")
	f.CompleteFlag(cmd, "namespace", query.Namespaces)
	f.snapshot.Add(cmd)
	for _, other := range []string{"kubeconfig", "namespace"} {
		cmd.MarkFlagsMutuallyExclusive("snapshot", other)
	}
	cmd.Flags().IntVar(&f.port, "port", 0, "port on "+loopback+"; 0 takes a free one")
	return cmd
}

// run serves until the context is done.
func (f *flags) run(ctx context.Context, in io.Reader, out, warnings io.Writer) error {
	// The page shows what cannot be read; the log of client-go would show it on the terminal once a second.
	klog.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	store := server.NewStore()
	from, err := f.source(ctx, store, in, warnings)
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
	handler := server.New(&server.Config{
		Store: store, JobSet: from.jobSet, Reader: func(*access.Session) client.Reader { return from.reader }, Now: from.now, Page: files,
		Hosts: []string{host}, Token: token, Cookie: "tranche-dashboard-" + port, About: from.about,
	})
	reading := make(chan error, 1)
	go func() {
		defer stop()
		reading <- from.follow(ctx)
	}()
	if _, err := fmt.Fprintf(out, "Dashboard of %s: http://%s/?token=%s\nPress Ctrl+C to stop.\n", from.about().Source, host, token); err != nil {
		return errors.Join(err, listener.Close())
	}
	err = serve(ctx, listener, handler)
	stop()
	return errors.Join(err, <-reading)
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
