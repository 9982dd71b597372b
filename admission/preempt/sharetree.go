package preempt

import (
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue/ranking"
)

// shareTree is a tree of the ClusterQueues that may yield to a request, in which each Cohort knows its child with the highest share.
type shareTree struct {
	search           *search
	root             *shareNode
	leaves           []*shareNode
	candidateStreams []candidateStream
}

// A shareNode is a ClusterQueue that may yield, or a Cohort above such ClusterQueues.
type shareNode struct {
	node   *quota.Node
	parent *shareNode
	share  fairshare.Share
	// children are those of a Cohort, the one with the highest share first; index is the position among its siblings, or -1.
	children ranking.Ranking[*shareNode]
	index    int

	// candidateStream has the candidates of a ClusterQueue, and left is the first candidate that has failed the first strategy.
	candidateStream *candidateStream
	left            *Holder
	// retries is true if left is the only candidate.
	retries bool
	// isOwn is true for the ClusterQueue of the request.
	isOwn bool
}

// buildShareTree builds the tree.
func (s *search) buildShareTree() *shareTree {
	r := &s.shareTree
	*r = shareTree{search: s, leaves: r.leaves[:0], candidateStreams: r.candidateStreams[:0]}
	s.memory = s.memory[:0]
	policies := s.request.Queue.Preemption
	policies.ReclaimWithinCohort = s.reclaimPolicy()
	if s.node.Parent() == nil {
		r.root = s.shareNode(s.node, nil)
		r.addLeaf(r.root, s.open(s.request.Queue, policies.WithinClusterQueue))
	} else {
		r.root = s.shareNode(s.node.Root(), nil)
		r.collect(r.root, policies)
	}
	for i := range r.leaves {
		r.leaves[i].candidateStream = &r.candidateStreams[i]
	}
	for _, leaf := range r.leaves {
		r.place(leaf)
	}
	return r
}

// shareNode returns a new share node. Its memory is valid until the next search.
func (s *search) shareNode(n *quota.Node, parent *shareNode) *shareNode {
	if len(s.memory) == cap(s.memory) {
		s.memory = make([]shareNode, 0, 2*cap(s.memory)+16)
	}
	s.memory = s.memory[:len(s.memory)+1]
	c := &s.memory[len(s.memory)-1]
	c.children.Members = c.children.Members[:0]
	*c = shareNode{node: n, parent: parent, index: -1, isOwn: n == s.node, children: c.children}
	return c
}

func (r *shareTree) isEmpty() bool { return len(r.leaves) == 0 }

func (r *shareTree) collect(cohort *shareNode, policies kueue.ClusterQueuePreemption) {
	s := r.search
	for _, n := range cohort.node.Children() {
		policy := policies.ReclaimWithinCohort
		if n == s.node {
			policy = policies.WithinClusterQueue
		} else if !s.isOver(n) && !n.IsAbove(s.node) {
			continue
		}
		c := s.shareNode(n, cohort)
		if q := s.queues[n]; q != nil {
			r.addLeaf(c, s.open(q, policy))
		} else {
			r.collect(c, policies)
		}
	}
}

func (r *shareTree) addLeaf(c *shareNode, st candidateStream) {
	if st.head != nil {
		r.leaves = append(r.leaves, c)
		r.candidateStreams = append(r.candidateStreams, st)
	}
}

// place updates the position of a ClusterQueue, of which a candidate has been taken or left, and of the Cohorts above it.
func (r *shareTree) place(c *shareNode) {
	for ; c != nil; c = c.parent {
		if c.parent == nil {
			return
		}
		c.share = r.search.share(c.node)
		switch siblings := &c.parent.children; {
		case c.isOut(r.search) && c.index >= 0:
			siblings.Drop(c)
		case c.isOut(r.search):
		case c.index >= 0:
			siblings.Fix(c)
		default:
			siblings.Push(c)
		}
	}
}

// isOut is true for share nodes that cannot yield any longer. A Cohort above the request need not borrow: its children may have unequal shares, and
// the ClusterQueue of the request yields by priority.
func (c *shareNode) isOut(s *search) bool {
	switch {
	case c.candidateStream != nil && c.head() == nil, c.candidateStream == nil && c.children.Len() == 0:
		return true
	case c.node.IsAbove(s.node):
		return false
	}
	return !s.isOver(c.node)
}

// head returns the candidate that a ClusterQueue would yield next.
func (c *shareNode) head() *Holder {
	if c.retries {
		return c.left
	}
	return c.candidateStream.head
}

// retry starts the second strategy with the candidates that were left.
func (r *shareTree) retry() {
	for _, leaf := range r.leaves {
		leaf.retries = true
		r.place(leaf)
	}
}

// highest goes down from the root to the ClusterQueue that yields next. It returns nil if there is none.
func (r *shareTree) highest() *shareNode {
	c := r.root
	for c.candidateStream == nil {
		if c.children.Len() == 0 {
			return nil
		}
		c = c.children.First()
	}
	if c.head() == nil {
		return nil
	}
	return c
}

// Precedes reports whether a share node yields before a sibling.
func (c *shareNode) Precedes(other *shareNode) bool {
	if byShare := other.share.Compare(c.share); byShare != 0 {
		return byShare < 0
	}
	switch {
	case c.candidateStream == nil && other.candidateStream == nil:
		return c.node.Name < other.node.Name
	case c.candidateStream == nil:
		return true
	case other.candidateStream == nil, c.isOwn:
		return false
	case other.isOwn:
		return true
	}
	return c.head().compareNow(other.head()) < 0
}

// Place is for package ranking.
func (c *shareNode) Place() *int { return &c.index }
