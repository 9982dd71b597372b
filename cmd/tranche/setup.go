package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	configapi "github.com/tranche-dev/tranche/apis/config/v1alpha1"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

// newScheme knows every kind that the manager reads or writes.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

func newLogger(config *configapi.Configuration) logr.Logger {
	return zap.New(zap.UseDevMode(config.Logging.Format == configapi.LogText), zap.Level(zapLevel(*config.Logging.Verbosity)))
}

// newManager makes the manager with a cache of what it needs and no more.
func newManager(restConfig *rest.Config, config *configapi.Configuration) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	ofJobSets, err := labels.NewRequirement(jobset.JobSetUIDKey, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	selector := labels.NewSelector().Add(*ofJobSets)
	election := config.LeaderElection
	return ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                *election.LeaderElect,
		LeaderElectionID:              election.ResourceName,
		LeaderElectionNamespace:       election.ResourceNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &election.LeaseDuration.Duration,
		RenewDeadline:                 &election.RenewDeadline.Duration,
		RetryPeriod:                   &election.RetryPeriod.Duration,
		Metrics:                       metricsserver.Options{BindAddress: config.Metrics.BindAddress},
		HealthProbeBindAddress:        config.Health.HealthProbeBindAddress,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Label: selector, Transform: stripPod},
			},
		},
	})
}

// stripPod keeps of a pod what tells whether it is terminal, whose it is, and whether it waits for a node.
func stripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName},
		Status: corev1.PodStatus{Phase: pod.Status.Phase},
	}, nil
}

// checkGuards makes sure that the guards know this manager. If they took it for anybody else they would turn each of its releases
// into a no-op, without an error.
func checkGuards(ctx context.Context, restConfig *rest.Config, config *configapi.Configuration) error {
	c, err := client.New(restConfig, client.Options{})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	var guards corev1.ConfigMap
	key := client.ObjectKey{Namespace: apis.SystemNamespace, Name: apis.GuardsConfigMap}
	if err := c.Get(ctx, key, &guards); err != nil {
		return fmt.Errorf("read the parameters of the guards, ConfigMap %s: %w; install config/policies first", key, err)
	}
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review); err != nil {
		return fmt.Errorf("ask the API server for the manager's own name: %w", err)
	}
	if self := review.Status.UserInfo.Username; guards.Data["manager"] != self {
		return fmt.Errorf("the guards take %q for the manager, but this manager is %q: set data.manager of ConfigMap %s to that name, or run the manager as the other",
			guards.Data["manager"], self, key)
	}
	if held := guards.Data["manageJobSetsWithoutQueueName"] == "true"; held != *config.ManageJobSetsWithoutQueueName {
		return fmt.Errorf("manageJobSetsWithoutQueueName is %t in the configuration, but %t in ConfigMap %s: make them equal",
			*config.ManageJobSetsWithoutQueueName, held, key)
	}
	return checkGangs(&guards, &config.Gang)
}

// checkGangs makes sure that the pods of gangs go to the scheduler that is told of them: Jobs are made by what the guards know.
func checkGangs(guards *corev1.ConfigMap, gangs *configapi.Gang) error {
	key := client.ObjectKeyFromObject(guards)
	if named := cmp.Or(guards.Data["gangProvider"], string(configapi.GangProviderNone)); named != string(gangs.Provider) {
		return fmt.Errorf("gang.provider is %s in the configuration, but gangProvider is %q in ConfigMap %s: make them equal", gangs.Provider, named, key)
	}
	byDefault := configapi.Configuration{}
	byDefault.SetDefaults()
	wanted := gangs.SchedulerName(gangs.Provider)
	if named := cmp.Or(guards.Data["gangSchedulerName"], byDefault.Gang.SchedulerName(gangs.Provider)); named != wanted {
		return fmt.Errorf("the schedulerName of %s is %q in the configuration, but gangSchedulerName is %q in ConfigMap %s: make them equal",
			gangs.Provider, wanted, named, key)
	}
	return nil
}

// zapLevel turns our verbosity, which grows with detail, into zap's level, which falls.
func zapLevel(verbosity int32) zapcore.Level {
	return zapcore.Level(-verbosity) //nolint:gosec // the configuration allows 0 to 10
}
