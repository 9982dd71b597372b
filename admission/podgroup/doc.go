// Package podgroup turns pods that belong together into gangs that ask for quota: pods and PodGroups in, quota Workloads and what to do
// with the pods out. It decides, and writes nothing.
//
// # Vocabulary
//
//   - A Ref names a gang: how its pods name it, which is its Kind, its namespace and its name.
//   - A Gang is the pods of a Ref with what they and their PodGroup ask for. What cannot be is a problem, told to its user.
//   - The core of a gang are the quota Workloads that it needs to start: one, with a pod set for each shape of its pods; or, if it gathers
//     its quota (NonStrict), several parts.
//   - An extra stands for one pod that a started gang has no room for in its core.
//   - A gang has started once the first of its pods was let go. From then on the gang rule is off: pods come and go one by one.
//   - A pod is gated until a slot of an admitted quota Workload is its own. It is let go with a note of the admission that pays for it, so
//     that everything can be found out again from the pods and the quota Workloads.
//
// # How a gang goes
//
//	pods gated -> all there -> core asked for -> core admitted, and those of all gangs of its group -> started, pods let go
//	   -> pods end, their quota is reclaimed -> all have succeeded: Finished
//
// When a quota Workload of the core is evicted, all pods of the gang are deleted, and each quota Workload is given back once its pods are
// over. Who made the pods makes them anew, gated: the gang queues again.
//
// Nothing is held idle: a gang that holds quota and cannot start gives it back, at once or after a while, and so does one that has started
// with quota which no pod uses any more.
package podgroup
