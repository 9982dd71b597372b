package schedulergang

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const kaiQueueLabel = "kai.scheduler/queue"

// KAI is the provider for the KAI scheduler. Its pod grouper creates all PodGroups itself, from the JobSet, and overrides settings of pods. So
// Tranche creates no objects, and refuses gangs that the pod grouper would not create.
type KAI struct {
	// SchedulerName defaults to kai-scheduler.
	SchedulerName string
	// Queue of KAI that the pods are in. Without it they are in the one that the user names with a label.
	Queue string
}

// Kinds returns no kinds.
func (KAI) Kinds() []Kind { return nil }

// Objects returns no objects.
func (KAI) Objects(*GangSet, int) []Object { return nil }

// Pods returns the scheduler and the label of the queue.
func (k KAI) Pods(*GangSet, *PodGroupTemplate, *Member, string) PodFields {
	fields := PodFields{SchedulerName: cmp.Or(k.SchedulerName, apis.KAIScheduler)}
	if k.Queue != "" {
		fields.Labels = map[string]string{kaiQueueLabel: k.Queue}
	}
	return fields
}

// UserGangName returns nothing: pods of a JobSet cannot choose their gang.
func (KAI) UserGangName(*corev1.PodTemplateSpec) string { return "" }

// Unsupported compares a group with what the pod grouper creates: one gang of the JobSet if startupPolicyOrder is AnyOrder, which the JobSet
// controller sets if there is no startupPolicy; otherwise one of each ReplicatedJob. Both are the same if there is only one.
func (KAI) Unsupported(gangSet *GangSet, podGroupTemplate *PodGroupTemplate) string {
	isOneGang := gangSet.Order == jobset.AnyOrder
	switch {
	case podGroupTemplate.Mode == jobsetapi.GangModeReplicatedGang && podGroupTemplate.Gangs() > 1:
		return fmt.Sprintf("the KAI scheduler makes no gangs of single Jobs: set %s, or use a ReplicatedJob for each Job", jobsetapi.GangModeGang)
	case gangSet.replicatedJobs <= 1:
		return ""
	case podGroupTemplate.token == wholeJobSet && !isOneGang:
		return fmt.Sprintf("the KAI scheduler makes a gang of each ReplicatedJob unless spec.startupPolicy.startupPolicyOrder is %s: set that order, or set %s on each ReplicatedJob",
			jobset.AnyOrder, jobsetapi.GangModeGang)
	case podGroupTemplate.token != wholeJobSet && isOneGang:
		return fmt.Sprintf("the KAI scheduler makes one gang of the whole JobSet if spec.startupPolicy.startupPolicyOrder is %s: set the order to %s, or set %s in spec.gangConfig",
			jobset.AnyOrder, jobset.InOrder, jobsetapi.GangModeGang)
	default:
		return ""
	}
}
