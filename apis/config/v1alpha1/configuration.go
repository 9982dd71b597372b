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

	// Mode is Instead if the manager admits quota Workloads, in the place of Kueue. It is Beside if Kueue's own manager, which runs in the same
	// cluster, admits them, and this manager only plans the stages of JobSets and releases their Jobs. It defaults to Instead, and decides
	// which other fields may be set.
	Mode Mode `json:"mode,omitempty"`

	// ClientConnection limits the load that the manager puts on the API server.
	ClientConnection ClientConnection `json:"clientConnection,omitempty"`

	// Concurrency limits how many objects the manager processes concurrently.
	Concurrency Concurrency `json:"concurrency,omitempty"`

	// LeaderElection lets replicas of the manager stand by while one replica leads.
	LeaderElection LeaderElection `json:"leaderElection,omitempty"`

	// Metrics configures where metrics are served, and to which clients.
	Metrics Metrics `json:"metrics,omitempty"`

	// Health configures where liveness and readiness probes are answered.
	Health Health `json:"health,omitempty"`

	// Visibility configures whether and where Kueue's visibility API is served: which quota Workloads are pending, at which position, and why.
	Visibility Visibility `json:"visibility,omitempty"`

	// ExpectedStart configures the condition StartExpected of JobSets: when the first waiting stage is expected to start, and its position.
	ExpectedStart ExpectedStart `json:"expectedStart,omitempty"`

	// Dashboard configures whether and where the manager serves the dashboard.
	Dashboard Dashboard `json:"dashboard,omitempty"`

	// Logging configures the amount and the format of the log.
	Logging Logging `json:"logging,omitempty"`

	// StageAdmission is the policy of JobSets without the annotation tranche.dev/stage-admission whose ClusterQueue does not have the
	// annotation either: Safe, Reserve or Greedy. It defaults to Safe.
	StageAdmission StageAdmission `json:"stageAdmission,omitempty"`

	// CoStart configures when a stage is admitted that holds accelerators and starts other stages as soon as it is ready.
	CoStart CoStart `json:"coStart,omitzero"`

	// LookAhead configures how many JobSets prepare their work before there are accelerators for it.
	LookAhead LookAhead `json:"lookAhead,omitzero"`

	// Preemption configures which stages are preempted.
	Preemption Preemption `json:"preemption,omitzero"`

	// MaxPodPriority is the highest priority that a PriorityClass of pods gives to their JobSet, Job or gang. One with a greater value counts as 0: every
	// tenant may name every PriorityClass. It is from 0 to 1000000000, which is the default and the highest value that is not reserved for the classes of
	// Kubernetes itself. A WorkloadPriorityClass has no such limit. A stage that holds quota keeps its priority when the limit changes.
	MaxPodPriority *int32 `json:"maxPodPriority,omitempty"`

	// Reservation configures when quota is reserved for a stage that has waited for it for long.
	Reservation Reservation `json:"reservation,omitzero"`

	// Conditions configures when conditions are written.
	Conditions Conditions `json:"conditions,omitzero"`

	// Gang configures the gangs of JobSets.
	Gang Gang `json:"gang,omitempty"`

	// PodGroups configures gangs of pods and the status of their PodGroups.
	PodGroups PodGroups `json:"podGroups,omitempty"`

	// GroupStart configures the server for pods whose main containers start together.
	GroupStart GroupStart `json:"groupStart,omitempty"`

	// WaitForPodsReady evicts stages whose pods do not become ready in time.
	WaitForPodsReady WaitForPodsReady `json:"waitForPodsReady,omitempty"`

	// FairSharing enables fair sharing between the ClusterQueues of a cohort, if it is set. It is not set by default: quota is shared first
	// come, first served.
	FairSharing *FairSharing `json:"fairSharing,omitempty"`

	// AdmissionFairSharing enables fair sharing between the LocalQueues of each ClusterQueue that has spec.admissionScope, if it is set. It is
	// not set by default.
	AdmissionFairSharing *AdmissionFairSharing `json:"admissionFairSharing,omitempty"`

	// Resources configures how quota is charged for the requests of pods, and for the devices that they claim. By default quota is charged
	// for the requests unchanged, and pods that claim devices are refused.
	Resources Resources `json:"resources,omitzero"`

	// ObjectRetentionPolicies set how long objects are kept that are no longer needed. By default they are kept as long as their owners.
	ObjectRetentionPolicies ObjectRetentionPolicies `json:"objectRetentionPolicies,omitzero"`

	// FeatureGates enable features that are disabled by default, with the names that they have in Kueue. UnadmittedWorkloadsObservability
	// gives the condition QuotaReserved=False of quota Workloads its finest reason, such as WaitingForQuota instead of Pending.
	// UnadmittedWorkloadsExplicitStatus, which requires that gate, sets QuotaReserved and Admitted to False as soon as a quota Workload is
	// created.
	FeatureGates FeatureGates `json:"featureGates,omitempty"`

	// ManagedNamespaceSelector selects the namespaces whose JobSets the manager admits. It defaults to all except kube-system and
	// tranche-system.
	ManagedNamespaceSelector *metav1.LabelSelector `json:"managedNamespaceSelector,omitempty"`

	// ManageJobSetsWithoutQueueName is true if JobSets without a queue label in the managed namespaces are held, too. It defaults to false,
	// and must equal the key of the same name in the ConfigMap tranche-guards.
	ManageJobSetsWithoutQueueName *bool `json:"manageJobSetsWithoutQueueName,omitempty"`
}

// PodGroups configures gangs of pods and the status of their PodGroups.
type PodGroups struct {
	// Status is Manage if the manager writes the status of PodGroups of scheduling.x-k8s.io, scheduling.sigs.k8s.io,
	// scheduling.incubator.k8s.io and incubator.scheduling.k8s.io as the controllers of their schedulers do, unless another client writes it.
	// Leave if the manager never writes it. It defaults to Manage.
	Status PodGroupStatus `json:"status,omitempty"`

	// WaitingTime is how long a gang of pods keeps quota that does not suffice to start it. The annotation
	// gang.scheduling.koordinator.sh/waiting-time and scheduleTimeoutSeconds of its PodGroup override it. It defaults to 10m, as
	// Koordinator's defaultTimeout does.
	WaitingTime *metav1.Duration `json:"waitingTime,omitempty"`

	// AfterTimeout decides what happens to a gang that did not start within its waiting time, and has released its quota. Requeue requeues
	// the gang after a back-off. With Stop the manager sets the annotation gang.scheduling.koordinator.sh/timeout=true on the pods, as
	// Koordinator does, and admits no pod with it: the gang queues again when its pods are recreated. Stop applies to the gangs to which
	// Koordinator's annotations apply. It defaults to Requeue.
	AfterTimeout PodGroupAfterTimeout `json:"afterTimeout,omitempty"`
}

// A PodGroupAfterTimeout decides what happens to a gang that did not start in time.
type PodGroupAfterTimeout string

const (
	// PodGroupRequeue requeues the gang.
	PodGroupRequeue PodGroupAfterTimeout = "Requeue"
	// PodGroupStop waits until the pods of the gang are recreated.
	PodGroupStop PodGroupAfterTimeout = "Stop"
)

// A PodGroupStatus decides whether the manager writes the status of PodGroups.
type PodGroupStatus string

const (
	// PodGroupStatusManage writes the status unless another client does.
	PodGroupStatusManage PodGroupStatus = "Manage"
	// PodGroupStatusLeave leaves the status to other clients.
	PodGroupStatusLeave PodGroupStatus = "Leave"
)

// A GroupStart configures the server for pods that wait for the other pods of their group, because of groupSchedulingConfig or the annotation
// tranche.dev/group-start. The ConfigMap tranche-guards configures the init container in which they wait.
type GroupStart struct {
	// BindAddress is HOST:PORT or :PORT, or 0 to disable the server: pods then read from a mounted ConfigMap that they may start, up to two
	// minutes later. Every replica of the manager answers. It defaults to :8083.
	BindAddress string `json:"bindAddress,omitempty"`

	// Address is the HOST:PORT at which pods reach BindAddress. It defaults to tranche-barrier.tranche-system.svc:8083.
	Address string `json:"address,omitempty"`

	// MaxWaiters is the number of pods that each replica serves concurrently, at most half of them from one namespace. Other pods rely on the
	// ConfigMap. It defaults to 20000.
	MaxWaiters *int32 `json:"maxWaiters,omitempty"`
}

// A ClientConnection limits the requests that the manager sends.
type ClientConnection struct {
	// QPS is the sustained number of requests per second. It defaults to 1000, which is more than admission needs: the API server protects
	// itself by its own priority and fairness.
	QPS *float32 `json:"qps,omitempty"`

	// Burst is the number of requests that the manager may send at once in addition. It defaults to 2000.
	Burst *int32 `json:"burst,omitempty"`
}

// A Concurrency limits how many objects the manager processes concurrently.
type Concurrency struct {
	// Workers limits, for each controller, the objects that are reconciled concurrently.
	Workers Workers `json:"workers,omitempty"`

	// Writers limits the admission decisions that are written concurrently. It defaults to 16.
	Writers *int32 `json:"writers,omitempty"`

	// Releases limits, for each stage, the child Jobs that are released concurrently. It defaults to 8.
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

// A WaitForPodsReady limits the time in which the pods of a stage must become ready, measured for each stage from its own admission.
type WaitForPodsReady struct {
	// Enable is true if stages have these timeouts. It defaults to true if another field of waitForPodsReady is set, so that the block of Kueue's
	// configuration, which has no such field, has an effect. Otherwise it defaults to false, because the right timeout depends on how long nodes and
	// images take, and a timeout that is too short evicts healthy JobSets.
	Enable *bool `json:"enable,omitempty"`

	// Timeout is the time after the admission of a stage within which all of its pods must be ready for the first time. Otherwise the stage
	// is evicted and requeued. It defaults to 30m.
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// RecoveryTimeout is how long a stage that was ready may have pods that are not ready; 0s means forever. It defaults to Timeout.
	RecoveryTimeout *metav1.Duration `json:"recoveryTimeout,omitempty"`

	// BlockAdmission is true if an admission waits until all pods of the admitted stages are ready. It defaults to false.
	BlockAdmission *bool `json:"blockAdmission,omitempty"`

	// RequeuingStrategy configures how an evicted stage is requeued.
	RequeuingStrategy RequeuingStrategy `json:"requeuingStrategy,omitempty"`
}

// A RequeuingStrategy configures how a stage is requeued after it was evicted because of its timeout.
type RequeuingStrategy struct {
	// Timestamp is Eviction if the queue position depends on the time of the eviction, Creation if the stage keeps its old position. It
	// defaults to Eviction.
	Timestamp RequeuingTimestamp `json:"timestamp,omitempty"`

	// BackoffLimitCount is how often a stage is requeued; after that it is deactivated. If it is not set, the default, there is no limit.
	BackoffLimitCount *int32 `json:"backoffLimitCount,omitempty"`

	// BackoffBaseSeconds is the back-off after the first timeout of a stage. Each further timeout doubles it. It defaults to 60.
	BackoffBaseSeconds *int32 `json:"backoffBaseSeconds,omitempty"`

	// BackoffMaxSeconds is the longest back-off. It defaults to 3600.
	BackoffMaxSeconds *int32 `json:"backoffMaxSeconds,omitempty"`
}

// A RequeuingTimestamp decides which time determines the queue position of an evicted stage.
type RequeuingTimestamp string

const (
	// RequeuingTimestampEviction is the time of the eviction.
	RequeuingTimestampEviction RequeuingTimestamp = "Eviction"

	// RequeuingTimestampCreation is the time of the submission.
	RequeuingTimestampCreation RequeuingTimestamp = "Creation"
)

// A FairSharing configures how the ClusterQueues of a cohort share borrowed quota.
type FairSharing struct {
	// PreemptionStrategies decide when a ClusterQueue may preempt in another ClusterQueue: LessThanOrEqualToFinalShare if its share with the
	// new stage is at most the share of the other without the victim, LessThanInitialShare if it is less than the current share of the
	// other. A second strategy is tried only if the first finds no victims. One of them, or both in this order, is required.
	PreemptionStrategies []PreemptionStrategy `json:"preemptionStrategies,omitempty"`
}

// A PreemptionStrategy decides which shares allow a preemption.
type PreemptionStrategy string

const (
	// LessThanOrEqualToFinalShare compares with the share that the victim's ClusterQueue has after the preemption.
	LessThanOrEqualToFinalShare PreemptionStrategy = "LessThanOrEqualToFinalShare"

	// LessThanInitialShare compares with the share that the victim's ClusterQueue has before the preemption.
	LessThanInitialShare PreemptionStrategy = "LessThanInitialShare"
)

// An AdmissionFairSharing configures how the LocalQueues of a ClusterQueue are ordered by their past usage.
type AdmissionFairSharing struct {
	// UsageHalfLifeTime is the time after which past usage counts half; with 0s it does not count at all. It defaults to 0s.
	UsageHalfLifeTime *metav1.Duration `json:"usageHalfLifeTime,omitempty"`

	// UsageSamplingInterval is the interval at which usage is sampled. It defaults to 5m.
	UsageSamplingInterval *metav1.Duration `json:"usageSamplingInterval,omitempty"`

	// ResourceWeights give the weight of one unit of each resource. A resource without a weight counts 1.
	ResourceWeights map[corev1.ResourceName]float64 `json:"resourceWeights,omitempty"`
}

// A LeaderElection configures the Lease by which one replica becomes the leader. Its fields are those of component-base.
type LeaderElection struct {
	// LeaderElect is true if leader election is enabled. It defaults to true.
	LeaderElect *bool `json:"leaderElect,omitempty"`

	// LeaseDuration is how long the other replicas wait after the last renewal before one of them takes over. It defaults to 15s.
	LeaseDuration *metav1.Duration `json:"leaseDuration,omitempty"`

	// RenewDeadline is how long a renewal is valid: afterwards the leader writes nothing until it has renewed the Lease, and exits if it cannot.
	// It must be less than LeaseDuration, so that pending requests end before another replica takes over. It defaults to 10s.
	RenewDeadline *metav1.Duration `json:"renewDeadline,omitempty"`

	// RetryPeriod is the time between two renewals by the leader. The other replicas read the Lease twice as often. It must be less than five sixths of
	// RenewDeadline. It defaults to 2s.
	RetryPeriod *metav1.Duration `json:"retryPeriod,omitempty"`

	// ResourceLock is the kind of object that is locked. Only leases, the default, is supported.
	ResourceLock string `json:"resourceLock,omitempty"`

	// ResourceName is the name of the Lease. It defaults to tranche-manager.
	ResourceName string `json:"resourceName,omitempty"`

	// ResourceNamespace is the namespace of the Lease. It defaults to tranche-system.
	ResourceNamespace string `json:"resourceNamespace,omitempty"`
}

// A Metrics configures where metrics are served, and to which clients.
type Metrics struct {
	// BindAddress is HOST:PORT or :PORT, or 0 to serve no metrics. It defaults to :8443, and to :8080 if Secure is false.
	BindAddress string `json:"bindAddress,omitempty"`

	// Secure is true if metrics are served over TLS, and only to clients whose bearer token the API server accepts and that may get the
	// non-resource URL /metrics, as the ClusterRole tranche-metrics-reader allows. Metrics name the namespaces and queues of all tenants: if
	// Secure is false, every client that reaches the port can read them. Profiles of the process, under /debug/pprof/, are served only if Secure is true, to clients
	// that may get that URL. It defaults to true.
	Secure *bool `json:"secure,omitempty"`

	// CertDir is a directory with tls.crt and tls.key, which are read again when they change. If it is empty, the default, the manager
	// creates a self-signed certificate at each start. It has no effect if Secure is false.
	CertDir string `json:"certDir,omitempty"`
}

// A Health configures where probes are answered.
type Health struct {
	// HealthProbeBindAddress is HOST:PORT or :PORT, or 0 to disable the probes. It defaults to :8081.
	HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`
}

// A Visibility configures whether and where the visibility API is served.
type Visibility struct {
	// Enable is true if the API is served, which requires the APIService, the Service and the permissions in config/visibility. It defaults to
	// false.
	Enable *bool `json:"enable,omitempty"`

	// BindAddress is HOST:PORT or :PORT. It defaults to :8082.
	BindAddress string `json:"bindAddress,omitempty"`

	// CertDir is a directory with tls.crt and tls.key, which are read again when they change. If it is empty, the default, the server
	// generates a certificate at each start, which clients cannot verify: the APIService must set insecureSkipTLSVerify.
	CertDir string `json:"certDir,omitempty"`
}

// An ExpectedStart configures how the manager predicts when waiting stages start, and writes that to their JobSets. Predicting takes at most a
// twentieth of one processor.
type ExpectedStart struct {
	// Enable is true if starts are predicted. It defaults to true.
	Enable *bool `json:"enable,omitempty"`

	// Interval is the shortest time between two predictions for the same queues, and between two writes to the same JobSet. It is at least 1s, and
	// defaults to 1m.
	Interval *metav1.Duration `json:"interval,omitempty"`

	// Horizon is how far ahead a prediction looks. It defaults to 168h, a week.
	Horizon *metav1.Duration `json:"horizon,omitempty"`

	// First is how many waiting stages of each ClusterQueue get an expected start. The others get only their positions. It defaults to 10.
	First *int32 `json:"first,omitempty"`

	// MaxWorkloads limits how many quota Workloads are simulated at once: those that are pending or hold quota in one tree of Cohorts. In larger trees
	// no starts are predicted, and the dashboard does not search what would let a stage in. It defaults to 10000.
	MaxWorkloads *int32 `json:"maxWorkloads,omitempty"`

	// WritesPerSecond limits how many JobSets get a new expected start per second. Those that start first come first. It defaults to 10.
	WritesPerSecond *int32 `json:"writesPerSecond,omitempty"`
}

// A Dashboard configures whether and where the manager serves the dashboard: a page, and JSON, about queues and JobSets. It is served over TLS,
// only to users whose bearer token the API server accepts, and shows each of them the namespaces and ClusterQueues that they may read.
type Dashboard struct {
	// Enable is true if the dashboard is served, which requires the Service and the permissions in config/dashboard. It defaults to false.
	Enable *bool `json:"enable,omitempty"`

	// BindAddress is HOST:PORT or :PORT. Every replica of the manager answers. It defaults to :8084.
	BindAddress string `json:"bindAddress,omitempty"`

	// CertDir is a directory with tls.crt and tls.key, which are read again when they change. If it is empty, the default, the manager
	// creates a self-signed certificate at each start, which browsers cannot verify.
	CertDir string `json:"certDir,omitempty"`
}

// A Logging configures the amount and the format of the log.
type Logging struct {
	// Verbosity is 0 for the messages that operators need; larger numbers, up to 10, add detail. It defaults to 0.
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

// A StageAdmission is the condition under which a stage is admitted.
type StageAdmission string

const (
	// StageAdmissionSafe admits a stage only if afterwards every JobSet that holds quota can still finish in some order.
	StageAdmissionSafe StageAdmission = "Safe"

	// StageAdmissionReserve admits the first stage only together with a reservation of the peak of the JobSet.
	StageAdmissionReserve StageAdmission = "Reserve"

	// StageAdmissionGreedy admits a stage as soon as the stage itself fits.
	StageAdmissionGreedy StageAdmission = "Greedy"
)
