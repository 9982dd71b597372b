// Package admission decides which stages of JobSets hold quota.
//
// # Vocabulary
//
//   - A JobSet runs in stages, by its stage plan. A quota Workload stands for one stage; other owners' quota Workloads are
//     admitted as if each were the only stage of its own plan.
//   - A stage waits when its quota Workload asks for quota, and is closed while it does not (a gate, suspension, deletion).
//   - A stage is charged from the moment when the Engine decides to admit it, until its quota Workload is observed without a
//     reservation, finished or gone. What an observed admission says is charged as it is, over quota too.
//   - An admission is assumed until it is settled: then what was observed counts again.
//   - A JobSet continues when it holds quota or has finished stages; before, it is new.
//   - A hold segment (stageplan.HoldSegments) of a JobSet is in progress while the JobSet holds quota for one of its stages.
//   - A claim is what a JobSet that holds quota may come to hold on top. Stage admission says how claims count: not at all (Greedy),
//     as quota that is kept free for them (Reserve), or so that they can be met one after the other (Safe). See package safety.
//   - A bundle is stages that are admitted together or not at all, as gangs of one GangGroup are: those with the same label
//     tranche.dev/admit-together.
//
// # How a pass goes
//
// Each ClusterQueue has a line (package queue). Decide offers its stages in order to the checks, which are listed in check.go in the
// order in which an owner should hear of them. A stage that passes is charged at once. A stage that does not sleeps, with all
// others of its shape, until something has changed that the answer may depend on.
//
// The order in a line is priority, then stages of JobSets that continue, then the submission of the JobSet or its last eviction. Under StrictFIFO a
// stage that does not fit blocks all stages behind it but those of hold segments in progress (isNotBehind).
//
// # Bundles
//
// Each stage of a bundle stands in the line of its own ClusterQueue. Whoever of them is looked at first brings all of them before the checks,
// each as if it were alone; then flavors are chosen with which all fit at once. The bundle has come to its turn when nobody who is awake
// stands in front of any of them. Until then the line of who came first stops, but no longer than until all lines have come to rest. They
// are admitted in one go, or all sleep. Under StrictFIFO they hold up their lines, all of them at once, while nothing but quota is in the way
// of any: who waits behind another, or for what an owner must repair, holds up nobody, so that lines do not wait for each other.
//
// A bundle preempts no stage, and takes nothing that is reserved for preemptors. Those who hold quota without the others, as after a
// write that failed, give it back unless the rest still fits. Once all have been admitted each stands for itself: one that is evicted
// later comes back alone, and may be preempted alone before that. Who made the stages takes the label off then.
package admission
