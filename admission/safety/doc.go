// Package safety answers whether JobSets that hold quota for one stage while they wait for the next can all finish.
//
// It is the banker's algorithm (E. W. Dijkstra, EWD 623) over the quota of ClusterQueues that may share a Cohort. A state is safe if there is a safe
// sequence: an order in which every JobSet that holds quota can get the most that it may still come to hold, run to the point where it holds
// nothing, and so release everything for those after it.
//
// # Why no JobSet waits forever in a safe state
//
// Take the first JobSet of a safe sequence. Everything that it may need is free now, or held by stages that only have to finish. So when its next
// stage opens, the flavors that the sequence assumed for it are free, and the state after admitting it is safe too, with the same sequence. Each
// admission that the policy allows keeps the state safe, so there is always a first JobSet, it finishes, and the rest is a smaller safe state.
//
// A JobSet releases everything at the end of a hold segment (stageplan.HoldSegments). Its later needs are not a claim: it will hold nothing
// while it waits.
//
// # One question for each admission
//
// A Bank charges what all claims hold, and stores an order in which they can finish. A stage may be admitted if its JobSet can finish afterwards, at
// some place in that order, and only then. For once it finishes, more is free than before it came, and all others continue as without it; and if it
// cannot, the state is not safe. So an admission never prevents a JobSet from finishing that could finish before, even in a state that is already
// unsafe.
//
// Most stages fit together with all that their JobSet may still need: that takes one check. Otherwise the claims before its place are assumed to finish
// one after the other until there is enough. A refused stage need not ask again before one of the claims that blocked it becomes smaller: all others
// were found to finish, and their actual progress cannot free more than that.
//
// # Deadlock recovery
//
// A quota cut, another parent, a removed flavor or a restart can leave claims that cannot be met in any order. Unsafe returns the roots of such claims,
// and SelectVictims the victims: only stuck claims are candidates, since all others release what they hold anyway. Without the victims the rest is safe
// again. No victim is admitted again before that is safe, so that the same cut never evicts a JobSet twice.
//
// A JobSet in a queue that is stopped is Halted: it stays as long as all others can finish without what it holds. A JobSet under policy Greedy is
// Unguarded: it is never evicted for safety, and no other waits for it; but no JobSet under Safe is admitted if it could block an Unguarded one.
//
// # Assumptions
//
//   - A running stage finishes, if all stages run that the plan lets run beside it. A stage that never becomes Ready is not a matter of quota.
//   - Each JobSet stays in one ClusterQueue. The owner may reclaim what it borrows: then the JobSet is evicted, holds nothing and so waits without
//     holding.
//   - Stages that are admitted without a plan, and JobSets that have nothing left to ask for, finish and release what they hold.
//   - No JobSet comes to hold more than its plan says. After a restart it may hold a later stage while it repeats an earlier one: what
//     it holds out of turn is added to the most that it may hold of all else. So a claim never grows by an admission that it has assumed.
//
// # Flavors
//
// A later stage may be able to use several flavors. A JobSet can finish if any combination lets it; all of them are tried, so that more free quota
// never makes a safe state look unsafe. First fit alone could do that: with more of the first flavor free, a stage that may use either would take it
// from one that may use no other. If a plan has more than flavor.MaxChoices combinations, the later choices keep their first option, which refuses more
// than necessary but never admits too much.
package safety
