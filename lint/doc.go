// Package lint checks manifests of queues, and of JobSets, Jobs and pods in queues, without a cluster.
//
// Run applies the rules that Rules lists, in this order: what the API server rejects, by the CRDs; what the admission policies reject; what the
// engine does not admit; and what all of them accept although it has no effect. An object that the API server rejects is not checked further.
package lint
