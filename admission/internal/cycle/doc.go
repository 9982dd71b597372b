// Package cycle makes the decisions of the Engine.
//
// A scheduling cycle offers the stages of a cohort tree in queue order to the checks, admits those that pass, evicts the victims of those that
// preempt, and parks the others. Besides, it evicts stages of stopped queues, members of incomplete co-admission groups, and JobSets in a deadlock.
package cycle
