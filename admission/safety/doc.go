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
// # One question for each admission
//
// A Bank keeps what all claims hold charged, and an order in which they can finish. A stage may be admitted if its JobSet can finish
// afterwards, at some place in that order, and only then. For once it finishes, more is free than before it came, and everybody else
// goes on as without it; and if it cannot, the state is not safe. So an admission never makes anybody unable to finish who could, even
// where the state is unsafe already.
//
// Most stages fit together with all that their JobSet may still need: that is one look. Else those in front of the place are let finish
// one after the other until there is enough. Who is refused need not ask again before one of those who held it up asks for less: all
// others were found to finish, and nothing that they do can be better than that.
//
// # When something is taken away
//
// A quota cut, another parent, a flavor less or a restart can leave claims that cannot be met in any order. Unsafe tells where, and Relief
// who should go: only who is stuck comes into question, since all others give back what they hold anyway. Without those who go the rest is
// safe again. Nobody who went is let in again before that is safe, so that the same cut never evicts anybody twice.
//
// A JobSet in a queue that is stopped is Halted: it stays as long as all others can finish without what it holds. One under policy Greedy
// is Unguarded: it is never evicted for safety, and is not waited for; but nobody under Safe is let in where it could be in the way.
//
// # What is assumed
//
//   - A stage that runs comes to its end, if all stages run that the plan lets run beside it. A stage that never becomes Ready is
//     not a matter of quota.
//   - Each JobSet stays in one ClusterQueue. What it borrows may be reclaimed by its owner: then the JobSet is evicted, holds nothing
//     and so waits without holding.
//   - What is admitted without a plan, and JobSets which have nothing left to ask for, end and give back what they hold.
//   - No JobSet comes to hold more than its plan says. After a restart it may hold a later stage while it repeats an earlier one: what
//     it holds out of turn is added to the most that it may hold of all else. So a claim never becomes more by an admission that it
//     has foreseen.
//
// # Flavors
//
// A later stage may be able to use several flavors. A JobSet can finish if there is any combination that lets it; all of them are
// tried, so that more free quota never makes a safe state look unsafe. Without that, first fit could: with more of the first flavor
// free, a stage that may use either would take it from one that may use no other. Where a plan has more than flavor.MaxChoices
// combinations, the later choices are left with their first option, which refuses more than necessary but never admits too much.
package safety
