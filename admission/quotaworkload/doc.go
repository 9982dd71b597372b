// Package quotaworkload reads facts from a quota Workload that the engine and the lifecycle of quota Workloads both need: whether it holds quota,
// which gates prevent it from asking for quota, whether its pods exist, what its reclaimable pods leave charged, and why it waits.
package quotaworkload
