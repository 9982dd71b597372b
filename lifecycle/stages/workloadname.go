package stages

import (
	"crypto/sha1" //nolint:gosec // Kueue's names of quota Workloads are made with it; nothing here is secret
	"encoding/hex"
	"fmt"
	"strings"

	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/tranche-dev/tranche/admission/stageplan"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

const (
	maxNameLength  = 253
	nameHashLength = 5
)

// workloadName returns the name of the quota Workload of a stage. Names sort in the order of the plan, and differ for two JobSets that have
// the same name one after the other. A JobSet of one stage gets the name that Kueue gives. The growths of a stage are numbered from 1.
func workloadName(js *jobsetapi.JobSet, plan *stageplan.Plan, index, growth int) string {
	var parts []string
	if n := len(plan.Stages); n > 1 {
		digits := len(fmt.Sprint(n - 1))
		stage := strings.ToLower(strings.ReplaceAll(plan.Stages[index].Name, "_", "-"))
		parts = append(parts, fmt.Sprintf("%0*d-%s", digits, index, stage))
	}
	if growth > 0 {
		parts = append(parts, fmt.Sprintf("growth-%d", growth))
	}
	extra := strings.Join(parts, "-")
	prefix := strings.Join(append([]string{"jobset", js.Name}, parts...), "-")
	identity := fmt.Sprintf("JobSet\n%s\n%s\n%s", jobset.GroupVersion.Group, js.Name, js.UID)
	if extra != "" {
		identity += "\n" + extra
	}
	hash := sha1.Sum([]byte(identity)) //nolint:gosec // see the import
	prefix = strings.TrimRight(prefix[:min(len(prefix), maxNameLength-1-nameHashLength)], "-.")
	return prefix + "-" + hex.EncodeToString(hash[:])[:nameHashLength]
}
