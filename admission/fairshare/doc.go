// Package fairshare determines the order of stages that compete for borrowed quota (KEP-1714, KEP-4136).
//
// A Share measures which part of the quota that it could borrow a node of a quota.Tree does borrow: the dominant resource share. A Tournament keeps the
// heads of ClusterQueues in the order in which fair sharing admits them, and recomputes only the path that a change is on. A Decay measures
// the past usage of LocalQueues, for the order within one ClusterQueue.
package fairshare
