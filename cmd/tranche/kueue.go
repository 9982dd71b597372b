package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/events"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// oldestKueue is the oldest minor version of Kueue beside which the manager starts.
const oldestKueue = 19

// A kueueWatch ends the manager when Kueue's manager is installed although the mode is not Beside: both would admit in the same queues.
type kueueWatch struct{ cache cache.Informers }

// watchKueue adds a kueueWatch to a manager, or in the mode Beside, in which Kueue's manager may be uninstalled while this one runs, an apiwatch.ProblemWatch.
func watchKueue(mgr ctrl.Manager, mode configapi.Mode) error {
	if mode == configapi.ModeBeside {
		find := func(ctx context.Context) (events.Event, error) { return findKueueProblem(ctx, mgr.GetAPIReader()) }
		return mgr.Add(&apiwatch.ProblemWatch{Find: find, Recorder: mgr.GetEventRecorder("tranche")})
	}
	return mgr.Add(&kueueWatch{mgr.GetCache()})
}

// NeedLeaderElection makes each replica look by itself.
func (*kueueWatch) NeedLeaderElection() bool { return false }

// Start returns when the context ends, or with an error when Kueue's manager was found.
func (w *kueueWatch) Start(ctx context.Context) error {
	found := make(chan error, 1)
	check := func(object any) {
		configuration, ok := object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
		if !ok {
			return
		}
		if err := checkNoKueue([]admissionregistrationv1.ValidatingWebhookConfiguration{*configuration}); err != nil {
			select {
			case found <- err:
			default: // another has been found
			}
		}
	}
	configurations, err := w.cache.GetInformer(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	if err == nil {
		_, err = configurations.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: check, UpdateFunc: func(_, after any) { check(after) }})
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch the configurations of webhooks: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-found:
		return err
	}
}

func listWebhooks(ctx context.Context, reader client.Reader) ([]admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	var webhooks admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := reader.List(ctx, &webhooks); err != nil {
		return nil, fmt.Errorf("list the configurations of webhooks: %w", err)
	}
	return webhooks.Items, nil
}

// checkNoKueue returns an error that names the webhooks of Kueue's manager, if there are any. Kueue installs them together with its manager, and
// without the manager the API server rejects Jobs.
func checkNoKueue(webhooks []admissionregistrationv1.ValidatingWebhookConfiguration) error {
	for i := range webhooks {
		if slices.ContainsFunc(webhooks[i].Webhooks, servesKueue) {
			return fmt.Errorf("mode is %s in the configuration, but ValidatingWebhookConfiguration %s is that of Kueue's manager, which would admit in the same queues: "+
				"install config/beside with mode %s; or, to replace Kueue, stop its manager and delete its webhook configurations", configapi.ModeInstead, webhooks[i].Name, configapi.ModeBeside)
		}
	}
	return nil
}

// checkMode checks that Kueue's manager is installed in the mode Beside, and in no other mode.
func checkMode(ctx context.Context, reader client.Reader, mode configapi.Mode, kueueManager string) error {
	if mode == configapi.ModeBeside {
		return checkKueue(ctx, reader, kueueManager)
	}
	webhooks, err := listWebhooks(ctx, reader)
	if err != nil {
		return err
	}
	return checkNoKueue(webhooks)
}

// checkKueue returns an error if Kueue's manager is not installed, or is too old. Beside it, nothing else admits the quota Workloads of stages.
func checkKueue(ctx context.Context, reader client.Reader, user string) error {
	webhooks, err := listWebhooks(ctx, reader)
	if err != nil {
		return err
	}
	if err := checkInstalled(webhooks); err != nil {
		return err
	}
	version, err := takeover.KueueVersion(ctx, reader, user)
	if err != nil {
		return fmt.Errorf("find the version of Kueue's manager: %w", err)
	}
	return checkVersion(version, user)
}

// isInstalled reports whether one of the configurations is that of Kueue's manager.
func isInstalled(webhooks []admissionregistrationv1.ValidatingWebhookConfiguration) bool {
	for i := range webhooks {
		if slices.ContainsFunc(webhooks[i].Webhooks, servesKueue) {
			return true
		}
	}
	return false
}

// checkInstalled checks that Kueue's manager is installed.
func checkInstalled(webhooks []admissionregistrationv1.ValidatingWebhookConfiguration) error {
	if isInstalled(webhooks) {
		return nil
	}
	return fmt.Errorf("mode is %s in the configuration, but no ValidatingWebhookConfiguration is that of Kueue's manager, which admits in this mode: "+
		"install Kueue 0.19 or later; or, to replace Kueue, install config/default with mode %s", configapi.ModeBeside, configapi.ModeInstead)
}

// checkVersion checks that Kueue's manager is not older than the first version beside which Tranche runs. One that is not known may be.
func checkVersion(version, user string) error {
	minor, found := strings.CutPrefix(version, "v0.")
	minor, _, _ = strings.Cut(minor, ".")
	if number, err := strconv.Atoi(minor); !found || err != nil || number >= oldestKueue {
		return nil //nolint:nilerr // another form of version is not known
	}
	return fmt.Errorf("mode is %s in the configuration, but the Deployment of Kueue's manager, which runs as user %q, has version %s: install Kueue 0.%d or later",
		configapi.ModeBeside, user, version, oldestKueue)
}

// servesKueue reports whether Kueue's manager answers a webhook about ClusterQueues. Others may validate ClusterQueues, too.
func servesKueue(w admissionregistrationv1.ValidatingWebhook) bool {
	path := ""
	switch service, address := w.ClientConfig.Service, w.ClientConfig.URL; {
	case service != nil && service.Path != nil:
		path = *service.Path
	case address != nil:
		if parsed, err := url.Parse(*address); err == nil {
			path = parsed.Path
		}
	}
	return strings.HasPrefix(path, "/validate-kueue-x-k8s-io-") && validatesQueues(w)
}
