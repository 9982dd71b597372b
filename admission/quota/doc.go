// Package quota keeps account of what is charged to each ClusterQueue, of what is kept back for running JobSets, and of the limits.
//
// A Tree answers what is still available. Questions that begin with "what if" are asked by changing the Tree inside WhatIf, which
// takes everything back. Today the Tree has one level, the ClusterQueues with their nominal quota; Cohorts become their parents.
package quota
