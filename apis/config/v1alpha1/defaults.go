package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/apis"
)

// SetDefaults fills in every field that is not set. Afterwards only those pointers in c are nil whose absence has a meaning:
// FairSharing, AdmissionFairSharing and BackoffLimitCount.
func (c *Configuration) SetDefaults() {
	setString(&c.APIVersion, APIVersion)
	setString(&c.Kind, Kind)
	setString(&c.Mode, ModeInstead)
	set(&c.ClientConnection.QPS, 1000)
	set(&c.ClientConnection.Burst, 2000)
	c.Concurrency.setDefaults()
	c.LeaderElection.setDefaults()
	c.Metrics.setDefaults()
	setString(&c.Health.HealthProbeBindAddress, ":8081")
	set(&c.Visibility.Enable, false)
	setString(&c.Visibility.BindAddress, ":8082")
	set(&c.ExpectedStart.Enable, c.Mode != ModeBeside)
	c.ExpectedStart.setDefaults()
	set(&c.Dashboard.Enable, false)
	setString(&c.Dashboard.BindAddress, ":8084")
	set(&c.Logging.Verbosity, 0)
	setString(&c.Logging.Format, LogJSON)
	setString(&c.StageAdmission, StageAdmissionSafe)
	set(&c.CoStart.Enable, true)
	set(&c.CoStart.ReserveFor, metav1.Duration{Duration: 5 * time.Minute})
	c.LookAhead.setDefaults()
	c.Preemption.setDefaults()
	set(&c.MaxPodPriority, highestPodPriority)
	setString(&c.Reservation.After, apis.Never)
	set(&c.Conditions.SettleAfter, metav1.Duration{Duration: time.Second})
	c.Gang.setDefaults()
	setString(&c.PodGroups.Status, PodGroupStatusManage)
	setString(&c.PodGroups.AfterTimeout, PodGroupRequeue)
	set(&c.PodGroups.WaitingTime, metav1.Duration{Duration: 10 * time.Minute})
	setString(&c.GroupStart.BindAddress, ":8083")
	setString(&c.GroupStart.Address, "tranche-barrier."+apis.SystemNamespace+".svc:8083")
	set(&c.GroupStart.MaxWaiters, 20000)
	c.WaitForPodsReady.setDefaults()
	if c.AdmissionFairSharing != nil {
		set(&c.AdmissionFairSharing.UsageHalfLifeTime, metav1.Duration{})
		set(&c.AdmissionFairSharing.UsageSamplingInterval, metav1.Duration{Duration: 5 * time.Minute})
	}
	for i := range c.Resources.Transformations {
		setString(&c.Resources.Transformations[i].Strategy, Retain)
	}
	set(&c.ManagedNamespaceSelector, metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key:      corev1.LabelMetadataName,
			Operator: metav1.LabelSelectorOpNotIn,
			Values:   []string{metav1.NamespaceSystem, apis.SystemNamespace},
		}},
	})
	set(&c.ManageJobSetsWithoutQueueName, false)
}

func (m *Metrics) setDefaults() {
	set(&m.Secure, true)
	if *m.Secure {
		setString(&m.BindAddress, ":8443")
	}
	setString(&m.BindAddress, ":8080")
}

func (e *ExpectedStart) setDefaults() {
	set(&e.Interval, metav1.Duration{Duration: time.Minute})
	set(&e.Horizon, metav1.Duration{Duration: 7 * 24 * time.Hour})
	set(&e.First, 10)
	set(&e.MaxWorkloads, 10_000)
	set(&e.WritesPerSecond, 10)
}

func (c *Concurrency) setDefaults() {
	set(&c.Workers.Workload, 8)
	set(&c.Workers.JobSet, 8)
	set(&c.Workers.ClusterQueue, 2)
	set(&c.Workers.LocalQueue, 2)
	set(&c.Workers.ResourceFlavor, 1)
	set(&c.Workers.AdmissionCheck, 1)
	set(&c.Writers, 16)
	set(&c.Releases, 8)
}

func (g *Gang) setDefaults() {
	setString(&g.Provider, GangProviderNone)
	set(&g.DiagnoseAfter, metav1.Duration{Duration: time.Minute})
	setString(&g.Coscheduling.SchedulerName, apis.CoschedulingScheduler)
	setString(&g.Volcano.SchedulerName, apis.VolcanoScheduler)
	setString(&g.Koordinator.SchedulerName, apis.KoordinatorScheduler)
	setString(&g.Koordinator.Mode, KoordinatorStrict)
}

func (w *WaitForPodsReady) setDefaults() {
	set(&w.Enable, *w != WaitForPodsReady{})
	set(&w.Timeout, metav1.Duration{Duration: 30 * time.Minute})
	set(&w.RecoveryTimeout, *w.Timeout)
	set(&w.BlockAdmission, false)
	setString(&w.RequeuingStrategy.Timestamp, RequeuingTimestampEviction)
	set(&w.RequeuingStrategy.BackoffBaseSeconds, 60)
	set(&w.RequeuingStrategy.BackoffMaxSeconds, 3600)
}

func (l *LeaderElection) setDefaults() {
	set(&l.LeaderElect, true)
	set(&l.LeaseDuration, metav1.Duration{Duration: 15 * time.Second})
	set(&l.RenewDeadline, metav1.Duration{Duration: 10 * time.Second})
	set(&l.RetryPeriod, metav1.Duration{Duration: 2 * time.Second})
	setString(&l.ResourceLock, resourceLock)
	setString(&l.ResourceName, apis.ManagerServiceAccount)
	setString(&l.ResourceNamespace, apis.SystemNamespace)
}

// set is for fields whose zero value is a value in its own right.
func set[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setString[T ~string](field *T, value T) {
	if *field == "" {
		*field = value
	}
}
