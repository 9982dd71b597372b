// Package queue keeps the pending stages of a ClusterQueue in line: who comes next, who sleeps until what, and who waits behind
// whom. It knows nothing of quota: what a stage sleeps on is a topic of any type.
package queue
