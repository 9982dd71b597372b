package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// resourceLock is the only lock that client-go still offers.
	resourceLock = "leases"

	// noListener turns a listener off, as in controller-runtime.
	noListener = "0"

	// maxConcurrency is far above useful values; it catches a number in the wrong field.
	maxConcurrency = 1000

	maxVerbosity = 10

	// maxWaiters is usually more than a process has file descriptors for.
	maxWaiters = 1_000_000
)

// Validate returns the errors in c, each with the path of its field. It expects the defaults to be set.
func (c *Configuration) Validate() field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, oneOf(field.NewPath("apiVersion"), c.APIVersion, APIVersion)...)
	errs = append(errs, oneOf(field.NewPath("kind"), c.Kind, Kind)...)
	errs = append(errs, c.ClientConnection.validate(field.NewPath("clientConnection"))...)
	errs = append(errs, c.Concurrency.validate(field.NewPath("concurrency"))...)
	errs = append(errs, c.LeaderElection.validate(field.NewPath("leaderElection"))...)
	errs = append(errs, bindAddress(field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress)...)
	errs = append(errs, bindAddress(field.NewPath("health", "healthProbeBindAddress"), c.Health.HealthProbeBindAddress)...)
	errs = append(errs, c.Visibility.validate(field.NewPath("visibility"))...)
	errs = append(errs, c.Logging.validate(field.NewPath("logging"))...)
	errs = append(errs, oneOf(field.NewPath("stageAdmission"), c.StageAdmission,
		StageAdmissionSafe, StageAdmissionReserve, StageAdmissionGreedy)...)
	errs = append(errs, c.Gang.validate(field.NewPath("gang"))...)
	errs = append(errs, c.PodGroups.validate(field.NewPath("podGroups"))...)
	errs = append(errs, c.GroupStart.validate(field.NewPath("groupStart"))...)
	errs = append(errs, c.WaitForPodsReady.validate(field.NewPath("waitForPodsReady"))...)
	errs = append(errs, c.FairSharing.validate(field.NewPath("fairSharing"))...)
	errs = append(errs, c.AdmissionFairSharing.validate(field.NewPath("admissionFairSharing"))...)
	errs = append(errs, c.Resources.validate(field.NewPath("resources"))...)
	errs = append(errs, c.FeatureGates.validate(field.NewPath("featureGates"))...)
	errs = append(errs, c.ObjectRetentionPolicies.Workloads.validate(field.NewPath("objectRetentionPolicies", "workloads"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(c.ManagedNamespaceSelector,
		metav1validation.LabelSelectorValidationOptions{}, field.NewPath("managedNamespaceSelector"))...)
	return errs
}

func (c *ClientConnection) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.QPS != nil && (*c.QPS <= 0 || math.IsInf(float64(*c.QPS), 0) || math.IsNaN(float64(*c.QPS))) {
		errs = append(errs, field.Invalid(path.Child("qps"), *c.QPS, "must be greater than 0"))
	}
	if c.Burst != nil && *c.Burst < 1 {
		errs = append(errs, field.Invalid(path.Child("burst"), *c.Burst, "must be at least 1"))
	}
	return errs
}

func (c *Concurrency) validate(path *field.Path) field.ErrorList {
	workers := path.Child("workers")
	var errs field.ErrorList
	errs = append(errs, between(workers.Child("workload"), c.Workers.Workload, 1, maxConcurrency)...)
	errs = append(errs, between(workers.Child("jobSet"), c.Workers.JobSet, 1, maxConcurrency)...)
	errs = append(errs, between(workers.Child("clusterQueue"), c.Workers.ClusterQueue, 1, maxConcurrency)...)
	errs = append(errs, between(workers.Child("localQueue"), c.Workers.LocalQueue, 1, maxConcurrency)...)
	errs = append(errs, between(workers.Child("resourceFlavor"), c.Workers.ResourceFlavor, 1, maxConcurrency)...)
	errs = append(errs, between(workers.Child("admissionCheck"), c.Workers.AdmissionCheck, 1, maxConcurrency)...)
	errs = append(errs, between(path.Child("writers"), c.Writers, 1, maxConcurrency)...)
	errs = append(errs, between(path.Child("releases"), c.Releases, 1, maxConcurrency)...)
	return errs
}

// validate checks all schedulers: LocalQueues may name other schedulers than the provider.
func (g *Gang) validate(path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("provider"), g.Provider, GangProviderNone, GangProviderKube, GangProviderCoscheduling,
		GangProviderVolcano, GangProviderKoordinator, GangProviderKAI)
	errs = append(errs, notNegative(path.Child("diagnoseAfter"), g.DiagnoseAfter)...)
	errs = append(errs, subdomain(path.Child("coscheduling", "schedulerName"), g.Coscheduling.SchedulerName)...)
	errs = append(errs, between(path.Child("coscheduling", "timeoutSeconds"), g.Coscheduling.TimeoutSeconds, 1, math.MaxInt32)...)
	errs = append(errs, subdomain(path.Child("volcano", "schedulerName"), g.Volcano.SchedulerName)...)
	errs = append(errs, subdomain(path.Child("volcano", "queue"), g.Volcano.Queue)...)
	errs = append(errs, subdomain(path.Child("koordinator", "schedulerName"), g.Koordinator.SchedulerName)...)
	errs = append(errs, oneOf(path.Child("koordinator", "mode"), g.Koordinator.Mode, KoordinatorStrict, KoordinatorNonStrict)...)
	errs = append(errs, between(path.Child("koordinator", "timeoutSeconds"), g.Koordinator.TimeoutSeconds, 1, math.MaxInt32)...)
	errs = append(errs, subdomain(path.Child("kai", "schedulerName"), g.KAI.SchedulerName)...)
	if problems := validation.IsValidLabelValue(g.KAI.Queue); len(problems) > 0 {
		errs = append(errs, field.Invalid(path.Child("kai", "queue"), g.KAI.Queue, problems[0]))
	}
	return errs
}

func (p *PodGroups) validate(path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("status"), p.Status, PodGroupStatusManage, PodGroupStatusLeave)
	errs = append(errs, oneOf(path.Child("afterTimeout"), p.AfterTimeout, PodGroupRequeue, PodGroupStop)...)
	if p.WaitingTime != nil && p.WaitingTime.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("waitingTime"), p.WaitingTime.Duration.String(), "must be greater than 0"))
	}
	return errs
}

// subdomain also accepts an empty name.
func subdomain(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	var errs field.ErrorList
	for _, problem := range validation.IsDNS1123Subdomain(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

// validate checks the times even if the timeouts are off, so that turning them on causes no new errors.
func (w *WaitForPodsReady) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if w.Timeout != nil && w.Timeout.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("timeout"), w.Timeout.Duration.String(), "must be greater than 0"))
	}
	errs = append(errs, notNegative(path.Child("recoveryTimeout"), w.RecoveryTimeout)...)
	strategy, path := &w.RequeuingStrategy, path.Child("requeuingStrategy")
	errs = append(errs, oneOf(path.Child("timestamp"), strategy.Timestamp, RequeuingTimestampEviction, RequeuingTimestampCreation)...)
	errs = append(errs, between(path.Child("backoffLimitCount"), strategy.BackoffLimitCount, 0, math.MaxInt32)...)
	errs = append(errs, between(path.Child("backoffBaseSeconds"), strategy.BackoffBaseSeconds, 0, math.MaxInt32)...)
	errs = append(errs, between(path.Child("backoffMaxSeconds"), strategy.BackoffMaxSeconds, 0, math.MaxInt32)...)
	return errs
}

// validate accepts only useful lists: the strategies are tried in one order only.
func (f *FairSharing) validate(path *field.Path) field.ErrorList {
	if f == nil {
		return nil
	}
	path = path.Child("preemptionStrategies")
	if len(f.PreemptionStrategies) == 0 {
		return field.ErrorList{field.Required(path, fmt.Sprintf("must be %s, %s, or both in this order", LessThanOrEqualToFinalShare, LessThanInitialShare))}
	}
	var errs field.ErrorList
	for i, strategy := range f.PreemptionStrategies {
		errs = append(errs, oneOf(path.Index(i), strategy, LessThanOrEqualToFinalShare, LessThanInitialShare)...)
	}
	both := []PreemptionStrategy{LessThanOrEqualToFinalShare, LessThanInitialShare}
	if len(errs) == 0 && len(f.PreemptionStrategies) > 1 && !slices.Equal(f.PreemptionStrategies, both) {
		errs = append(errs, field.Invalid(path, f.PreemptionStrategies, fmt.Sprintf("must be one strategy, or %s and then %s", both[0], both[1])))
	}
	return errs
}

func (a *AdmissionFairSharing) validate(path *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	errs := notNegative(path.Child("usageHalfLifeTime"), a.UsageHalfLifeTime)
	if a.UsageSamplingInterval != nil && a.UsageSamplingInterval.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("usageSamplingInterval"), a.UsageSamplingInterval.Duration.String(), "must be greater than 0"))
	}
	for _, name := range slices.Sorted(maps.Keys(a.ResourceWeights)) {
		if weight := a.ResourceWeights[name]; weight < 0 || math.IsInf(weight, 0) || math.IsNaN(weight) {
			errs = append(errs, field.Invalid(path.Child("resourceWeights").Key(string(name)), weight, "must be a number that is not negative"))
		}
	}
	return errs
}

func notNegative(path *field.Path, value *metav1.Duration) field.ErrorList {
	if value == nil || value.Duration >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value.Duration.String(), "must not be negative")}
}

// validate requires a host in the address for the pods: the host name of the manager is no default.
func (g *GroupStart) validate(path *field.Path) field.ErrorList {
	errs := bindAddress(path.Child("bindAddress"), g.BindAddress)
	errs = append(errs, between(path.Child("maxWaiters"), g.MaxWaiters, 1, maxWaiters)...)
	if host, port, err := net.SplitHostPort(g.Address); err != nil || len(validation.IsDNS1123Subdomain(host)) > 0 && net.ParseIP(host) == nil {
		errs = append(errs, field.Invalid(path.Child("address"), g.Address, "must be HOST:PORT"))
	} else if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		errs = append(errs, field.Invalid(path.Child("address"), g.Address, "the port must be a number from 1 to 65535"))
	}
	return errs
}

// validate checks the address even if the server is off, so that turning it on causes no new errors.
func (v *Visibility) validate(path *field.Path) field.ErrorList {
	path = path.Child("bindAddress")
	if v.BindAddress == noListener {
		return field.ErrorList{field.Invalid(path, v.BindAddress, "must be HOST:PORT or :PORT; to disable the API, set enable to false")}
	}
	return bindAddress(path, v.BindAddress)
}

// validate checks the times even if leader election is off, so that turning it on causes no new errors.
func (l *LeaderElection) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, d := range []struct {
		name  string
		value *metav1.Duration
	}{{"leaseDuration", l.LeaseDuration}, {"renewDeadline", l.RenewDeadline}, {"retryPeriod", l.RetryPeriod}} {
		if d.value != nil && d.value.Duration <= 0 {
			errs = append(errs, field.Invalid(path.Child(d.name), d.value.Duration.String(), "must be greater than 0"))
		}
	}
	errs = append(errs, shorter(path, "renewDeadline", l.RenewDeadline, "leaseDuration", l.LeaseDuration)...)
	errs = append(errs, shorter(path, "retryPeriod", l.RetryPeriod, "renewDeadline", l.RenewDeadline)...)
	errs = append(errs, oneOf(path.Child("resourceLock"), l.ResourceLock, resourceLock)...)
	for _, msg := range validation.IsDNS1123Subdomain(l.ResourceName) {
		errs = append(errs, field.Invalid(path.Child("resourceName"), l.ResourceName, msg))
	}
	for _, msg := range validation.IsDNS1123Label(l.ResourceNamespace) {
		errs = append(errs, field.Invalid(path.Child("resourceNamespace"), l.ResourceNamespace, msg))
	}
	return errs
}

func (l *Logging) validate(path *field.Path) field.ErrorList {
	return append(between(path.Child("verbosity"), l.Verbosity, 0, maxVerbosity),
		oneOf(path.Child("format"), l.Format, LogJSON, LogText)...)
}

func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func between(path *field.Path, value *int32, low, high int32) field.ErrorList {
	if value == nil || low <= *value && *value <= high {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be between %d and %d", low, high))}
}

// shorter returns no error if the limit itself is invalid.
func shorter(path *field.Path, name string, value *metav1.Duration, limitName string, limit *metav1.Duration) field.ErrorList {
	if value == nil || limit == nil || limit.Duration <= 0 || value.Duration < limit.Duration {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child(name), value.Duration.String(),
		fmt.Sprintf("must be less than %s, which is %s", limitName, limit.Duration))}
}

func bindAddress(path *field.Path, value string) field.ErrorList {
	if value == noListener {
		return nil
	}
	_, port, err := net.SplitHostPort(value)
	if err != nil {
		return field.ErrorList{field.Invalid(path, value, "must be HOST:PORT or :PORT, or 0 to disable it")}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return field.ErrorList{field.Invalid(path, value, "the port must be a number from 0 to 65535")}
	}
	return nil
}
