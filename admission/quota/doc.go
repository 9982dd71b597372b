// Package quota keeps account of what ClusterQueues and Cohorts are charged, and answers what they may still use.
//
// ClusterQueues are the leaves of a Tree and Cohorts the nodes above them (KEP-79). Each node has quota of its own; what its
// lendingLimit does not keep back, its parent may pass on. A charge to a ClusterQueue uses first what only its own subtree may
// use; the rest goes up to the parent, and so on. So each node knows what it needs to answer alone, a charge costs one step per level,
// and so does the question what is available.
//
// FlavorResources are numbered by an Index, so that a node is an array and a Usage a short list.
//
// Questions that begin with "what if" are asked by changing the Tree inside WhatIf, which takes everything back.
package quota
