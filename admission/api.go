package admission

import (
	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/internal/check"
	"github.com/tranche-dev/tranche/admission/internal/decision"
	"github.com/tranche-dev/tranche/admission/internal/observe"
	"github.com/tranche-dev/tranche/admission/internal/queuespec"
	"github.com/tranche-dev/tranche/admission/internal/report"
	"github.com/tranche-dev/tranche/admission/internal/settings"
)

type (
	// An Event is one observed fact about the world.
	Event = observe.Event
	// FlavorObserved reports that a ResourceFlavor exists with this content.
	FlavorObserved = observe.FlavorObserved
	// FlavorGone reports that a ResourceFlavor no longer exists.
	FlavorGone = observe.FlavorGone
	// ClusterQueueObserved reports that a ClusterQueue exists with this content.
	ClusterQueueObserved = observe.ClusterQueueObserved
	// ClusterQueueGone reports that a ClusterQueue no longer exists.
	ClusterQueueGone = observe.ClusterQueueGone
	// QueuesTaken reports that Kueue no longer admits anything in ClusterQueues that ask for Tranche.
	QueuesTaken = observe.QueuesTaken
	// QueueReturned reports that the Engine must not admit in a ClusterQueue that was taken.
	QueueReturned = observe.QueueReturned
	// CohortObserved reports that a Cohort exists with this content.
	CohortObserved = observe.CohortObserved
	// CohortGone reports that a Cohort no longer exists.
	CohortGone = observe.CohortGone
	// CheckObserved reports that an AdmissionCheck exists with this content.
	CheckObserved = observe.CheckObserved
	// CheckGone reports that an AdmissionCheck no longer exists.
	CheckGone = observe.CheckGone
	// LocalQueueObserved reports that a LocalQueue exists with this content.
	LocalQueueObserved = observe.LocalQueueObserved
	// LocalQueueGone reports that a LocalQueue no longer exists.
	LocalQueueGone = observe.LocalQueueGone
	// NamespaceObserved reports that a Namespace exists with these labels.
	NamespaceObserved = observe.NamespaceObserved
	// NamespaceGone reports that a Namespace no longer exists.
	NamespaceGone = observe.NamespaceGone
	// LimitRangeObserved reports that a LimitRange exists with this content.
	LimitRangeObserved = observe.LimitRangeObserved
	// LimitRangeGone reports that a LimitRange no longer exists.
	LimitRangeGone = observe.LimitRangeGone
	// RuntimeClassObserved reports that a RuntimeClass exists with this overhead of each pod.
	RuntimeClassObserved = observe.RuntimeClassObserved
	// RuntimeClassGone reports that a RuntimeClass no longer exists.
	RuntimeClassGone = observe.RuntimeClassGone
	// DeviceClassObserved reports that a DeviceClass exists with this content.
	DeviceClassObserved = observe.DeviceClassObserved
	// DeviceClassGone reports that a DeviceClass no longer exists.
	DeviceClassGone = observe.DeviceClassGone
	// ClaimTemplateObserved reports that a ResourceClaimTemplate exists with this content.
	ClaimTemplateObserved = observe.ClaimTemplateObserved
	// ClaimTemplateGone reports that a ResourceClaimTemplate no longer exists.
	ClaimTemplateGone = observe.ClaimTemplateGone
	// PlanObserved reports the plan of a JobSet or a gang of pods.
	PlanObserved = observe.PlanObserved
	// PlanGone reports that a JobSet, or the plan of a gang, no longer exists.
	PlanGone = observe.PlanGone
	// WorkloadObserved reports that a quota Workload exists with this content.
	WorkloadObserved = observe.WorkloadObserved
	// WorkloadGone reports that a quota Workload no longer exists: the one with this UID, or if that is empty, any with this name.
	WorkloadGone = observe.WorkloadGone
	// TombstoneCleared reports that a quota Workload with a tombstone may exist after all, and that the sender is about to read it from the API server.
	TombstoneCleared = observe.TombstoneCleared
)

type (
	// An Owner is the object that a stage plan belongs to.
	Owner = decision.Owner
	// A StageKey names a stage by the quota Workload that stands for it.
	StageKey = decision.StageKey
	// A DecisionID names a decision that has not been settled yet.
	DecisionID = decision.ID
	// A Decision is a change that the Engine has made to its own state and that must now be written to the API.
	Decision = decision.Decision
	// Admit reserves quota for a stage and admits it.
	Admit = decision.Admit
	// Evict takes quota back from a stage.
	Evict = decision.Evict
	// Notice reports to a stage that it will be evicted, and when.
	Notice = decision.Notice
	// A Preemption describes for which stage a victim is evicted, and why.
	Preemption = decision.Preemption
	// Refuse reports why a stage waits.
	Refuse = decision.Refuse
	// A Refusal is one reason why a stage is not admitted.
	Refusal = decision.Refusal
)

type (
	// A Config has the defaults of an Engine, for what objects leave open.
	Config = settings.Config
	// A CoStart is how policy Safe treats a stage that holds accelerators and starts other stages when it is ready.
	CoStart = queuespec.CoStart
	// A LookAhead bounds how many JobSets are prepared ahead.
	LookAhead = settings.LookAhead
	// A Reservation is when quota is reserved for a stage that waits for quota.
	Reservation = queuespec.Reservation
	// A UsagePolicy is how the past usage of LocalQueues determines their order in a ClusterQueue (KEP-4136).
	UsagePolicy = fairshare.UsagePolicy
)

type (
	// An Activity is the condition Active of a queue.
	Activity = queuespec.Activity
)

type (
	// A ClusterQueueView has all values for the status of a ClusterQueue.
	ClusterQueueView = report.ClusterQueueView
	// A Takeover is the state of a cohort tree in which some ClusterQueue asks for Tranche beside Kueue, or is taken.
	Takeover = report.Takeover
	// A Pending is a pending stage with its queue position.
	Pending = report.Pending
	// A Page is a part of a queue: at most Limit stages, starting at Offset.
	Page = report.Page
	// A Stats is the state of all queues at one instant.
	Stats = report.Stats
	// A ClusterQueueStats is the state of a ClusterQueue that exists.
	ClusterQueueStats = report.ClusterQueueStats
	// A LocalQueueStats is the state of a LocalQueue that exists.
	LocalQueueStats = report.LocalQueueStats
	// A CohortStats is the state of a Cohort with everything below it.
	CohortStats = report.CohortStats
	// ChargeSnapshot are the amounts that the Engine charges at one instant: for each stage, and summed up for each queue as its decisions use them.
	ChargeSnapshot = report.ChargeSnapshot
	// A StageCharge is the charge of one stage.
	StageCharge = report.StageCharge
	// A ClusterQueueCharge has the sums of a ClusterQueue.
	ClusterQueueCharge = report.ClusterQueueCharge
	// A FlavorAmount is an amount of one flavor and resource.
	FlavorAmount = report.FlavorAmount
)

// Stage-admission policies.
const (
	// JobSetOwner is a JobSet, which is admitted stage by stage.
	JobSetOwner = decision.JobSetOwner
	// GangOwner is a gang of pods that is admitted in parts.
	GangOwner = decision.GangOwner
)

const (
	// Safe admits a stage only if all JobSets that hold quota can still finish.
	Safe = settings.Safe
	// Reserve reserves the peak of a hold segment from its first stage on.
	Reserve = settings.Reserve
	// Greedy only checks whether the stage itself fits. JobSets can deadlock.
	Greedy = settings.Greedy
)

// Checks that no release of quota can satisfy: Explanations name them.
const (
	// WithinLimits is the check that a stage fits if nothing is charged.
	WithinLimits = check.WithinLimits
	// PeakWithinLimits is the check that the stages fit which a JobSet may hold at once, if nothing else is charged.
	PeakWithinLimits = check.PeakWithinLimits
	// DelaysNone is the check that a stage delays none for which quota is reserved because it has waited for long.
	DelaysNone = check.DelaysNone
)
