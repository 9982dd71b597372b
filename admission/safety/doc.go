// Package safety answers whether JobSets that hold quota for one stage while they wait for the next can all come to their end.
//
// It is the banker's algorithm (E. W. Dijkstra, EWD 623) over the quota of ClusterQueues that may share a Cohort. A state is safe if there is an order in
// which every JobSet that holds quota can get the most that it may still come to hold, run to the point where it holds nothing, and
// so give everything back to those after it.
//
// # Why nothing waits for ever in a safe state
//
// Take the first JobSet of such an order. Everything that it may need is free now, or held by stages that only have to end. So when
// its next stage opens, the flavors that the order foresaw for it are free, and the state after admitting it is safe too: the same
// order proves it. Each admission that the policy lets through keeps the state safe, so there is always a first JobSet, it ends, and
// the rest is a smaller safe state.
//
// A JobSet gives everything back at the end of a hold segment (stageplan.HoldSegments). What it needs after that is not a claim: it
// will hold nothing while it waits.
//
// # What is assumed
//
//   - A stage that runs comes to its end, if all stages run that the plan lets run beside it. A stage that never becomes Ready is
//     not a matter of quota.
//   - Each JobSet stays in one ClusterQueue. What it borrows may be reclaimed by its owner: then the JobSet is evicted, holds nothing
//     and so waits without holding.
//   - What is admitted without a plan, and JobSets which have nothing left to ask for, end and give back what they hold.
//   - No JobSet comes to hold more than its plan says. After a restart it may hold a later stage while it repeats an earlier one;
//     that is counted.
//
// # Flavors
//
// A later stage may be able to use several flavors. A JobSet can finish if there is any combination that lets it; all of them are
// tried, so that more free quota never makes a safe state look unsafe. Without that, first fit could: with more of the first flavor
// free, a stage that may use either would take it from one that may use no other. Where a plan has more than flavor.MaxChoices
// combinations, the later choices are left with their first option, which refuses more than necessary but never admits too much.
package safety
