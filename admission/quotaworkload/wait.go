package quotaworkload

import kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

// A Wait is why a quota Workload holds no quota.
type Wait struct {
	// Reason is the most specific reason of Kueue for QuotaReserved=False, such as WaitingForQuota, and Message a sentence for the owner.
	Reason, Message string
	// KueueReason and KueueMessage are what Kueue writes into the condition QuotaReserved with default feature gates. An empty reason means
	// Pending, and an empty message means Message.
	KueueReason, KueueMessage string
	// Requests is the requested quota. If it is nil, the status keeps the requests of an earlier refusal.
	Requests []kueue.PodSetRequest
}
