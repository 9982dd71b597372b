package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/cmd/tranche/garbage"
	"github.com/tranche-dev/tranche/cmd/tranche/leader"
	"github.com/tranche-dev/tranche/cmd/tranche/logger"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/dashboard"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/forecast"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/controllers/groupstart"
	"github.com/tranche-dev/tranche/controllers/jobset"
	"github.com/tranche-dev/tranche/controllers/leftover"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/controllers/podgang"
	"github.com/tranche-dev/tranche/controllers/queuedjob"
	"github.com/tranche-dev/tranche/controllers/queues"
	"github.com/tranche-dev/tranche/controllers/quotaaudit"
	"github.com/tranche-dev/tranche/controllers/quotaworkload"
	"github.com/tranche-dev/tranche/controllers/visibility"
)

const readyTimeout = 5 * time.Second

// managerFlags are those of `tranche manager`.
type managerFlags struct {
	config, kubeconfig string
}

func newManagerCommand() *cobra.Command {
	var flags managerFlags
	cmd := &cobra.Command{
		Use:   "manager",
		Short: "Run the manager",
		Long: "Run the manager, which plans the stages of queued JobSets, admits each stage when its quota fits, and releases its Jobs.\n" +
			"The manager needs the permissions in config/rbac, and must run as the user that the ConfigMap tranche-guards names.\n\n" +
			"Exit code: 0 if a signal stopped it; 1 after an error; 2 on wrong flags.",
		Example: "  tranche manager --config /etc/tranche/config.yaml\n  tranche manager --config config.yaml --kubeconfig ~/.kube/config",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runManager(cmd.Context(), flags)
		},
	}
	cmd.Flags().StringVar(&flags.config, "config", "", "file with a Configuration (config.tranche.dev/v1alpha1); without it, all fields have their defaults")
	cmd.Flags().StringVar(&flags.kubeconfig, "kubeconfig", "", "kubeconfig file; defaults to $KUBECONFIG, then to the ServiceAccount of the pod")
	return cmd
}

func runManager(ctx context.Context, flags managerFlags) error {
	config, err := configapi.Load(flags.config)
	if err != nil {
		return err
	}
	garbage.Let(50) // most of the heap are objects that stay
	log := logger.New(&config.Logging)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	_, restConfig, err := query.LoadKubeconfig(flags.kubeconfig, versionText())
	if err != nil {
		return err
	}
	restConfig.QPS, restConfig.Burst = *config.ClientConnection.QPS, int(*config.ClientConnection.Burst)
	crds, err := newCRDCheck(restConfig, config.Mode)
	if err != nil {
		return err
	}
	if err := crds.missing(); err != nil {
		return err
	}
	waiting, err := checkGuards(ctx, restConfig, config)
	if err != nil {
		return err
	}
	mgr, err := newManager(restConfig, config) //nolint:contextcheck // the Fence ends by its own cause, whatever ends ctx
	if err != nil {
		return fmt.Errorf("set up the manager: %w", err)
	}
	if mgr, err = servePorts(ctx, mgr, config); err != nil {
		return fmt.Errorf("set up the ports: %w", err)
	}
	counts := metrics.New(metrics.Replica{Elected: mgr.Elected(), LeaderElection: *config.LeaderElection.LeaderElect})
	if err := addControllers(ctx, mgr, config, waiting, counts); err != nil {
		return fmt.Errorf("set up the controllers: %w", err)
	}
	if err := watchKueue(mgr, config.Mode); err != nil {
		return fmt.Errorf("set up the search for Kueue's manager: %w", err)
	}
	if err := mgr.AddReadyzCheck("crds", crds.ready); err != nil {
		return fmt.Errorf("set up the readiness check: %w", err)
	}
	ctrl.Log.WithName("tranche").Info("Starting", "version", versionText())
	return mgr.Start(ctx)
}

// addControllers connects all controllers with the one engine.
func addControllers(ctx context.Context, mgr ctrl.Manager, config *configapi.Configuration, waiting *corev1.Container, counts *metrics.Metrics) error {
	namespaces, err := metav1.LabelSelectorAsSelector(config.ManagedNamespaceSelector)
	if err != nil {
		return fmt.Errorf("managedNamespaceSelector: %w", err)
	}
	recorder := mgr.GetEventRecorder("tranche")
	runner, err := newRunner(mgr, config, recorder, counts)
	if err != nil {
		return err
	}
	mgr = leader.DecideFirst(mgr, runner.Decided())
	watcher, err := apiwatch.SetupWithManager(mgr)
	if err != nil {
		return err
	}
	// LocalQueues may name other schedulers than the configuration, so all schedulers are checked.
	gangs, err := gangobjects.New(&config.Gang, mgr.GetCache(), watcher)
	if err != nil {
		return err
	}
	b := &basis{config: config, runner: runner, recorder: recorder, counts: counts, namespaces: namespaces, gangs: gangs, waiting: waiting, fields: apiwatch.NewJobSetFields(mgr.GetCache(), counts)}
	if err := b.fields.SetupWithManager(mgr); err != nil {
		return err
	}
	if config.Mode == configapi.ModeBeside {
		return addBesideControllers(ctx, mgr, b)
	}
	jobSets := b.jobSets(mgr)
	if jobSets.ExpectedStarts, err = predictStarts(mgr, config, counts); err != nil {
		return err
	}
	workers, throttle := config.Concurrency.Workers, engine.NewThrottle(runner)
	return errors.Join(
		mgr.Add(runner),
		metrics.SetupWithManager(ctx, mgr, metrics.Config{Engine: runner, Metrics: counts, Version: versionText(), Mode: config.Mode}),
		queues.SetupWithManager(ctx, mgr, queues.Config{Runner: runner, Devices: admission.DevicesOf(&config.Resources), Workers: workers}),
		quotaworkload.SetupWithManager(ctx, mgr, quotaworkload.Config{
			Runner: runner, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: recorder,
			PodsReady: config.WaitForPodsReady, Gates: config.FeatureGates, Workers: int(*workers.Workload),
		}),
		jobset.SetupWithManager(ctx, mgr, jobSets),
		queuedjob.SetupWithManager(mgr, queuedjob.Config{
			Runner: runner, Client: mgr.GetClient(), Recorder: recorder, Metrics: counts, Namespaces: namespaces,
			Devices: admission.DevicesOf(&config.Resources), Charges: admission.ConfigOf(config).Charges,
			Retention: config.ObjectRetentionPolicies.Workloads, MaxPodPriority: *config.MaxPodPriority, Workers: int(*workers.JobSet),
		}),
		b.addGangsAndAudit(ctx, mgr, watcher),
		groupstart.SetupWithManager(ctx, mgr, b.groupStarts()),
		leftover.SetupWithManager(mgr, leftover.Config{Runner: runner, Client: mgr.GetClient(), Cache: mgr.GetCache(), Live: mgr.GetAPIReader(), Recorder: recorder, Namespaces: namespaces}),
		visibility.SetupWithManager(mgr, throttle, config.Visibility),
		dashboard.SetupWithManager(ctx, mgr, dashboard.Config{
			Settings: config.Dashboard, Engine: throttle, Search: searchLetIn(mgr.GetCache(), config), Version: versionText(),
		}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("engine", answers(runner)),
	)
}

// addGangsAndAudit connects the controller of gangs of pods, and the quota audit, which counts these pods.
func (b *basis) addGangsAndAudit(ctx context.Context, mgr ctrl.Manager, resources apiwatch.Lister) error {
	pods, err := podgang.NewPodCache(mgr)
	if err != nil {
		return err
	}
	charges, workers := admission.ConfigOf(b.config), b.config.Concurrency
	return errors.Join(
		podgang.SetupWithManager(ctx, mgr, podgang.Config{
			Runner: b.runner, Recorder: b.recorder, Metrics: b.counts, Pods: pods, Resources: resources, Namespaces: b.namespaces,
			Requeuing: b.config.WaitForPodsReady.RequeuingStrategy, Devices: charges.Devices, Retention: b.config.ObjectRetentionPolicies.Workloads,
			Status: b.config.PodGroups.Status, Gangs: gangSettings(&b.config.PodGroups), MaxPodPriority: *b.config.MaxPodPriority,
			Workers: int(*workers.Workers.JobSet), Releases: int(*workers.Releases),
		}),
		quotaaudit.SetupWithManager(mgr, quotaaudit.Config{
			Engine: b.runner, Cache: mgr.GetCache(), GangPods: pods, Live: mgr.GetAPIReader(), Recorder: b.recorder, Metrics: b.counts, Namespaces: b.namespaces,
			Charges: charges.Charges, Devices: charges.Devices,
		}),
	)
}

// newRunner returns what runs the engine.
func newRunner(mgr ctrl.Manager, config *configapi.Configuration, recorder events.EventRecorder, counts *metrics.Metrics) (*engine.Runner, error) {
	core, err := admission.New(admission.ConfigOf(config))
	if err != nil {
		return nil, err
	}
	return engine.NewRunner(engine.Config{
		Engine: core, Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Recorder: recorder, Metrics: counts,
		Elected: mgr.Elected(), Writers: int(*config.Concurrency.Writers), Gates: config.FeatureGates, Beside: config.Mode == configapi.ModeBeside,
		SettleAfter: config.Conditions.SettleAfter.Duration,
	})
}

// predictStarts predicts when waiting stages start. It returns nil if the configuration disables that.
func predictStarts(mgr ctrl.Manager, config *configapi.Configuration, counts *metrics.Metrics) (jobset.ExpectedStarts, error) {
	if !*config.ExpectedStart.Enable {
		return nil, nil //nolint:nilnil // nothing is predicted
	}
	return forecast.SetupWithManager(mgr, forecast.Config{Cache: mgr.GetCache(), Configuration: config, Metrics: counts})
}

// answers returns a check that the engine answers.
func answers(runner *engine.Runner) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		return runner.View(ctx, func(*admission.Engine) {})
	}
}
