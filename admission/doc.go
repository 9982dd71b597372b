// Package admission decides which stages of JobSets hold quota.
//
// # Packages
//
// An Engine only calls the packages below internal. Each imports only packages that come before it in this list:
//
//   - version tells observations of one object apart, and remembers deleted objects.
//   - decision has what is decided: Admit, Evict and Refuse, and the Refusals that owners read.
//   - demand converts pod sets to the amounts that they are charged.
//   - queuespec has the specs of ClusterQueues, and whether a ClusterQueue is active.
//   - settings has the defaults of an Engine, for what objects leave open.
//   - model is the state: stages, queues, JobSets, cohort trees, and what they are charged.
//   - observe applies Events to the model.
//   - backfill decides which stages may overtake one that has waited for long.
//   - wording has the names and amounts of messages.
//   - level compares the past usage of LocalQueues.
//   - check has the named checks that a stage has to pass.
//   - cycle runs scheduling cycles: it admits, preempts, evicts, and settles decisions.
//   - report explains refusals, and returns views, counts and charges. It changes no decision.
//
// # Vocabulary
//
//   - A JobSet runs in stages, by its stage plan. A quota Workload stands for one stage; other owners' quota Workloads are
//     admitted as if each were the only stage of its own plan.
//   - A stage waits while its quota Workload asks for quota. While it does not (a gate, suspension, deletion), the stage is closed
//     (ineligible).
//   - A stage is charged from the moment when the Engine decides to admit it, until its quota Workload is observed without a
//     reservation, finished or deleted. An observed admission is charged as it is written, also beyond quota.
//   - An admission is assumed until it is settled: then the observed state counts again.
//   - A JobSet continues when it holds quota or has finished stages; before, it is new.
//   - A hold segment (stageplan.HoldSegments) of a JobSet is in progress while the JobSet holds quota for one of its stages.
//   - A claim is the quota that a JobSet that holds quota may come to hold in addition. Stage admission says how claims count: not at all
//     (Greedy), as quota that is reserved for them (Reserve), or so that they can be met one after the other (Safe). See package safety.
//   - A co-admission group: stages that are admitted all or none, such as the gangs of one GangGroup. They have the same
//     label tranche.dev/admit-together.
//
// # Scheduling cycle
//
// Each ClusterQueue has a queue of pending stages (package queue). Decide offers its stages in order to the checks, which are listed in
// internal/check/check.go in the order in which they are reported to the owner. A stage that passes is charged at once. A stage that does not pass is
// parked, with all others of its equivalence class, until something changes that the answer may depend on.
//
// Pending stages are ordered by priority, then stages of JobSets that continue, then the submission of the JobSet or its last eviction.
// Under StrictFIFO a stage that does not fit blocks all stages behind it except those of hold segments in progress (check isNotBehind).
//
// Under BestEffortFIFO the first stage that has waited for as long as its ClusterQueue says is due: nominal quota is reserved for it, and the stages behind
// it overtake only if they do not delay it (check DelaysNone).
//
// # Co-admission groups
//
// Each member of a co-admission group is pending in its own ClusterQueue. When one of them is checked, all of them are: each as if it were
// alone; then the Engine chooses flavors with which all fit at once. The group has its turn when no stage that is not parked precedes any
// of its members. Until then the queue of the first member is paused, at most until every queue is idle. The members are admitted in one
// step, or all are parked. Under StrictFIFO they block their queues, all of them at once, while missing quota is the only obstacle of any
// member. If a member waits behind another stage, or for a fix by its owner, the group blocks no queue, so that queues do not wait for each
// other.
//
// A co-admission group preempts no stage, and uses no quota that is reserved for preemptors. Members that hold quota without the others,
// as after a failed write, release it unless the rest still fits. Once all members have been admitted each is independent: a member that
// is evicted later is admitted again alone, and may be preempted alone before that. The controller that created the stages then removes the
// label.
package admission
