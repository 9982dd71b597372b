// Package podgang computes the next step of a gang of pods: which quota Workloads to create, change or evict, and which pods to ungate or delete. It
// writes nothing. Package podgroup reads what the gang asks for.
//
// # Vocabulary
//
//   - The initial quota Workloads of a gang are those that it needs to start: one, with a pod set for each shape of its pods; or several parts, if
//     it gathers its quota (NonStrict).
//   - An extra is the quota Workload of one pod that has no slot in the initial quota Workloads of a started gang.
//   - A gang has started once the first of its pods was ungated. From then on the gang rule is off: pods come and go one by one.
//   - A pod is gated until it has a slot of an admitted quota Workload. It is ungated with an annotation that names the admission that pays
//     for it, so that all state can be derived again from the pods and the quota Workloads.
//   - A Peer is another gang that starts together with this one.
//
// # Phases of a gang
//
//	pods gated -> all exist -> initial quota Workloads created -> admitted, also those of all peers -> started, pods ungated
//	   -> pods terminate, their quota is reclaimed -> all have succeeded: Finished
//
// When an initial quota Workload is evicted, all pods of the gang are deleted, and each quota Workload releases its quota once its pods
// have terminated. The controller of the pods recreates them, gated: the gang queues again.
//
// No quota is held idle: a gang that holds quota and cannot start releases it, at once or after a while, and so does a started gang with quota
// that no pod uses any longer.
package podgang
