// Package preempt finds out who has to leave so that a request fits (KEP-83, KEP-1337, KEP-79, KEP-1714).
//
// A Holder holds quota of a Queue and is evicted as a whole. A Queue keeps its Holders in the order in which they are taken, for each
// FlavorResource that they use: lower priority first, then the newest reservation, then the lower UID. In a Queue with levels (admission fair sharing, KEP-4136) the
// highest level comes before the newest reservation; there each search has to sort. A Finder answers a Request with
// a minimal set of victims: without any one of them the request does not fit, or another one is taken unfairly. It sorts nothing else, and looks
// only at Holders of what is short: it merges the lists of those Queues that may have to yield, and stops as soon as the request fits.
//
// # Who is taken, classic
//
// First Holders of other Queues over which the request has an advantage: it fits into the quota of its own ClusterQueue, or of a Cohort
// above it, and they are outside of that and borrow (InCohortReclamation). Then Holders of other Queues without advantage, if
// borrowWithinCohort allows it (InCohortReclaimWhileBorrowing) or the request ends up without borrowing (InCohortReclamation). Then Holders
// of the own Queue (InClusterQueue). Nobody is taken from a Queue that uses no more than it has of what is short, nor from
// one with a Cohort of which that is true below the lowest Cohort that it shares with the request. In the end each one that can stay, stays:
// the last one taken but one is asked first.
//
// # Who is taken, with fair sharing
//
// From the root down always the child with the highest share, at equal shares a Cohort before a ClusterQueue, Cohorts by name and
// ClusterQueues by the Holders that they would yield next. Holders of the own Queue are taken for their priority, all others only if the
// strategy is met, or if the request fits into the quota of its own ClusterQueue.
//
// # Where this differs from Kueue
//
//   - What already is being evicted counts as gone, whoever evicts it and whatever its priority is.
//   - With fair sharing, too, nobody is taken from a ClusterQueue or Cohort that does not borrow any of what is short.
//   - With fair sharing, a victim is spared only if all others would have been taken without it as well. Otherwise the share of the request
//     is higher in the end than it was when the others were compared with it, and the two sides can take turns.
//   - One request takes the same victim at most a few times (History).
//
// # Taking from other Queues
//
// A stage of a JobSet holds its quota while later stages wait for theirs. What counts is the most that the JobSet may hold at once before it gives
// anything back (Request.Peaks): a request takes Holders of other Queues only if that peak could be had by the same rules. Otherwise two such JobSets
// could take turns, each reclaiming what it owns for its first stage and borrowing for its second what the other owns.
//
// # Evictions under way
//
// The owner keeps a victim in its Queue and its Tree until it is gone, and tells so (Queue.Evict). The Tree then knows what will be charged
// later, and each search is about that, so that it costs no more than its own victims.
//
// # Why it ends
//
// The rules alone can go in circles: x reclaims quota from p, which borrows, y of the same ClusterQueue finds room that p has left, borrows
// and makes x a target for p, whose priority is higher. Or around three corners: reclaim beats borrowing, priority beats in the own queue,
// priority beats while borrowing. So a History counts how often a Workload has taken another one, and a Finder respects a
// limit. With n Workloads there are fewer than n² pairs, so there is a last preemption; after it Workloads are only admitted, which
// ends, too. Reclaiming what one owns has a higher limit than all else, so that in a circle it has the last word.
package preempt
