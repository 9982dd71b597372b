// Package podgang groups pods that belong together into gangs that ask for quota. Its input is pods and PodGroups, its output is quota
// Workloads and the next writes to the pods. It decides, and writes nothing.
//
// # Vocabulary
//
//   - A Ref names a gang: its Kind, which is the way in which its pods name it, its namespace and its name.
//   - A Gang is the pods of a Ref with what they and their PodGroup ask for. What cannot be granted is a problem, reported to its user.
//   - The core of a gang are its initial quota Workloads: one, with a pod set for each shape of its pods; or, if it gathers its quota
//     (NonStrict), several parts.
//   - An extra is the quota Workload of one pod that has no slot in the core of a started gang.
//   - A gang has started once the first of its pods was ungated. From then on the gang rule is off: pods come and go one by one.
//   - A pod is gated until it has a slot of an admitted quota Workload. It is ungated with an annotation that names the admission that pays
//     for it, so that all state can be derived again from the pods and the quota Workloads.
//
// # Phases of a gang
//
//	pods gated -> all exist -> core asks for quota -> core admitted, and those of all gangs of its group -> started, pods ungated
//	   -> pods terminate, their quota is reclaimed -> all have succeeded: Finished
//
// When a quota Workload of the core is evicted, all pods of the gang are deleted, and each quota Workload releases its quota once its pods
// have terminated. The controller of the pods recreates them, gated: the gang queues again.
//
// No quota is held idle: a gang that holds quota and cannot start releases it, at once or after a while, and so does a started gang with quota
// that no pod uses any longer.
package podgang
