package jobsetstate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/constants"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/workloadname"
)

// GrowthNumber returns the number of a growth, or 0 for the quota Workload of a stage.
func GrowthNumber(workload *kueue.Workload) int {
	number, err := strconv.Atoi(workload.Labels[apis.GrowthLabel])
	if err != nil && workload.Labels[apis.GrowthLabel] != "" {
		return 1 // the admission policies reject this label, but it is not the quota Workload of a stage
	}
	return number
}

// SortGrowths sorts the growths of a stage by number, the oldest first.
func SortGrowths(growths []*kueue.Workload) {
	slices.SortFunc(growths, func(a, b *kueue.Workload) int {
		return cmp.Or(cmp.Compare(GrowthNumber(a), GrowthNumber(b)), cmp.Compare(a.UID, b.UID))
	})
}

// MayUse reports whether pods may run on the quota of a growth.
func (s *Snapshot) MayUse(growth *kueue.Workload) bool {
	return quotaworkload.HoldsQuota(growth) && quotaworkload.IsTrue(growth, kueue.WorkloadAdmitted) && !quotaworkload.IsTrue(growth, kueue.WorkloadEvicted) &&
		!quotaworkload.IsTrue(growth, kueue.WorkloadFinished) && growth.DeletionTimestamp.IsZero() && len(quotaworkload.Gates(growth)) == 0 && s.Charged[growth.UID]
}

// WorkloadName returns the name of the quota Workload of a stage. Names sort in the order of the plan, and differ for two JobSets that have
// the same name one after the other. A JobSet of one stage gets the name that Kueue gives. The growths of a stage are numbered from 1.
func WorkloadName(js *jobsetapi.JobSet, plan *stageplan.Plan, index, growth int) string {
	var parts []string
	if n := len(plan.Stages); n > 1 {
		digits := len(fmt.Sprint(n - 1))
		stage := strings.ToLower(strings.ReplaceAll(plan.Stages[index].Name, "_", "-"))
		parts = append(parts, fmt.Sprintf("%0*d-%s", digits, index, stage))
	}
	if growth > 0 {
		parts = append(parts, fmt.Sprintf("growth-%d", growth))
	}
	owner := workloadname.Owner{Kind: "JobSet", Group: jobset.GroupVersion.Group, Name: js.Name, UID: js.UID}
	return workloadname.Of(owner, strings.Join(parts, "-"))
}

// Labels that the JobSet controller puts on child Jobs and their pods.
const (
	RestartAttemptLabel    = constants.RestartsKey
	JobRestartAttemptLabel = constants.JobRestartAttemptKey
)

// ReplicasOf returns how many Jobs each ReplicatedJob of a JobSet has.
func ReplicasOf(js *jobsetapi.JobSet) map[string]int32 {
	replicas := map[string]int32{}
	for i := range js.Spec.ReplicatedJobs {
		replicas[js.Spec.ReplicatedJobs[i].Name] = js.Spec.ReplicatedJobs[i].Replicas
	}
	return replicas
}

// ReplicatedJobOf returns the ReplicatedJob to which a Job or a pod belongs.
func ReplicatedJobOf(object metav1.Object) string {
	return object.GetLabels()[jobset.ReplicatedJobNameKey]
}

// QueueOf returns the LocalQueue that a JobSet names.
func QueueOf(js *jobsetapi.JobSet) kueue.LocalQueueName {
	return kueue.LocalQueueName(apis.QueueNameOf(js.Labels))
}

// ExecutionTimeOf returns the maximum execution time of each quota Workload of a JobSet in seconds, or nil.
func ExecutionTimeOf(js *jobsetapi.JobSet) *int32 {
	seconds, err := strconv.ParseInt(js.Labels[apis.MaxExecTimeLabel], 10, 32)
	if err != nil || seconds <= 0 {
		return nil
	}
	return new(int32(seconds))
}
