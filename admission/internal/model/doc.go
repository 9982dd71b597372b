// Package model is the state of the Engine: stages, queues and JobSets, with what they are charged.
//
// A Stage is one quota Workload, pending in a ClusterQueue or charged there. Account derives how it counts from its observations and from the
// decisions that are not settled, and updates all that depends on that: the charges in the quota tree, the queue of its ClusterQueue, the claim
// and the peak reservation of its JobSet, its eviction unit and its co-admission group. Whatever releases quota wakes the stages that may use it,
// so that the Schedule has the ClusterQueues that the next scheduling cycle checks.
//
// The package decides nothing. Package observe changes the model when a fact is observed, package cycle when a decision is made.
package model
