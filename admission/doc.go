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
//   - A claim is what a JobSet that holds quota may come to hold on top. Stage admission says how claims count: not at all (Greedy),
//     as quota that is kept free for them (Reserve), or so that they can be met one after the other (Safe). See package safety.
//
// # How a pass goes
//
// Each ClusterQueue has a line (package queue). Decide offers its stages in order to the checks, which are listed in check.go in the
// order in which an owner should hear of them. A stage that passes is charged at once. A stage that does not sleeps, with all
// others of its shape, until something has changed that the answer may depend on.
package admission
