// Package shadow is the verb `tranche shadow`: it watches a cluster, or reads what happened in one, and reports what stages would have changed.
package shadow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/exitcode"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/cmd/tranche/snapshotfile"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/shadow"
	"github.com/tranche-dev/tranche/shadow/auditlog"
	"github.com/tranche-dev/tranche/shadow/live"
	"github.com/tranche-dev/tranche/snapshot"
)

const (
	// progressInterval is how often a progress line is printed.
	progressInterval = 10 * time.Second
	// replayShare is the part of the time in which observations are replayed: at most a tenth.
	replayShare = 10
)

type flags struct {
	cluster          query.Flags
	snapshot         snapshotfile.Flags
	auditLog, config string
	duration         time.Duration
	limit            int
	quota            map[string]string
	assumed          corev1.ResourceList
	format           output.Format
	metricsAddress   string
	reportInterval   time.Duration
}

// NewCommand returns the verb of a program of this version.
func NewCommand(version string) *cobra.Command {
	f := &flags{cluster: query.Flags{Version: version}}
	cmd := &cobra.Command{
		Use:   "shadow",
		Short: "Report what stages would gain in a cluster that Kueue manages",
		Long: "Report what JobSets held, what of it was idle and why, and what would have changed if Tranche had admitted them in stages: quota that stays\n" +
			"free, and JobSets that start earlier or later. The report comes from watching the cluster of the kubeconfig until --for has passed or the\n" +
			"program is interrupted, from a snapshot, or from an audit log of the API server. Nothing is written to the cluster.\n\n" +
			"The same arrivals are replayed twice: with each JobSet admitted as a whole, as Kueue does, and in stages. The report has the difference, and how\n" +
			"far the first replay is from what happened.\n\n" +
			"Exit codes: 0 a report was printed, 1 there is no report, 2 bad input.",
		Example: "  tranche shadow --for 8h\n  tranche shadow --snapshot cluster.tar.gz\n  tranche shadow --audit-log audit.log --snapshot queues.yaml -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := f.report(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.format.IsText() {
				return writeText(cmd.OutOrStdout(), report, f.format)
			}
			return f.format.Write(cmd.OutOrStdout(), report)
		},
	}
	f.cluster.AddKubeconfig(cmd)
	cmd.Flags().StringVar(&f.snapshot.Path, "snapshot", "",
		"report on a snapshot (a directory or an archive of tranche snapshot); with --audit-log, the objects that the log need not show, such as manifests of queues")
	cmd.Flags().StringVar(&f.auditLog, "audit-log", "", "report on an audit log of the API server, one event per line, at level RequestResponse; - for standard input")
	cmd.Flags().StringVar(&f.config, "config", "", "configuration file of the manager for the replays; defaults to that of the snapshot, and to the defaults")
	cmd.Flags().DurationVar(&f.duration, "for", 0, "how long to watch the cluster; defaults to until interrupted")
	cmd.Flags().IntVar(&f.limit, "limit", shadow.DefaultLimit, "how many JobSets to keep in memory; those that finished first count only in the sums of what was held")
	cmd.Flags().StringToStringVar(&f.quota, "quota", nil,
		"quota that the replays assume for JobSets that name no LocalQueue, such as nvidia.com/gpu=64; without it they are not replayed")
	cmd.Flags().StringVar(&f.metricsAddress, "metrics-bind-address", "", "address, such as :8080, on which to serve metrics at /metrics while watching; defaults to none")
	cmd.Flags().DurationVar(&f.reportInterval, "report-interval", time.Minute, "with --metrics-bind-address: how often to replay what was observed, at least 1s; less often if replays take long")
	f.format.Add(cmd, output.Wide, output.JSON, output.YAML)
	cmd.MarkFlagsMutuallyExclusive("audit-log", "kubeconfig")
	cmd.MarkFlagsMutuallyExclusive("snapshot", "kubeconfig")
	return cmd
}

// Watches reports whether the flags of the verb let it watch a cluster. Then it ends by itself after a signal: it reports on what it has watched.
func Watches(cmd *cobra.Command) bool {
	return !cmd.Flags().Changed("snapshot") && !cmd.Flags().Changed("audit-log")
}

// report makes the report from the source that the flags name.
func (f *flags) report(ctx context.Context, stdin io.Reader, warnings io.Writer) (*shadow.Report, error) {
	isLive := f.auditLog == "" && f.snapshot.Path == ""
	var wrongQuota error
	f.assumed, wrongQuota = amounts(f.quota)
	switch {
	case f.duration < 0:
		return nil, exitcode.AsBadInput(fmt.Errorf("--for is %s: it must be positive, or 0 for until interrupted", f.duration))
	case wrongQuota != nil:
		return nil, exitcode.AsBadInput(wrongQuota)
	case f.limit < 1:
		return nil, exitcode.AsBadInput(fmt.Errorf("--limit is %d: it must be at least 1", f.limit))
	case f.metricsAddress != "" && !isLive:
		return nil, exitcode.AsBadInput(errors.New("--metrics-bind-address serves metrics while a cluster is watched: leave it out with --snapshot and --audit-log"))
	case f.reportInterval < time.Second:
		return nil, exitcode.AsBadInput(fmt.Errorf("--report-interval is %s: it must be at least 1s", f.reportInterval))
	case f.duration > 0 && !isLive:
		return nil, exitcode.AsBadInput(errors.New("--for is how long to watch a cluster: leave it out with --snapshot and --audit-log"))
	case f.auditLog == snapshotfile.Stream && f.snapshot.Path == snapshotfile.Stream:
		return nil, exitcode.AsBadInput(errors.New("--audit-log and --snapshot are both standard input: name a file for one of them"))
	}
	base, err := f.base(stdin, warnings)
	if err != nil {
		return nil, err
	}
	switch {
	case isLive:
		return f.watch(ctx, base, warnings)
	case f.auditLog != "":
		return f.readAuditLog(base, stdin)
	}
	recorder, err := shadow.RecordOf(base)
	if err != nil {
		return nil, exitcode.AsBadInput(err)
	}
	recorder.AssumeQuota(f.assumed)
	return recorder.Report(base.TakenAt, base.Gaps)
}

// base returns the snapshot and the configuration that the flags name.
func (f *flags) base(stdin io.Reader, warnings io.Writer) (*snapshot.Snapshot, error) {
	s := &snapshot.Snapshot{}
	if f.snapshot.Path != "" {
		var err error
		if s, err = f.snapshot.Read(stdin, warnings); err != nil {
			return nil, err
		}
	}
	if f.config == "" {
		return s, nil
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return nil, exitcode.AsBadInput(fmt.Errorf("read --config: %w", err))
	}
	if s.Configuration, err = configapi.Decode(text); err != nil {
		return nil, exitcode.AsBadInput(fmt.Errorf("%s: %w", f.config, err))
	}
	return s, nil
}

func (f *flags) readAuditLog(base *snapshot.Snapshot, stdin io.Reader) (*shadow.Report, error) {
	in, name := stdin, "standard input"
	if f.auditLog != snapshotfile.Stream {
		file, err := os.Open(f.auditLog)
		if err != nil {
			return nil, exitcode.AsBadInput(fmt.Errorf("read the audit log: %w", err))
		}
		defer file.Close() //nolint:errcheck // the file is only read
		in, name = file, f.auditLog
	}
	log, err := auditlog.Read(name, in, base, f.limit)
	if err != nil {
		return nil, exitcode.AsBadInput(fmt.Errorf("read the audit log: %w", err))
	}
	log.Recorder.AssumeQuota(f.assumed)
	return log.Recorder.Report(log.To, log.Gaps)
}

// amounts reads the assumed quota.
func amounts(texts map[string]string) (corev1.ResourceList, error) {
	all := corev1.ResourceList{}
	for name, text := range texts {
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return nil, fmt.Errorf("--quota %s=%s: write RESOURCE=AMOUNT with an amount such as 64 or 1Ti", name, text)
		}
		all[corev1.ResourceName(name)] = amount
	}
	return all, nil
}

// watch observes the cluster until the time is up or the context is done.
func (f *flags) watch(ctx context.Context, base *snapshot.Snapshot, warnings io.Writer) (*shadow.Report, error) {
	// The report says what cannot be read; the log of client-go would repeat it once a second.
	klog.SetLogger(logr.Discard())
	reader, err := f.connect()
	if err != nil {
		return nil, err
	}
	feed := live.New(&live.Config{Client: reader, Base: base, Limit: f.limit, Assumed: f.assumed})
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	gauges := metrics.NewShadow()
	if f.metricsAddress != "" {
		if err := serveMetrics(watching, f.metricsAddress, gauges, stop); err != nil {
			return nil, err
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- feed.Run(watching) }()
	isSynced := false
	select {
	case err := <-failed:
		if watching.Err() == nil {
			return nil, err
		}
	case <-watching.Done():
	case <-feed.Synced():
		isSynced = true
	}
	if !isSynced {
		return nil, fmt.Errorf("there is no report, because not all objects have been read: %w", context.Cause(watching))
	}
	if err := f.observe(watching, feed, gauges, warnings); err != nil {
		return nil, err
	}
	return feed.Report()
}

// observe prints a line about what was observed from time to time, and sets the metrics, until the time is up or the context is done.
func (f *flags) observe(ctx context.Context, feed *live.Feed, gauges *metrics.Shadow, out io.Writer) error {
	var end <-chan time.Time
	until := "until interrupted"
	if f.duration > 0 {
		timer := time.NewTimer(f.duration)
		defer timer.Stop()
		end, until = timer.C, "for "+f.duration.String()
	}
	var replays <-chan time.Time
	var notBefore time.Time
	if f.metricsAddress != "" {
		ticker := time.NewTicker(f.reportInterval)
		defer ticker.Stop()
		replays = ticker.C
	}
	if _, err := fmt.Fprintf(out, "watching %s\n", until); err != nil {
		return err
	}
	progress := time.NewTicker(progressInterval)
	defer progress.Stop()
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				return cause
			}
			return nil
		case <-end:
			return nil
		case begin := <-replays:
			if begin.Before(notBefore) {
				continue
			}
			report, err := feed.Report()
			if err != nil {
				return err
			}
			gauges.Set(valuesOf(report))
			notBefore = begin.Add(replayShare * time.Since(begin))
		case <-progress.C:
			if _, err := fmt.Fprintln(out, feed.Progress()); err != nil {
				return err
			}
		}
	}
}

func (f *flags) connect() (client.WithWatch, error) {
	_, config, err := query.LoadKubeconfig(f.cluster.Kubeconfig, f.cluster.Version)
	if err != nil {
		return nil, err
	}
	scheme, err := query.NewScheme()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // a handful of watches need no throttling by the client
	reader, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return reader, nil
}
