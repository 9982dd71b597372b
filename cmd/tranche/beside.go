package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	k8sevents "k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/tranche-dev/tranche/admission"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	"github.com/tranche-dev/tranche/controllers/apiwatch"
	"github.com/tranche-dev/tranche/controllers/dashboard"
	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/gangobjects"
	"github.com/tranche-dev/tranche/controllers/groupstart"
	"github.com/tranche-dev/tranche/controllers/jobset"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/controllers/queues"
	"github.com/tranche-dev/tranche/controllers/stagesafety"
	"github.com/tranche-dev/tranche/controllers/takeover"
)

// A basis is what the controllers of both modes are made of.
type basis struct {
	config     *configapi.Configuration
	runner     *engine.Runner
	recorder   k8sevents.EventRecorder
	counts     *metrics.Metrics
	namespaces labels.Selector
	gangs      *gangobjects.Registry
	waiting    *corev1.Container
	fields     *apiwatch.JobSetFields
}

// jobSets returns the configuration of the stage controller.
func (b *basis) jobSets(mgr ctrl.Manager) jobset.Config {
	return jobset.Config{
		Runner: b.runner, Client: mgr.GetClient(), Recorder: b.recorder, Metrics: b.counts, Namespaces: b.namespaces, Gangs: b.gangs, Waiting: b.waiting, Fields: b.fields,
		Devices:          admission.DevicesOf(&b.config.Resources),
		Charges:          admission.ConfigOf(b.config).Charges,
		Retention:        b.config.ObjectRetentionPolicies.Workloads,
		WithoutQueueName: *b.config.ManageJobSetsWithoutQueueName,
		MaxPodPriority:   *b.config.MaxPodPriority,
		Workers:          int(*b.config.Concurrency.Workers.JobSet),
		Releases:         int(*b.config.Concurrency.Releases),
	}
}

// groupStarts returns the configuration of the controller of groups that start together.
func (b *basis) groupStarts() groupstart.Config {
	return groupstart.Config{
		Metrics: b.counts, Namespaces: b.namespaces, WithoutQueueName: *b.config.ManageJobSetsWithoutQueueName, Injected: b.waiting != nil, Server: b.config.GroupStart,
	}
}

// addBesideControllers connects the controllers that run beside Kueue's manager. They write nothing to queues, and nothing to quota Workloads of other
// controllers but the answers of AdmissionChecks.
func addBesideControllers(ctx context.Context, mgr ctrl.Manager, b *basis) error {
	throttle := engine.NewThrottle(b.runner)
	safety, err := stagesafety.SetupWithManager(ctx, mgr, stagesafety.Config{
		Runner: b.runner, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Workers: int(*b.config.Concurrency.Workers.Workload),
	})
	if err != nil {
		return err
	}
	jobSets := b.jobSets(mgr)
	jobSets.Safety = safety
	return errors.Join(
		mgr.Add(b.runner),
		metrics.SetupWithManager(ctx, mgr, metrics.Config{Engine: b.runner, Metrics: b.counts, Version: versionText(), Mode: b.config.Mode}),
		queues.FeedWithManager(ctx, mgr, queues.Config{Runner: b.runner, Devices: admission.DevicesOf(&b.config.Resources)}),
		jobset.SetupWithManager(ctx, mgr, jobSets),
		takeover.SetupWithManager(mgr, takeover.Config{
			Runner: b.runner, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: b.recorder,
		}),
		groupstart.SetupWithManager(ctx, mgr, b.groupStarts()),
		dashboard.SetupWithManager(ctx, mgr, dashboard.Config{Settings: b.config.Dashboard, Engine: throttle, Version: versionText()}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("engine", answers(b.runner)),
	)
}
