package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The identity of the configuration file.
const (
	// APIVersion is what a configuration file must have in apiVersion.
	APIVersion = "config.tranche.dev/v1alpha1"

	// Kind is what a configuration file must have in kind.
	Kind = "Configuration"
)

// A Configuration is what the manager reads from the file given by --config. A field that the file leaves out takes its default.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	// ClientConnection bounds the load that the manager puts on the API server.
	ClientConnection ClientConnection `json:"clientConnection,omitempty"`

	// Concurrency says how much the manager does at a time.
	Concurrency Concurrency `json:"concurrency,omitempty"`

	// LeaderElection lets several replicas of the manager stand by while one works.
	LeaderElection LeaderElection `json:"leaderElection,omitempty"`

	// Metrics says where metrics are served, and to which clients.
	Metrics Metrics `json:"metrics,omitempty"`

	// Health says where liveness and readiness probes are answered.
	Health Health `json:"health,omitempty"`

	// Visibility says whether and where Kueue's visibility API is served: which quota Workloads are pending, at which position, and why.
	Visibility Visibility `json:"visibility,omitempty"`

	// Logging says how much is logged, and in which form.
	Logging Logging `json:"logging,omitempty"`

	// StageAdmission is the policy of JobSets for which neither their own annotation tranche.dev/stage-admission nor that of their
	// ClusterQueue sets one: Safe, Reserve or Greedy. It defaults to Safe.
	StageAdmission StageAdmission `json:"stageAdmission,omitempty"`

	// Gang configures the gangs that JobSets ask for.
	Gang Gang `json:"gang,omitempty"`

	// PodGroups configures what is written to the PodGroups of gangs of pods.
	PodGroups PodGroups `json:"podGroups,omitempty"`

	// GroupStart configures the server for pods whose main containers start together.
	GroupStart GroupStart `json:"groupStart,omitempty"`

	// WaitForPodsReady evicts stages whose pods do not become ready in time.
	WaitForPodsReady WaitForPodsReady `json:"waitForPodsReady,omitempty"`

	// FairSharing turns fair sharing between the ClusterQueues of a cohort on, if it is set. It is not set by default, and quota is shared
	// first come, first served.
	FairSharing *FairSharing `json:"fairSharing,omitempty"`

	// AdmissionFairSharing turns fair sharing between the LocalQueues of a ClusterQueue on, if it is set, for ClusterQueues that ask for it
	// by spec.admissionScope. It is not set by default.
	AdmissionFairSharing *AdmissionFairSharing `json:"admissionFairSharing,omitempty"`

	// Resources says what quota is charged for the requests of pods, and for the devices that they claim. Without it, which is the
	// default, quota is charged for what is requested, and pods that claim devices are refused.
	Resources Resources `json:"resources,omitzero"`

	// ObjectRetentionPolicies say how long objects are kept that are no longer needed. By default they are kept as long as their owners.
	ObjectRetentionPolicies ObjectRetentionPolicies `json:"objectRetentionPolicies,omitzero"`

	// FeatureGates turn features on that are off by default, under the names that they have in Kueue. UnadmittedWorkloadsObservability gives the
	// condition QuotaReserved=False of quota Workloads its finest reason, such as WaitingForQuota instead of Pending.
	// UnadmittedWorkloadsExplicitStatus, which needs it, sets QuotaReserved and Admitted to False as soon as a quota Workload is created.
	FeatureGates FeatureGates `json:"featureGates,omitempty"`

	// ManagedNamespaceSelector picks the namespaces whose JobSets the manager admits. It defaults to all but kube-system and
	// tranche-system.
	ManagedNamespaceSelector *metav1.LabelSelector `json:"managedNamespaceSelector,omitempty"`

	// ManageJobSetsWithoutQueueName makes the manager hold JobSets without a queue label in the managed namespaces, too. It
	// defaults to false, and must equal the key of the same name in the ConfigMap of the guards.
	ManageJobSetsWithoutQueueName *bool `json:"manageJobSetsWithoutQueueName,omitempty"`
}

// A Gang configures the gangs that JobSets ask for by gangConfig, or by the annotation tranche.dev/gang.
type Gang struct {
	// Provider is the scheduler that places gangs: Kube for that of Kubernetes itself, whose feature gates GenericWorkload and
	// GangScheduling must be on, Coscheduling for the plugin of scheduler-plugins, Volcano, Koordinator or KAI, or None. It defaults to None,
	// and must equal the key gangProvider in the ConfigMap of the guards. A LocalQueue or ResourceFlavor with the annotation
	// tranche.dev/gang-provider has another.
	Provider GangProvider `json:"provider,omitempty"`

	// DiagnoseAfter is how long pods of a gang may be without a node before its JobSet says what they may wait for. It defaults to 1m.
	DiagnoseAfter *metav1.Duration `json:"diagnoseAfter,omitempty"`

	// Coscheduling configures the plugin of that name of scheduler-plugins.
	Coscheduling Coscheduling `json:"coscheduling,omitempty"`

	// Volcano configures the scheduler of that name.
	Volcano Volcano `json:"volcano,omitempty"`

	// Koordinator configures the scheduler of that name.
	Koordinator Koordinator `json:"koordinator,omitempty"`

	// KAI configures the scheduler of that name.
	KAI KAI `json:"kai,omitempty"`
}

// A GangProvider is a scheduler that places gangs.
type GangProvider string

const (
	// GangProviderNone places no gangs: pods are placed one by one.
	GangProviderNone GangProvider = "None"
	// GangProviderKube is the scheduler of Kubernetes, which reads objects of the group scheduling.k8s.io.
	GangProviderKube GangProvider = "Kube"
	// GangProviderCoscheduling is the plugin of scheduler-plugins, which reads PodGroups of scheduling.x-k8s.io.
	GangProviderCoscheduling GangProvider = "Coscheduling"
	// GangProviderVolcano is Volcano, which reads PodGroups of scheduling.volcano.sh.
	GangProviderVolcano GangProvider = "Volcano"
	// GangProviderKoordinator is Koordinator, which reads PodGroups of scheduling.sigs.k8s.io.
	GangProviderKoordinator GangProvider = "Koordinator"
	// GangProviderKAI is KAI, which creates its PodGroups itself.
	GangProviderKAI GangProvider = "KAI"
)

// A Coscheduling configures the plugin Coscheduling.
type Coscheduling struct {
	// SchedulerName is the profile that has the plugin. It defaults to scheduler-plugins-scheduler.
	SchedulerName string `json:"schedulerName,omitempty"`

	// TimeoutSeconds is how long placed members of a gang wait for the others. Left out, the default, it is up to the plugin.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// A Volcano configures Volcano.
type Volcano struct {
	// SchedulerName is the name under which Volcano runs. It defaults to volcano.
	SchedulerName string `json:"schedulerName,omitempty"`

	// Queue is the queue of Volcano that all PodGroups are in. Empty, the default, it is up to Volcano.
	Queue string `json:"queue,omitempty"`
}

// A Koordinator configures Koordinator.
type Koordinator struct {
	// SchedulerName is the name under which Koordinator runs. It defaults to koord-scheduler.
	SchedulerName string `json:"schedulerName,omitempty"`

	// Mode is Strict if all members of a gang release their places when one has none, NonStrict if they keep them. It defaults to Strict:
	// with NonStrict, gangs may wait for each other forever.
	Mode KoordinatorMode `json:"mode,omitempty"`

	// TimeoutSeconds is how long placed members of a gang wait for the others. Left out, the default, it is up to Koordinator.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// A KoordinatorMode says whether the members of a gang keep their places when another member has none.
type KoordinatorMode string

const (
	// KoordinatorStrict releases their places.
	KoordinatorStrict KoordinatorMode = "Strict"
	// KoordinatorNonStrict keeps them.
	KoordinatorNonStrict KoordinatorMode = "NonStrict"
)

// A KAI configures KAI.
type KAI struct {
	// SchedulerName is the name under which KAI runs. It defaults to kai-scheduler.
	SchedulerName string `json:"schedulerName,omitempty"`

	// Queue is the queue of KAI that all pods in gangs are in. Empty, the default, it is the one that the label kai.scheduler/queue of the pods names.
	Queue string `json:"queue,omitempty"`
}

// SchedulerName returns the schedulerName that the pods of gangs get, or "" if they keep their own.
func (g *Gang) SchedulerName(provider GangProvider) string {
	switch provider {
	case GangProviderCoscheduling:
		return g.Coscheduling.SchedulerName
	case GangProviderVolcano:
		return g.Volcano.SchedulerName
	case GangProviderKoordinator:
		return g.Koordinator.SchedulerName
	case GangProviderKAI:
		return g.KAI.SchedulerName
	case GangProviderNone, GangProviderKube:
		return ""
	}
	return ""
}

// PodGroups configures what is written to the PodGroups of gangs of pods.
type PodGroups struct {
	// Status is Manage if the status of PodGroups of scheduling.x-k8s.io, scheduling.sigs.k8s.io, scheduling.incubator.k8s.io and
	// incubator.scheduling.k8s.io is kept where no other writer does, as the controllers of their schedulers do, and Leave if it is not. It
	// defaults to Manage.
	Status PodGroupStatus `json:"status,omitempty"`

	// WaitingTime is how long a gang of pods keeps quota with which it cannot start, where neither the annotation
	// gang.scheduling.koordinator.sh/waiting-time nor scheduleTimeoutSeconds of its PodGroup gives another time. It defaults to 10m, as
	// Koordinator's defaultTimeout does.
	WaitingTime *metav1.Duration `json:"waitingTime,omitempty"`

	// AfterTimeout says what happens to a gang that did not start within its waiting time, and has released its quota. Requeue lets it
	// queue again after a back-off. Stop admits no pod with the annotation gang.scheduling.koordinator.sh/timeout=true, which the manager
	// sets then, as Koordinator does: the gang queues again when its pods are recreated. It applies to the gangs to which Koordinator's
	// annotations apply, and defaults to Requeue.
	AfterTimeout PodGroupAfterTimeout `json:"afterTimeout,omitempty"`
}

// A PodGroupAfterTimeout says what happens to a gang that did not start in time.
type PodGroupAfterTimeout string

const (
	// PodGroupRequeue lets it queue again.
	PodGroupRequeue PodGroupAfterTimeout = "Requeue"
	// PodGroupStop waits until its pods are recreated.
	PodGroupStop PodGroupAfterTimeout = "Stop"
)

// A PodGroupStatus says whether the manager keeps the status of PodGroups.
type PodGroupStatus string

const (
	// PodGroupStatusManage keeps the status if no other client writes it.
	PodGroupStatusManage PodGroupStatus = "Manage"
	// PodGroupStatusLeave leaves the status to other clients.
	PodGroupStatusLeave PodGroupStatus = "Leave"
)

// A GroupStart configures the server for pods that wait for the others of their group, because of groupSchedulingConfig or the annotation
// tranche.dev/group-start. The ConfigMap of the guards configures the container that waits.
type GroupStart struct {
	// BindAddress is HOST:PORT or :PORT, or 0 to answer no pods: they learn from a ConfigMap that they may start, up to two minutes later.
	// Every replica of the manager answers. It defaults to :8083.
	BindAddress string `json:"bindAddress,omitempty"`

	// Address is HOST:PORT where pods reach BindAddress. It defaults to tranche-barrier.tranche-system.svc:8083.
	Address string `json:"address,omitempty"`

	// MaxWaiters is how many pods each replica answers at a time, half of them in one namespace. Other pods rely on the ConfigMap. It
	// defaults to 20000.
	MaxWaiters *int32 `json:"maxWaiters,omitempty"`
}

// A ClientConnection bounds the requests that the manager sends.
type ClientConnection struct {
	// QPS is how many requests per second the manager sends in the long run. It defaults to 1000, which is more than
	// admission needs: the API server defends itself by its own priority and fairness.
	QPS *float32 `json:"qps,omitempty"`

	// Burst is how many requests the manager may send at once on top of that. It defaults to 2000.
	Burst *int32 `json:"burst,omitempty"`
}

// A Concurrency says how much the manager does at a time.
type Concurrency struct {
	// Workers bounds, per controller, the objects that are reconciled at a time.
	Workers Workers `json:"workers,omitempty"`

	// Writers bounds the admission decisions that are written at a time. It defaults to 16.
	Writers *int32 `json:"writers,omitempty"`

	// Releases bounds, per stage, the child Jobs that are released at a time. It defaults to 8.
	Releases *int32 `json:"releases,omitempty"`
}

// Workers gives the number of workers of each controller.
type Workers struct {
	// Workload is how many quota Workloads are reconciled at a time. It defaults to 8.
	Workload *int32 `json:"workload,omitempty"`

	// JobSet is how many JobSets are reconciled at a time. It defaults to 8.
	JobSet *int32 `json:"jobSet,omitempty"`

	// ClusterQueue is how many ClusterQueues are reconciled at a time. It defaults to 2.
	ClusterQueue *int32 `json:"clusterQueue,omitempty"`

	// LocalQueue is how many LocalQueues are reconciled at a time. It defaults to 2.
	LocalQueue *int32 `json:"localQueue,omitempty"`

	// ResourceFlavor is how many ResourceFlavors are reconciled at a time. It defaults to 1.
	ResourceFlavor *int32 `json:"resourceFlavor,omitempty"`

	// AdmissionCheck is how many AdmissionChecks are reconciled at a time. It defaults to 1.
	AdmissionCheck *int32 `json:"admissionCheck,omitempty"`
}

// A WaitForPodsReady says how long the pods of a stage may take to become ready, measured for each stage from its own admission.
type WaitForPodsReady struct {
	// Enable turns the timeouts on. It defaults to false, because the right timeout depends on how long nodes and images take, and
	// one that is too short sends JobSets that do well back to the queue.
	Enable *bool `json:"enable,omitempty"`

	// Timeout is how long after its admission all pods of a stage must be ready for the first time. Then it is evicted and queued
	// again. It defaults to 30m.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// RecoveryTimeout is how long a stage that was ready may stay without all of its pods; 0s means forever. It defaults to Timeout.
	RecoveryTimeout *metav1.Duration `json:"recoveryTimeout,omitempty"`

	// BlockAdmission makes every new admission wait until all pods of the admitted stages are ready. It defaults to false.
	BlockAdmission *bool `json:"blockAdmission,omitempty"`

	// RequeuingStrategy says how an evicted stage queues again.
	RequeuingStrategy RequeuingStrategy `json:"requeuingStrategy,omitempty"`
}

// A RequeuingStrategy says how a stage that was evicted because of its timeout queues again.
type RequeuingStrategy struct {
	// Timestamp is Eviction if the stage queues behind those that came before its eviction, Creation if it takes its old place. It
	// defaults to Eviction.
	Timestamp RequeuingTimestamp `json:"timestamp,omitempty"`

	// BackoffLimitCount is how often a stage is queued again; after that it is deactivated. Left out, the default, there is no limit.
	BackoffLimitCount *int32 `json:"backoffLimitCount,omitempty"`

	// BackoffBaseSeconds is how long a stage stays out of the queue after its first timeout. Each further time doubles that. It
	// defaults to 60.
	BackoffBaseSeconds *int32 `json:"backoffBaseSeconds,omitempty"`

	// BackoffMaxSeconds is the longest that a stage stays out of the queue. It defaults to 3600.
	BackoffMaxSeconds *int32 `json:"backoffMaxSeconds,omitempty"`
}

// A RequeuingTimestamp says which time determines the queue position of an evicted stage.
type RequeuingTimestamp string

const (
	// RequeuingTimestampEviction is the time of the eviction.
	RequeuingTimestampEviction RequeuingTimestamp = "Eviction"

	// RequeuingTimestampCreation is the time of the submission.
	RequeuingTimestampCreation RequeuingTimestamp = "Creation"
)

// A FairSharing says how ClusterQueues of a cohort share what they borrow.
type FairSharing struct {
	// PreemptionStrategies say when a ClusterQueue may preempt in another one: LessThanOrEqualToFinalShare if its share with the new stage
	// is at most the other's without the preempted one, LessThanInitialShare if it is less than the other's current share. The second of
	// two is tried only if the first finds no victims. One of them, or both in this order, is required.
	PreemptionStrategies []PreemptionStrategy `json:"preemptionStrategies,omitempty"`
}

// A PreemptionStrategy says which shares allow a preemption.
type PreemptionStrategy string

const (
	// LessThanOrEqualToFinalShare compares with the share that the victim's ClusterQueue has after the preemption.
	LessThanOrEqualToFinalShare PreemptionStrategy = "LessThanOrEqualToFinalShare"

	// LessThanInitialShare compares with the share that the victim's ClusterQueue has before the preemption.
	LessThanInitialShare PreemptionStrategy = "LessThanInitialShare"
)

// An AdmissionFairSharing says how LocalQueues of a ClusterQueue take turns by what they have used.
type AdmissionFairSharing struct {
	// UsageHalfLifeTime is how long it takes until past usage counts half, 0s if it does not count at all. It defaults to 0s.
	UsageHalfLifeTime *metav1.Duration `json:"usageHalfLifeTime,omitempty"`

	// UsageSamplingInterval is how often usage is added up. It defaults to 5m.
	UsageSamplingInterval *metav1.Duration `json:"usageSamplingInterval,omitempty"`

	// ResourceWeights give how much one unit of a resource counts. A resource that is left out counts 1.
	ResourceWeights map[corev1.ResourceName]float64 `json:"resourceWeights,omitempty"`
}

// A LeaderElection configures the Lease by which one replica becomes the leader. Its fields are those of component-base.
type LeaderElection struct {
	// LeaderElect turns leader election on. It defaults to true.
	LeaderElect *bool `json:"leaderElect,omitempty"`

	// LeaseDuration is how long the others wait after the last renewal before one of them takes over. It defaults to 15s.
	LeaseDuration *metav1.Duration `json:"leaseDuration,omitempty"`

	// RenewDeadline is how long a renewal counts: after it the leader writes nothing until it has renewed the Lease, and soon gives up. It is
	// less than LeaseDuration, so that the requests that are being processed end before another replica takes over, and defaults to 10s.
	RenewDeadline *metav1.Duration `json:"renewDeadline,omitempty"`

	// RetryPeriod is how long each replica waits between two tries. It is less than RenewDeadline and defaults to 2s.
	RetryPeriod *metav1.Duration `json:"retryPeriod,omitempty"`

	// ResourceLock is the kind of object that is locked. Only leases, the default, is known.
	ResourceLock string `json:"resourceLock,omitempty"`

	// ResourceName is the name of the Lease. It defaults to tranche-manager.
	ResourceName string `json:"resourceName,omitempty"`

	// ResourceNamespace is the namespace of the Lease. It defaults to tranche-system.
	ResourceNamespace string `json:"resourceNamespace,omitempty"`
}

// A Metrics says where metrics are served, and to which clients.
type Metrics struct {
	// BindAddress is HOST:PORT or :PORT, or 0 to serve no metrics. It defaults to :8443, and to :8080 if Secure is false.
	BindAddress string `json:"bindAddress,omitempty"`

	// Secure is true if metrics are served over TLS, and only to clients whose bearer token the API server knows and who may get the
	// non-resource URL /metrics, as the ClusterRole tranche-metrics-reader allows. Metrics name the namespaces and queues of all tenants:
	// with false, every client that reaches the port can read them. It defaults to true.
	Secure *bool `json:"secure,omitempty"`

	// CertDir is a directory with tls.crt and tls.key, which are read again when they change. Left out, the default, the manager creates a
	// self-signed certificate at each start. It has no effect if Secure is false.
	CertDir string `json:"certDir,omitempty"`
}

// A Health says where probes are answered.
type Health struct {
	// HealthProbeBindAddress is HOST:PORT or :PORT, or 0 to answer no probes. It defaults to :8081.
	HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`
}

// A Visibility says whether and where the visibility API is served.
type Visibility struct {
	// Enable turns the server on. It needs the APIService, the Service and the rights of config/visibility. It defaults to false.
	Enable *bool `json:"enable,omitempty"`

	// BindAddress is HOST:PORT or :PORT. It defaults to :8082.
	BindAddress string `json:"bindAddress,omitempty"`

	// CertDir is a directory with tls.crt and tls.key, which are read again when they change. Left out, the default, the server generates a
	// certificate at each start, which clients cannot verify: the APIService must set insecureSkipTLSVerify.
	CertDir string `json:"certDir,omitempty"`
}

// A Logging says how much is logged, and in which form.
type Logging struct {
	// Verbosity is 0 for what operators need; larger numbers, up to 10, add detail. It defaults to 0.
	Verbosity *int32 `json:"verbosity,omitempty"`

	// Format is json or text. It defaults to json.
	Format LogFormat `json:"format,omitempty"`
}

// A LogFormat is the form of a line in the log.
type LogFormat string

const (
	// LogJSON makes each line a JSON object.
	LogJSON LogFormat = "json"

	// LogText makes each line readable text.
	LogText LogFormat = "text"
)

// A StageAdmission says what must hold before a stage is admitted.
type StageAdmission string

const (
	// StageAdmissionSafe admits a stage only if afterwards every JobSet that holds quota can still finish in some order.
	StageAdmissionSafe StageAdmission = "Safe"

	// StageAdmissionReserve admits the first stage only together with a reservation of the most that the JobSet holds at once.
	StageAdmissionReserve StageAdmission = "Reserve"

	// StageAdmissionGreedy admits a stage as soon as it fits itself.
	StageAdmissionGreedy StageAdmission = "Greedy"
)
