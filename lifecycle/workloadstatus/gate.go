package workloadstatus

import (
	"slices"
	"strings"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

// isGatedByOthers reports whether a gate of a quota Workload does not belong to Tranche.
func isGatedByOthers(workload *kueue.Workload) bool {
	return slices.ContainsFunc(quotaworkload.Gates(workload), func(gate string) bool { return !strings.HasPrefix(gate, "tranche.dev/") })
}
