// Package apis holds the names that Tranche adds to Kubernetes objects, and those of Kueue that it relies on but that Kueue's
// API packages do not export. It has no logic: the types of the JobSet superset and of the configuration file are in its
// sub-packages.
package apis

import "time"

// Labels and annotations of the group tranche.dev. Only the manager and Tranche's admission policies may write those on JobSets
// and Jobs, unless the comment states otherwise.
const (
	// HoldLabel marks a Job that may not start before the manager releases it. The admission policies put it on
	// spec.replicatedJobs[*].template.metadata of every JobSet that is queued, or that has startupPolicy.rules, gangs or a group, and the
	// JobSet controller hands it down to the child Jobs.
	HoldLabel = "tranche.dev/hold"

	// HoldValue is the value of HoldLabel on Jobs that run on quota.
	HoldValue = "true"

	// HoldUnqueued is the value of HoldLabel on the Jobs of a JobSet without a queue. They are held for their order, their gangs and their
	// groups, and run without quota.
	HoldUnqueued = "unqueued"

	// HoldQueued is the value of HoldLabel on a queued Job: a Job with QueueLabel that is a submission of its own. The admission policies set
	// it when the Job is created, or gets QueueLabel while it is suspended.
	HoldQueued = "queued"

	// HoldAdopted is the value of HoldLabel on the Jobs of a JobSet that ran when Tranche was installed. They were never held. The manager sets it,
	// so that the admission policies guard them.
	HoldAdopted = "adopted"

	// HeldAnnotation is "true" on the pod templates of a JobSet that is queued although it was created before the admission policies. It can get no
	// HoldLabel: the labels of its Job templates cannot change. The admission policies put HoldLabel on each Job whose pod template has the annotation.
	// Only the manager writes it.
	HeldAnnotation = "tranche.dev/held"

	// FinishedStagesAnnotation names, on a JobSet without a queue, the stages that have succeeded in its current attempt, because their Jobs
	// may be gone by now. Its value is FinishedStages in JSON. Only the manager writes it.
	FinishedStagesAnnotation = "tranche.dev/finished-stages"

	// PausedAnnotation is "true" on a JobSet without a queue while the manager suspends it, so that the JobSet controller creates the Jobs
	// of a stage that start together. Without it the user has requested the suspension. Only the manager writes it.
	PausedAnnotation = "tranche.dev/paused"

	// JobSetLabel names, on a quota Workload, on objects of gangs and on the ConfigMap of a group, the JobSet that it belongs to.
	JobSetLabel = "tranche.dev/jobset"

	// AdoptedAnnotation is on the quota Workload of a Job or a JobSet that ran when Tranche was installed: it is charged as it is, also beyond
	// quota, and no preemption evicts it.
	AdoptedAnnotation = "tranche.dev/adopted"

	// QueueJobsBinding and HoldJobSetsBinding are the MutatingAdmissionPolicyBindings of the policies that hold queued Jobs and JobSets. Objects that
	// were created before these are adopted.
	QueueJobsBinding   = "tranche-queue-jobs"
	HoldJobSetsBinding = "tranche-hold-jobsets"

	// JobLabel names, on a quota Workload, the queued Job that it belongs to.
	JobLabel = "tranche.dev/job"

	// SuspendedAnnotation is on a queued Job that its user has suspended: it releases its quota, and queues again when the annotation is
	// removed. Users may write it. The admission policies add it when a user sets spec.suspend of a running Job to true, and remove it when a
	// user sets spec.suspend to false.
	SuspendedAnnotation = "tranche.dev/suspended"

	// ElasticJobAnnotation is Kueue's annotation of Jobs whose parallelism may change while they run.
	ElasticJobAnnotation = "kueue.x-k8s.io/elastic-job"

	// UnnoticedAnnotation is on a queued Job that its user suspended before the Job controller had noticed its release. The admission policies
	// add it, and the manager removes it with the condition Suspended of the Job, which is older than the release.
	UnnoticedAnnotation = "tranche.dev/unnoticed"

	// SizeAnnotation is, on a queued Job that was admitted with fewer pods than it asks for, its own parallelism and, if they are equal by
	// MinParallelismEqualAnnotation, its completions. On an elastic Job it is the parallelism that its user wants, and for which there is no quota
	// yet. Users may remove it.
	SizeAnnotation = "tranche.dev/parallelism"

	// CompletionsAnnotation is, on an elastic Job, the completions that its user wants together with SizeAnnotation, if they are others.
	CompletionsAnnotation = "tranche.dev/completions"

	// StageLabel names, on a quota Workload, its stage of the JobSet, and on a PodGroup the stage that it starts with.
	StageLabel = "tranche.dev/stage"

	// QuotaInUseFinalizer is on the quota Workload of a stage that another engine admits, until no pod uses its quota, and until its JobSet has
	// finished, since it records that the stage has succeeded. Kueue's manager removes its own finalizer from Workloads that it deletes, and from
	// those of JobSets that are deleted. Where Tranche admits, quota Workloads have Kueue's finalizer instead.
	QuotaInUseFinalizer = "tranche.dev/quota-in-use"

	// StageIndexLabel is, on a quota Workload, the position of its stage in the stage plan, counted from 0.
	StageIndexLabel = "tranche.dev/stage-index"

	// GrowthLabel numbers, on a quota Workload, the growths of its stage, counted from 1. Such a Workload asks only for the pods by which a
	// stage that holds quota has grown. The Workload of the stage itself does not have it.
	GrowthLabel = "tranche.dev/growth"

	// FlavorsAnnotation lists, on a quota Workload and separated by commas, the flavors that its pods can run on, because pods of the same
	// Jobs run on them already. An entry is PODSET/RESOURCE=FLAVOR.
	FlavorsAnnotation = "tranche.dev/flavors"

	// StartedAnnotation is set on a JobSet by the write that first resumes it. Once it is set, spec.suspend=true is requested by the user;
	// before, it only means that no stage has been admitted yet. On a quota Workload of a gang of pods it is the time since when pods have
	// been ungated under its current admission.
	StartedAnnotation = "tranche.dev/started"

	// DevicesAnnotation lists, on a pod template of the quota Workload of a stage, the resources in its overhead that are charged for
	// devices which its pods claim. No node has them.
	DevicesAnnotation = "tranche.dev/devices"

	// ClaimTemplatesAnnotation lists, on the same pod template, the ResourceClaimTemplates that were counted, as NAME=UID. If one is
	// replaced by another of its name, the stage queues again.
	ClaimTemplatesAnnotation = "tranche.dev/claim-templates"

	// AttemptAnnotation is, on a quota Workload, the value of status.restarts of its JobSet for which the Workload counts.
	AttemptAnnotation = "tranche.dev/attempt"

	// SucceededJobsAnnotation lists, on the quota Workload of a stage, the Jobs that have succeeded in this attempt, so that they need not
	// run again if they are deleted: the names of ReplicatedJobs with ranges of indexes, as "ps=0-3;worker=1,4".
	SucceededJobsAnnotation = "tranche.dev/succeeded-jobs"

	// StageAdmissionAnnotation overrides the stage-admission policy. Users may set it on ClusterQueues and JobSets.
	StageAdmissionAnnotation = "tranche.dev/stage-admission"

	// MinimumRuntimeAnnotation overrides, on a ClusterQueue, preemption.minimumRuntime of the configuration for the stages that run there: a duration,
	// as 30m. Admins may write it.
	MinimumRuntimeAnnotation = "tranche.dev/minimum-runtime"

	// PreemptionNoticeAnnotation overrides, on a ClusterQueue, preemption.notice of the configuration for the stages that run there: a duration, as 2m.
	// Admins may write it.
	PreemptionNoticeAnnotation = "tranche.dev/preemption-notice"

	// CheckpointedAtAnnotation says, on a JobSet, since when its work would be lost if it were evicted now: the time of its last checkpoint, as
	// 2026-01-02T15:04:05Z. Preemption prefers victims that lose less, with preemption.leastWork. Users may write it.
	CheckpointedAtAnnotation = "tranche.dev/checkpointed-at"

	// CoStartAnnotation overrides, on a ClusterQueue, coStart of the configuration: a duration, as 10m, is its reserveFor, and Never disables
	// co-start. Users may set it.
	CoStartAnnotation = "tranche.dev/co-start-reserve-for"

	// ReserveAfterAnnotation overrides, on a ClusterQueue, reservation.after of the configuration: a duration, or Never. Users may set it.
	ReserveAfterAnnotation = "tranche.dev/reserve-after"

	// EngineAnnotation names, on a ClusterQueue, who admits in its cohort tree in the mode Beside: EngineTranche or EngineKueue, which is the
	// default. Tranche admits if all ClusterQueues of the tree have the same value, and spec.stopPolicy is Hold in all of them. Users may set it.
	EngineAnnotation = "tranche.dev/engine"

	// StopPolicyAnnotation is, on a ClusterQueue in which Tranche admits beside Kueue, None or Hold: spec.stopPolicy is for Kueue there. Users may
	// set it.
	StopPolicyAnnotation = "tranche.dev/stop-policy"

	// TakeoverProbeLabel is on an object that the manager asks the API server to create without creating it, to learn whether the policies see
	// that it admits in a ClusterQueue.
	TakeoverProbeLabel = "tranche.dev/takeover-probe"

	// GangAnnotation replaces gangConfig.gangMode of KEP-1068 on clusters that keep the upstream CRD, which has no such field: Off or Gang
	// on a JobSet; Off, Gang or ReplicatedGang on spec.replicatedJobs[*].template.metadata. Users may set it when they create a JobSet.
	GangAnnotation = "tranche.dev/gang"

	// StartupRulesAnnotation records, on a JobSet, the startupPolicy.rules that it was created with, as "prepare,fetch=Succeeded;cache=Ready". The API
	// server drops that field when the JobSet is written while it serves another CRD of JobSets. The admission policies set it.
	StartupRulesAnnotation = "tranche.dev/startup-rules"

	// GangGroupAnnotation identifies, on spec.replicatedJobs[*].template.metadata and on child Jobs, the gang of a Job in its JobSet: all,
	// or the index of the ReplicatedJob in the spec, followed by an x if each Job is a gang. The admission policies set it.
	GangGroupAnnotation = "tranche.dev/gang-group"

	// GangProviderAnnotation, on a LocalQueue or a ResourceFlavor, names the scheduler that places the gangs of its JobSets, instead of
	// gang.provider in the manager's configuration. The manager copies the effective value into the pod templates of a JobSet when it
	// starts it.
	GangProviderAnnotation = "tranche.dev/gang-provider"

	// GangSchedulerAnnotation is, next to GangProviderAnnotation in a pod template, the schedulerName of its pods, if that scheduler has a
	// name of its own.
	GangSchedulerAnnotation = "tranche.dev/gang-scheduler"

	// GroupStartAnnotation, on spec.replicatedJobs[*].template.metadata and on child Jobs, makes the main containers of their pods wait
	// until all pods of the group have started, for at most this number of seconds. The group has all ReplicatedJobs of the JobSet with the
	// annotation. The admission policies set it for groupSchedulingConfig of KEP-498. On clusters that keep the upstream CRD, which has no
	// such field, users may set it when they create a JobSet; on the JobSet itself it applies to all ReplicatedJobs.
	GroupStartAnnotation = "tranche.dev/group-start"

	// ReleaseAnnotation counts, on the pod templates of child Jobs that are in such a group, how often the Job has been released.
	ReleaseAnnotation = "tranche.dev/release"

	// AdmissionAdditionsAnnotation lists, on a released Job, what its admission has added to the pod template besides node labels, so that it
	// can be removed again.
	AdmissionAdditionsAnnotation = "tranche.dev/admission-additions"

	// UninstalledAnnotation is added to a JobSet and removed again by `tranche uninstall`, so that the JobSet controller reconciles it.
	UninstalledAnnotation = "tranche.dev/uninstalled"

	// OwnQueueLabel names, on a JobSet, its LocalQueue instead of QueueLabel. Kueue's integration of JobSets leaves such a JobSet alone.
	OwnQueueLabel = "tranche.dev/queue-name"

	// RequireQueueLabel, with value "true" on a Namespace, makes a JobSet, or a pod of a group, without a queue name an error there.
	RequireQueueLabel = "tranche.dev/require-queue"

	// ExplanationAnnotation has, on a PendingWorkload of Kueue's visibility API, the reason why it waits, as JSON (apis/visibility). It
	// has only the reason and the message unless one quota Workload is requested by name. No object in the cluster has it.
	ExplanationAnnotation = "tranche.dev/explanation"

	// FlavorNodeLabelsAnnotation lists, on a released Job, the keys of the node labels that came from ResourceFlavors, so that another
	// admission can remove them.
	FlavorNodeLabelsAnnotation = "tranche.dev/flavor-node-labels"
)

// Never is the value of annotations with a duration that disables what they are about. LongestSpan is the longest duration that they may have.
const (
	Never       = "Never"
	LongestSpan = 365 * 24 * time.Hour
)

// Values of EngineAnnotation.
const (
	EngineTranche = "Tranche"
	EngineKueue   = "Kueue"
)

// WaitingCondition is the type of a condition of quota Workloads that hold no quota. Its reason is the finest of Kueue's reasons, such as
// WaitingForQuota, and its message is for the user: the condition QuotaReserved has the reason and the message that Kueue writes.
const WaitingCondition = "tranche.dev/Waiting"

// PreemptionPendingCondition is the type of a condition of quota Workloads, and of JobSets. It is true while a stage that is preempted still runs, until
// the time in its message. It is false once the preemption has begun, or the notice was withdrawn.
const PreemptionPendingCondition = "PreemptionPending"

// Admission gates: values in the annotation AdmissionGatedByAnnotation of quota Workloads.
const (
	// StageSafetyController is spec.controllerName of AdmissionChecks by which the manager judges stages that Kueue's manager admits.
	StageSafetyController = "tranche.dev/stage-safety"

	// StageGate gates a stage whose start conditions are not met yet.
	StageGate = "tranche.dev/stage"

	// SuspendedGate gates the stages of a JobSet, or the quota Workload of a queued Job, that its user has suspended.
	SuspendedGate = "tranche.dev/suspended"

	// AdoptionGate gates the quota Workload of an object that ran when Tranche was installed, until its admission is written.
	AdoptionGate = "tranche.dev/adoption"

	// ResizeGate gates a stage that has released its quota until it asks for its current number of pods.
	ResizeGate = "tranche.dev/resize"

	// DeactivatedGate gates the stages of a JobSet after one of its stages was evicted because its quota Workload is not active.
	DeactivatedGate = "tranche.dev/deactivated"
)

// Names of Kueue that its API packages do not export.
const (
	// QueueLabel names, on a JobSet, a Job or a pod of a group, its LocalQueue.
	QueueLabel = "kueue.x-k8s.io/queue-name"

	// PriorityClassLabel names, on a JobSet or a Job, the WorkloadPriorityClass of its quota Workloads.
	PriorityClassLabel = "kueue.x-k8s.io/priority-class"

	// MinParallelismAnnotation lets a Job be admitted with so few pods at once. With CompletionsEqualAnnotation "true" it then also has as few
	// completions.
	MinParallelismAnnotation   = "kueue.x-k8s.io/job-min-parallelism"
	CompletionsEqualAnnotation = "kueue.x-k8s.io/job-completions-equal-parallelism"

	// JobUIDLabel is, on a quota Workload, the UID of its owner.
	JobUIDLabel = "kueue.x-k8s.io/job-uid"

	// MaxExecTimeLabel limits, on a JobSet or a Job and in seconds, how long each of its quota Workloads may be admitted.
	MaxExecTimeLabel = "kueue.x-k8s.io/max-exec-time-seconds"

	// PrebuiltWorkloadKey names, as a label or an annotation of a JobSet or a pod, a quota Workload that its user has created. It is
	// refused.
	PrebuiltWorkloadKey = "kueue.x-k8s.io/prebuilt-workload-name"

	// PriorityBoostAnnotation is added, on a quota Workload, to its priority.
	PriorityBoostAnnotation = "kueue.x-k8s.io/priority-boost"

	// AllowedFlavorsAnnotation lists, on a quota Workload of Kueue, the flavors that it may have. It is refused.
	AllowedFlavorsAnnotation = "kueue.x-k8s.io/workload-allowed-resource-flavors"

	// ConcurrentParentLabel marks, with value "true", a quota Workload of Kueue that asks for several flavors at once. It is refused.
	ConcurrentParentLabel = "kueue.x-k8s.io/concurrent-admission-parent"

	// SliceNameAnnotation and SliceReplacementAnnotation are on a quota Workload of Kueue that replaces a smaller one. They are refused.
	SliceNameAnnotation        = "kueue.x-k8s.io/workload-slice-name"
	SliceReplacementAnnotation = "kueue.x-k8s.io/workload-slice-replacement-for"

	// AdmissionGatedByAnnotation lists, on a quota Workload and separated by commas, the gates that must be removed before it is admitted.
	AdmissionGatedByAnnotation = "kueue.x-k8s.io/admission-gated-by"
)

// Field managers of server-side apply. The first is Kueue's name, so that tools which clear an admission under that name still do.
const (
	// AdmissionFieldManager owns status.admission and the conditions about admission of quota Workloads.
	AdmissionFieldManager = "kueue-admission"

	// FieldManager owns everything else that the manager writes, except the conditions below.
	FieldManager = "tranche"

	// WaitingFieldManager owns WaitingCondition of quota Workloads in cohort trees that Tranche has taken over from Kueue.
	WaitingFieldManager = "tranche-waiting"

	// GroupStartFieldManager owns the condition GroupScheduling of JobSets.
	GroupStartFieldManager = "tranche-group-start"
)

// The identity and the location of the manager that the manifests in config install.
const (
	// SystemNamespace is where the manager and the parameters of the guards live.
	SystemNamespace = "tranche-system"

	// ManagerServiceAccount is the name of the manager's ServiceAccount in SystemNamespace.
	ManagerServiceAccount = "tranche-manager"

	// TakeoverConfigMap is the ConfigMap in SystemNamespace that locks the cohort trees in which the manager admits beside Kueue.
	TakeoverConfigMap = "tranche-takeover"

	// GuardsConfigMap is the ConfigMap in SystemNamespace with the parameters of the admission policies.
	GuardsConfigMap = "tranche-guards"
)

// The names under which schedulers of gangs run, as in their own manifests. The policy tranche-gang-jobs contains them, too.
const (
	// CoschedulingScheduler is the profile of scheduler-plugins.
	CoschedulingScheduler = "scheduler-plugins-scheduler"

	// VolcanoScheduler is that of Volcano.
	VolcanoScheduler = "volcano"

	// KoordinatorScheduler is that of Koordinator.
	KoordinatorScheduler = "koord-scheduler"
)

// ReservedPodSet is the pod set of a quota Workload of a gang that asks for a total before its pods are known.
const ReservedPodSet = "reserved"

// DeadlockedReason is the reason of QuotaReserved=False of a stage under policy Greedy that waits for JobSets that wait for its JobSet.
// Kueue has no reason for it.
const DeadlockedReason = "Deadlocked"

// QueueNameOf returns the name of the LocalQueue that the labels of a JobSet name, or "". OwnQueueLabel takes precedence.
func QueueNameOf(labels map[string]string) string {
	if name := labels[OwnQueueLabel]; name != "" {
		return name
	}
	return labels[QueueLabel]
}
