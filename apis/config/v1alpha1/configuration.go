package v1alpha1

import (
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

	// Metrics says where metrics are served.
	Metrics Metrics `json:"metrics,omitempty"`

	// Health says where liveness and readiness probes are answered.
	Health Health `json:"health,omitempty"`

	// Logging says how much is logged, and in which form.
	Logging Logging `json:"logging,omitempty"`

	// StageAdmission is the policy of JobSets whose own annotation and whose ClusterQueue's annotation tranche.dev/stage-admission
	// say nothing: Safe, Reserve or Greedy. It defaults to Safe.
	StageAdmission StageAdmission `json:"stageAdmission,omitempty"`

	// ManagedNamespaceSelector picks the namespaces whose JobSets the manager admits. It defaults to all but kube-system and
	// tranche-system.
	ManagedNamespaceSelector *metav1.LabelSelector `json:"managedNamespaceSelector,omitempty"`

	// ManageJobSetsWithoutQueueName makes the manager hold JobSets without a queue label in the managed namespaces, too. It
	// defaults to false, and must equal the key of the same name in the ConfigMap of the guards.
	ManageJobSetsWithoutQueueName *bool `json:"manageJobSetsWithoutQueueName,omitempty"`
}

// A ClientConnection bounds the requests that the manager sends.
type ClientConnection struct {
	// QPS is how many requests per second the manager sends in the long run. It defaults to 200.
	QPS *float32 `json:"qps,omitempty"`

	// Burst is how many requests the manager may send at once on top of that. It defaults to 400.
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
	// JobSet is how many JobSets are reconciled at a time. It defaults to 8.
	JobSet *int32 `json:"jobSet,omitempty"`

	// ClusterQueue is how many ClusterQueues are reconciled at a time. It defaults to 2.
	ClusterQueue *int32 `json:"clusterQueue,omitempty"`

	// LocalQueue is how many LocalQueues are reconciled at a time. It defaults to 2.
	LocalQueue *int32 `json:"localQueue,omitempty"`

	// ResourceFlavor is how many ResourceFlavors are reconciled at a time. It defaults to 1.
	ResourceFlavor *int32 `json:"resourceFlavor,omitempty"`
}

// A LeaderElection configures the Lease by which one replica becomes the leader. Its fields are those of component-base.
type LeaderElection struct {
	// LeaderElect turns leader election on. It defaults to true.
	LeaderElect *bool `json:"leaderElect,omitempty"`

	// LeaseDuration is how long the others wait after the last renewal before one of them takes over. It defaults to 15s.
	LeaseDuration *metav1.Duration `json:"leaseDuration,omitempty"`

	// RenewDeadline is how long the leader tries to renew before it gives up. It is less than LeaseDuration and defaults to 10s.
	RenewDeadline *metav1.Duration `json:"renewDeadline,omitempty"`

	// RetryPeriod is how long everybody waits between two tries. It is less than RenewDeadline and defaults to 2s.
	RetryPeriod *metav1.Duration `json:"retryPeriod,omitempty"`

	// ResourceLock is the kind of object that stands for leadership. Only leases, the default, is known.
	ResourceLock string `json:"resourceLock,omitempty"`

	// ResourceName is the name of the Lease. It defaults to tranche-manager.
	ResourceName string `json:"resourceName,omitempty"`

	// ResourceNamespace is the namespace of the Lease. It defaults to tranche-system.
	ResourceNamespace string `json:"resourceNamespace,omitempty"`
}

// A Metrics says where metrics are served.
type Metrics struct {
	// BindAddress is HOST:PORT or :PORT, or 0 to serve no metrics. It defaults to :8080.
	BindAddress string `json:"bindAddress,omitempty"`
}

// A Health says where probes are answered.
type Health struct {
	// HealthProbeBindAddress is HOST:PORT or :PORT, or 0 to answer no probes. It defaults to :8081.
	HealthProbeBindAddress string `json:"healthProbeBindAddress,omitempty"`
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

	// LogText makes lines for the human eye.
	LogText LogFormat = "text"
)

// A StageAdmission says what must hold before a stage is admitted.
type StageAdmission string

const (
	// StageAdmissionSafe admits a stage only if afterwards every JobSet that holds quota can still run to its end in some order.
	StageAdmissionSafe StageAdmission = "Safe"

	// StageAdmissionReserve admits the first stage only together with a reservation of the most that the JobSet holds at once.
	StageAdmissionReserve StageAdmission = "Reserve"

	// StageAdmissionGreedy admits a stage as soon as it fits itself.
	StageAdmissionGreedy StageAdmission = "Greedy"
)
