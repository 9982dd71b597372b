// Package quota accounts for the charges of ClusterQueues and Cohorts, and answers what they may still use.
//
// ClusterQueues are the leaves of a Tree and Cohorts the nodes above them (KEP-79). Each node has quota of its own; the part that its lendingLimit
// does not keep can be used by others through its parent. A charge to a ClusterQueue uses first the quota that only its own subtree may use; the rest is
// charged to the parent, and so on. So each node stores all that it needs for an answer, a charge costs one step per level, and so does the question how
// much is available.
//
// FlavorResources are numbered by an Index, so that a node is an array and a Usage a short list.
//
// Hypothetical questions change the Tree inside WhatIf, which undoes everything.
package quota
