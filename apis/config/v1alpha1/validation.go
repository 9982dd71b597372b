package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

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

	// shortestInterval is that of predictions.
	shortestInterval = time.Second

	// maxWaiters is usually more than a process has file descriptors for.
	maxWaiters = 1_000_000
)

// Validate returns the errors in c, each with the path of its field. It expects the defaults to be set.
func (c *Configuration) Validate() field.ErrorList {
	return slices.Concat(
		oneOf(field.NewPath("apiVersion"), c.APIVersion, APIVersion),
		oneOf(field.NewPath("kind"), c.Kind, Kind),
		c.validateMode(),
		c.ClientConnection.validate(field.NewPath("clientConnection")),
		c.Concurrency.validate(field.NewPath("concurrency")),
		c.LeaderElection.validate(field.NewPath("leaderElection")),
		bindAddress(field.NewPath("metrics", "bindAddress"), c.Metrics.BindAddress),
		bindAddress(field.NewPath("health", "healthProbeBindAddress"), c.Health.HealthProbeBindAddress),
		requiredAddress(field.NewPath("visibility", "bindAddress"), c.Visibility.BindAddress),
		requiredAddress(field.NewPath("dashboard", "bindAddress"), c.Dashboard.BindAddress),
		c.ExpectedStart.validate(field.NewPath("expectedStart")),
		c.Logging.validate(field.NewPath("logging")),
		oneOf(field.NewPath("stageAdmission"), c.StageAdmission, StageAdmissionSafe, StageAdmissionReserve, StageAdmissionGreedy),
		c.CoStart.validate(field.NewPath("coStart")),
		c.LookAhead.validate(field.NewPath("lookAhead")),
		c.Preemption.validate(field.NewPath("preemption")),
		podPriority(field.NewPath("maxPodPriority"), c.MaxPodPriority),
		c.Reservation.validate(field.NewPath("reservation")),
		c.Conditions.validate(field.NewPath("conditions")),
		c.Gang.validate(field.NewPath("gang")),
		c.PodGroups.validate(field.NewPath("podGroups")),
		c.GroupStart.validate(field.NewPath("groupStart")),
		c.WaitForPodsReady.validate(field.NewPath("waitForPodsReady")),
		c.FairSharing.validate(field.NewPath("fairSharing")),
		c.AdmissionFairSharing.validate(field.NewPath("admissionFairSharing")),
		c.Resources.validate(field.NewPath("resources")),
		c.FeatureGates.validate(field.NewPath("featureGates")),
		c.ObjectRetentionPolicies.Workloads.validate(field.NewPath("objectRetentionPolicies", "workloads")),
		metav1validation.ValidateLabelSelector(c.ManagedNamespaceSelector, metav1validation.LabelSelectorValidationOptions{}, field.NewPath("managedNamespaceSelector")),
	)
}

// highestPodPriority is the highest value of a PriorityClass that is not one of Kubernetes itself.
const highestPodPriority int32 = 1_000_000_000

func podPriority(path *field.Path, value *int32) field.ErrorList {
	if value == nil || *value >= 0 && *value <= highestPodPriority {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *value, fmt.Sprintf("must be from 0 to %d", highestPodPriority))}
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
	return slices.Concat(
		between(workers.Child("workload"), c.Workers.Workload, 1, maxConcurrency),
		between(workers.Child("jobSet"), c.Workers.JobSet, 1, maxConcurrency),
		between(workers.Child("clusterQueue"), c.Workers.ClusterQueue, 1, maxConcurrency),
		between(workers.Child("localQueue"), c.Workers.LocalQueue, 1, maxConcurrency),
		between(workers.Child("resourceFlavor"), c.Workers.ResourceFlavor, 1, maxConcurrency),
		between(workers.Child("admissionCheck"), c.Workers.AdmissionCheck, 1, maxConcurrency),
		between(path.Child("writers"), c.Writers, 1, maxConcurrency),
		between(path.Child("releases"), c.Releases, 1, maxConcurrency),
	)
}

// validate checks all schedulers: LocalQueues may name other schedulers than the provider.
func (g *Gang) validate(path *field.Path) field.ErrorList {
	return slices.Concat(
		oneOf(path.Child("provider"), g.Provider, GangProviderNone, GangProviderKube, GangProviderCoscheduling,
			GangProviderVolcano, GangProviderKoordinator),
		notNegative(path.Child("diagnoseAfter"), g.DiagnoseAfter),
		subdomain(path.Child("coscheduling", "schedulerName"), g.Coscheduling.SchedulerName),
		between(path.Child("coscheduling", "timeoutSeconds"), g.Coscheduling.TimeoutSeconds, 1, math.MaxInt32),
		subdomain(path.Child("volcano", "schedulerName"), g.Volcano.SchedulerName),
		subdomain(path.Child("volcano", "queue"), g.Volcano.Queue),
		subdomain(path.Child("koordinator", "schedulerName"), g.Koordinator.SchedulerName),
		oneOf(path.Child("koordinator", "mode"), g.Koordinator.Mode, KoordinatorStrict, KoordinatorNonStrict),
		between(path.Child("koordinator", "timeoutSeconds"), g.Koordinator.TimeoutSeconds, 1, math.MaxInt32),
	)
}

func (p *PodGroups) validate(path *field.Path) field.ErrorList {
	return slices.Concat(
		oneOf(path.Child("status"), p.Status, PodGroupStatusManage, PodGroupStatusLeave),
		oneOf(path.Child("afterTimeout"), p.AfterTimeout, PodGroupRequeue, PodGroupStop),
		positive(path.Child("waitingTime"), p.WaitingTime),
	)
}

// subdomain also accepts an empty name.
func subdomain(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return invalid(path, name, validation.IsDNS1123Subdomain(name))
}

// validate checks the times even if the timeouts are off, so that turning them on causes no new errors.
func (w *WaitForPodsReady) validate(path *field.Path) field.ErrorList {
	strategy, strategyPath := &w.RequeuingStrategy, path.Child("requeuingStrategy")
	return slices.Concat(
		positive(path.Child("timeout"), w.Timeout),
		notNegative(path.Child("recoveryTimeout"), w.RecoveryTimeout),
		oneOf(strategyPath.Child("timestamp"), strategy.Timestamp, RequeuingTimestampEviction, RequeuingTimestampCreation),
		between(strategyPath.Child("backoffLimitCount"), strategy.BackoffLimitCount, 0, math.MaxInt32),
		between(strategyPath.Child("backoffBaseSeconds"), strategy.BackoffBaseSeconds, 0, math.MaxInt32),
		between(strategyPath.Child("backoffMaxSeconds"), strategy.BackoffMaxSeconds, 0, math.MaxInt32),
	)
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
	errs := append(notNegative(path.Child("usageHalfLifeTime"), a.UsageHalfLifeTime),
		positive(path.Child("usageSamplingInterval"), a.UsageSamplingInterval)...)
	for _, name := range slices.Sorted(maps.Keys(a.ResourceWeights)) {
		if weight := a.ResourceWeights[name]; weight < 0 || math.IsInf(weight, 0) || math.IsNaN(weight) {
			errs = append(errs, field.Invalid(path.Child("resourceWeights").Key(string(name)), weight, "must be a number that is not negative"))
		}
	}
	return errs
}

func positive(path *field.Path, value *metav1.Duration) field.ErrorList {
	if value == nil || value.Duration > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value.Duration.String(), "must be greater than 0")}
}

// invalid returns an error for each problem of a value.
func invalid(path *field.Path, value string, problems []string) field.ErrorList {
	var errs field.ErrorList
	for _, problem := range problems {
		errs = append(errs, field.Invalid(path, value, problem))
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

// requiredAddress is for servers with a field enable. It checks the address even if the server is off, so that turning it on causes no new errors.
func requiredAddress(path *field.Path, address string) field.ErrorList {
	if address == noListener {
		return field.ErrorList{field.Invalid(path, address, "must be HOST:PORT or :PORT; to disable the server, set enable to false")}
	}
	return bindAddress(path, address)
}

// validate checks the times even if leader election is off, so that turning it on causes no new errors.
func (l *LeaderElection) validate(path *field.Path) field.ErrorList {
	return slices.Concat(
		positive(path.Child("leaseDuration"), l.LeaseDuration),
		positive(path.Child("renewDeadline"), l.RenewDeadline),
		positive(path.Child("retryPeriod"), l.RetryPeriod),
		shorter(path, "renewDeadline", l.RenewDeadline, "leaseDuration", l.LeaseDuration),
		shorter(path, "retryPeriod", l.RetryPeriod, "five sixths of renewDeadline", l.latestRetry()),
		oneOf(path.Child("resourceLock"), l.ResourceLock, resourceLock),
		invalid(path.Child("resourceName"), l.ResourceName, validation.IsDNS1123Subdomain(l.ResourceName)),
		invalid(path.Child("resourceNamespace"), l.ResourceNamespace, validation.IsDNS1123Label(l.ResourceNamespace)),
	)
}

// latestRetry leaves time for the request of a renewal before the one before it expires.
func (l *LeaderElection) latestRetry() *metav1.Duration {
	if l.RenewDeadline == nil {
		return nil
	}
	return &metav1.Duration{Duration: l.RenewDeadline.Duration * 5 / 6}
}

// validate checks the numbers even if nothing is predicted, so that turning it on causes no new errors.
func (e *ExpectedStart) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e.Interval != nil && e.Interval.Duration < shortestInterval {
		errs = append(errs, field.Invalid(path.Child("interval"), e.Interval.Duration.String(), fmt.Sprintf("must be at least %s", shortestInterval)))
	}
	return slices.Concat(
		errs,
		positive(path.Child("horizon"), e.Horizon),
		between(path.Child("first"), e.First, 1, math.MaxInt32),
		between(path.Child("maxWorkloads"), e.MaxWorkloads, 1, math.MaxInt32),
		between(path.Child("writesPerSecond"), e.WritesPerSecond, 1, maxConcurrency),
	)
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
