// Package fairshare says who is next when many want what nobody owns (KEP-1714, KEP-4136).
//
// A Share measures how much of what it could borrow a node of a quota.Tree does borrow: the dominant resource share. A Contest keeps the
// heads of ClusterQueues in the order in which fair sharing admits them, and repairs only the path that a change is on. A Decay measures
// what LocalQueues have used in the past, for the order within one ClusterQueue.
package fairshare
