// Package ledger computes from the objects alone what is charged, and what may be: it is the one account of all audits of the engine. It does not
// use the sums of the engine, so that the two can disagree.
//
//   - ChargesOf: what a quota Workload holds, in which ClusterQueue, of each flavor and resource.
//   - Quotas.Exceeded: whether ClusterQueues and Cohorts hold more than their quota and their limits allow.
//   - Overruns: whether live pods ask for more accelerators than is charged for them. A pod counts regardless of what created it, and of the status of its Job.
//
// For example, a Job is charged for 1 pod of 8 GPUs; one pod terminates, another one runs: asked 16, charged 8 -> an Overrun of 8.
package ledger
