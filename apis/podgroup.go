package apis

// Names that the manager uses for the quota of gangs of pods.
const (
	// PodGroupKey identifies, as a label and as an annotation of a quota Workload, its gang of pods: KIND.NAME. A label that would be too
	// long is truncated and made unique again.
	PodGroupKey = "tranche.dev/pod-group"

	// ExtraLabel is, on an extra quota Workload, the UID of its one pod: a pod of a gang that has started without it.
	ExtraLabel = "tranche.dev/pod-group-extra"

	// PartsAnnotation is, on a quota Workload that is a part of a gang which is admitted in parts, the number of parts.
	PartsAnnotation = "tranche.dev/parts"

	// RoundAnnotation counts, on a quota Workload of a gang, the admissions that it has lost after pods were ungated under them.
	RoundAnnotation = "tranche.dev/round"

	// IdleSinceAnnotation is, on a quota Workload of a gang, the time since when no pod uses it, and no waiting pod can.
	IdleSinceAnnotation = "tranche.dev/idle-since"

	// AdmissionAnnotation identifies, on a pod that runs, the admission of the quota Workload that pays for it, and the pod set:
	// UID.ROUND/PODSET.
	AdmissionAnnotation = "tranche.dev/admission"

	// GangMessageAnnotation reports, on a PodGroup, why its gang is pending, what to correct, or that the gang is admitted.
	GangMessageAnnotation = "tranche.dev/gang-message"

	// GangGate gates the quota Workloads of a gang whose pods do not all exist, or that does not ask for quota for another reason.
	GangGate = "tranche.dev/gang"
)

// Names of Kueue and of gang schedulers that identify the gang of a pod.
const (
	// PodGroupNameLabel names, as a label or an annotation of a pod, its group.
	PodGroupNameLabel = "kueue.x-k8s.io/pod-group-name"

	// PodSetLabel names, on a pod that was released or ungated, the pod set of its quota Workload. It is Kueue's.
	PodSetLabel = "kueue.x-k8s.io/podset"

	// ClusterQueueLabel and LocalQueueLabel name, on such a pod, the queues of its quota Workload. They are Kueue's.
	ClusterQueueLabel = "kueue.x-k8s.io/cluster-queue-name"
	LocalQueueLabel   = "kueue.x-k8s.io/local-queue-name"

	// PodGroupTotalCountAnnotation is, on a pod, the number of pods of its group.
	PodGroupTotalCountAnnotation = "kueue.x-k8s.io/pod-group-total-count"

	// PodGroupFastAdmissionAnnotation, PodGroupServingAnnotation and RetriableInGroupAnnotation change, on a pod, how Kueue admits its group.
	// The values that would change it are refused.
	PodGroupFastAdmissionAnnotation = "kueue.x-k8s.io/pod-group-fast-admission"
	PodGroupServingAnnotation       = "kueue.x-k8s.io/pod-group-serving"
	RetriableInGroupAnnotation      = "kueue.x-k8s.io/retriable-in-group"

	// CoschedulingLabel names, on a pod, its PodGroup of the group scheduling.x-k8s.io.
	CoschedulingLabel = "scheduling.x-k8s.io/pod-group"

	// KoordinatorLabel names, on a pod, its PodGroup of the group scheduling.sigs.k8s.io.
	KoordinatorLabel = "pod-group.scheduling.sigs.k8s.io"

	// KoordinatorOldPrefix begins labels of pods that identify their gang by themselves: name and min-available.
	KoordinatorOldPrefix = "pod-group.scheduling.sigs.k8s.io/"

	// KoordinatorPrefix begins annotations of pods and PodGroups: name, min-available, total-number, mode, groups, waiting-time.
	KoordinatorPrefix = "gang.scheduling.koordinator.sh/"

	// KoordinatorTimeoutAnnotation is "true" on the pods of a gang that did not start within its waiting time, and on a PodGroup for which
	// quota was reserved before its pods. Koordinator places no pod that has it.
	KoordinatorTimeoutAnnotation = KoordinatorPrefix + "timeout"

	// GroupNameAnnotation names, on a pod, its PodGroup of kube-batch or of Volcano.
	GroupNameAnnotation = "scheduling.k8s.io/group-name"
)

// Names that the manager and the admission policies share.
const (
	// PodAdmissionGate is the scheduling gate of pods that wait for quota. It is Kueue's.
	PodAdmissionGate = "kueue.x-k8s.io/admission"

	// KueueManagedKey is Kueue's label and finalizer of pods that it queues by themselves or as a group.
	KueueManagedKey = "kueue.x-k8s.io/managed"

	// PodGroupMemberLabel marks, with value "true", a pod that the admission policies have gated because it is in a gang.
	PodGroupMemberLabel = "tranche.dev/pod-group-member"

	// PodGroupMemberValue is the only value that PodGroupMemberLabel takes.
	PodGroupMemberValue = "true"

	// AdmitTogetherLabel is the same on all quota Workloads that are admitted together or not at all.
	AdmitTogetherLabel = "tranche.dev/admit-together"

	// AdmitTogetherCountAnnotation is the number of these quota Workloads.
	AdmitTogetherCountAnnotation = "tranche.dev/admit-together-count"

	// StartedTogetherAnnotation of a quota Workload names gangs of its group that have started since it was created, as NAMESPACE/NAME, separated by
	// commas. Their pods and quota Workloads may be gone.
	StartedTogetherAnnotation = "tranche.dev/started-together"

	// MaxTogether is the maximum number of quota Workloads that are admitted together.
	MaxTogether = 64

	// PlanUIDLabel makes a quota Workload a stage of the plan with this UID.
	PlanUIDLabel = "tranche.dev/plan-uid"
)
