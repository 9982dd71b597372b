package workloadstatus

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
)

const (
	// quickRetries is how many times in a row a reservation may be rejected before a quota Workload pauses, and longestPause how long it pauses at most.
	quickRetries = 3
	longestPause = time.Minute
)

// Pause returns how much longer a quota Workload whose reservations AdmissionChecks have rejected again and again should stay out of its queue, and why:
// twice as long each time. Kueue may choose the quota that is rejected each time, for instance the same flavor, while another one would be accepted. Its
// own delay, status.admissionChecks[].requeueAfterSeconds, does not serve: Kueue's manager keeps the reservation until it has passed.
func Pause(workload *kueue.Workload, now time.Time) (left time.Duration, why string) {
	evicted := quotaworkload.FindTrue(workload, kueue.WorkloadEvicted)
	if evicted == nil || evicted.Reason != kueue.WorkloadEvictedByAdmissionCheck {
		return 0, ""
	}
	times := 0
	for i := range workload.Status.AdmissionChecks {
		times = max(times, int(ptr.Deref(workload.Status.AdmissionChecks[i].RetryCount, 0)))
	}
	if times <= quickRetries {
		return 0, ""
	}
	until := evicted.LastTransitionTime.Add(min(time.Second<<min(times-quickRetries, 30), longestPause))
	return until.Sub(now), fmt.Sprintf("quota was reserved for it and rejected by an AdmissionCheck %d times in a row: it asks again at %s",
		times, until.UTC().Format(time.RFC3339))
}
