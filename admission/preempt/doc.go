// Package preempt selects victims so that a request fits (KEP-83, KEP-1337, KEP-79, KEP-1714).
//
// A Holder holds quota of a Queue and is evicted as a whole. A Queue keeps its Holders in the order in which they are preempted, for each
// FlavorResource that they use: lower priority first, then the newest reservation, then the lower UID. In a Queue with levels (admission fair
// sharing, KEP-4136) the highest level comes before the newest reservation; there each search has to sort. A Finder answers a Request with a minimal
// set of victims: without any one of them the request does not fit, or another one is preempted unfairly. It sorts nothing else, and reads only
// Holders of missing quota: it merges the lists of the Queues that may have to yield, and stops as soon as the request fits.
//
// # Victims, classic
//
// First Holders of other Queues over which the request has an advantage: it fits into the quota of its own ClusterQueue, or of a Cohort
// above it, and they are outside of that and borrow (InCohortReclamation). Then Holders of other Queues without advantage, if
// borrowWithinCohort allows it (InCohortReclaimWhileBorrowing) or the request ends up without borrowing (InCohortReclamation). Of the request, only
// what is missing counts for that: it may borrow other resources, which are free. Then Holders of the own Queue (InClusterQueue). No Holder is
// preempted in a Queue that is within its own quota of what is missing, nor in one with such a Cohort above it, below the lowest Cohort that it shares
// with the request. In the end each victim that can stay is spared, from the last but one on.
//
// # Victims, with fair sharing
//
// The search goes from the root down, always to the child with the highest share. At equal shares a Cohort comes before a ClusterQueue, Cohorts
// are ordered by name and ClusterQueues by the Holders that they would yield next. Holders of the own Queue are preempted by priority, all others
// only if the strategy is met, or if the request fits into the quota of its own ClusterQueue.
//
// # Differences from Kueue
//
//   - A Holder that is already being evicted counts as gone, whatever evicts it and whatever its priority is.
//   - Without fair sharing, too, the right to preempt in other Queues depends only on what is missing. A ClusterQueue that borrows CPUs, which are free,
//     can still reclaim its GPUs.
//   - With fair sharing, too, no Holder is preempted in a ClusterQueue or Cohort that does not borrow any of what is missing.
//   - With fair sharing, a victim is spared only if all others would have been preempted without it as well. Otherwise the share of the request
//     is higher in the end than it was when the others were compared with it, and the two sides can take turns.
//   - With fair sharing, nothing is preempted if one of the victims could reclaim its quota from the request at once: if it fits into the quota of its
//     own ClusterQueue, and the request borrows that.
//   - In a Queue with levels, LowerOrNewerEqualPriority allows no victim of equal priority that would come before the request when it queues again:
//     there the level decides who is next, not the age.
//   - One request preempts the same victim at most a few times (History).
//
// # Preempting in other Queues
//
// A stage of a JobSet holds its quota while later stages wait for theirs. The most that the JobSet may hold at once before it releases anything
// (Request.Peaks) counts: a request preempts Holders of other Queues only if that peak could be obtained by the same rules. Otherwise two such JobSets
// could take turns: each reclaims its own quota for its first stage, and borrows the quota of the other for its second.
//
// # Minimum runtimes and lost work
//
// A Holder is passed over until it has run for the minimum runtime of its Queue. A request that fits into the quota of its own ClusterQueue which others
// have borrowed need not wait longer than that since it was queued. A Result without victims says when the next Holder may be preempted. With
// Finder.LeastWork, at equal priority those come first that lose the least time of accelerators, and each search sorts.
//
// # Evictions in progress
//
// The caller keeps a victim in its Queue and its Tree until it is gone, and marks it as evicting (Queue.Evict). The Tree then knows what will be
// charged later, and each search uses that state, so that it costs no more than its own victims.
//
// # Termination
//
// The rules alone can form circles: x reclaims quota from p, which borrows; y of the same ClusterQueue uses room that p has left, borrows and makes
// x a target for p, whose priority is higher. Longer circles exist: reclaim beats borrowing, priority beats in the own queue, priority beats while
// borrowing. So a History counts how often a Workload has preempted another one, and a Finder respects a limit. With n Workloads there are fewer
// than n² pairs, so there is a last preemption; after it Workloads are only admitted, which ends, too. Reclaiming one's own quota has a higher
// limit than all else, so that it is the last preemption of a circle.
//
// After a restart the History is restored from what each victim reports: its preemptors, and how often each of them has preempted it.
package preempt
