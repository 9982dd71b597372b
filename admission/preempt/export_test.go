package preempt

import "github.com/tranche-dev/tranche/admission/quota"

// Node returns the node of the ClusterQueue.
func (q *Queue) Node() *quota.Node { return q.node }

// Len returns how many pairs are stored.
func (x *History) Len() int {
	n := 0
	for _, of := range x.taken {
		n += len(of)
	}
	return n
}
