package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// A Gang configures the gangs that JobSets request by gangConfig, or by the annotation tranche.dev/gang.
type Gang struct {
	// Provider is the scheduler that places gangs: Kube for that of Kubernetes itself, whose feature gates GenericWorkload and
	// GangScheduling must be on, Coscheduling for the plugin of scheduler-plugins, Volcano, Koordinator, or None. It defaults to None,
	// and must equal the key gangProvider in the ConfigMap tranche-guards. The annotation tranche.dev/gang-provider of a LocalQueue or a
	// ResourceFlavor overrides it.
	Provider GangProvider `json:"provider,omitempty"`

	// DiagnoseAfter is how long pods of a gang may be without a node before a condition of the JobSet reports the cause. It defaults to 1m.
	DiagnoseAfter *metav1.Duration `json:"diagnoseAfter,omitempty"`

	// Coscheduling configures the plugin of that name of scheduler-plugins.
	Coscheduling Coscheduling `json:"coscheduling,omitempty"`

	// Volcano configures the scheduler of that name.
	Volcano Volcano `json:"volcano,omitempty"`

	// Koordinator configures the scheduler of that name.
	Koordinator Koordinator `json:"koordinator,omitempty"`
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
)

// A Coscheduling configures the plugin Coscheduling.
type Coscheduling struct {
	// SchedulerName is the profile that has the plugin. It defaults to scheduler-plugins-scheduler.
	SchedulerName string `json:"schedulerName,omitempty"`

	// TimeoutSeconds is how long placed members of a gang wait for the other members. If it is not set, the plugin uses its own default.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// A Volcano configures Volcano.
type Volcano struct {
	// SchedulerName is the name under which Volcano runs. It defaults to volcano.
	SchedulerName string `json:"schedulerName,omitempty"`

	// Queue is the queue of Volcano for all PodGroups. If it is empty, the default, Volcano chooses the queue.
	Queue string `json:"queue,omitempty"`
}

// A Koordinator configures Koordinator.
type Koordinator struct {
	// SchedulerName is the name under which Koordinator runs. It defaults to koord-scheduler.
	SchedulerName string `json:"schedulerName,omitempty"`

	// Mode is Strict if all members of a gang release their nodes when one member has no node, NonStrict if they keep them. It defaults to
	// Strict: with NonStrict, gangs may deadlock.
	Mode KoordinatorMode `json:"mode,omitempty"`

	// TimeoutSeconds is how long placed members of a gang wait for the other members. If it is not set, Koordinator uses its own default.
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// A KoordinatorMode decides whether the members of a gang keep their nodes when another member has no node.
type KoordinatorMode string

const (
	// KoordinatorStrict releases the nodes.
	KoordinatorStrict KoordinatorMode = "Strict"
	// KoordinatorNonStrict keeps the nodes.
	KoordinatorNonStrict KoordinatorMode = "NonStrict"
)

// SchedulerName returns the schedulerName that the pods of gangs get, or "" if they keep their own.
func (g *Gang) SchedulerName(provider GangProvider) string {
	switch provider {
	case GangProviderCoscheduling:
		return g.Coscheduling.SchedulerName
	case GangProviderVolcano:
		return g.Volcano.SchedulerName
	case GangProviderKoordinator:
		return g.Koordinator.SchedulerName
	case GangProviderNone, GangProviderKube:
		return ""
	}
	return ""
}
