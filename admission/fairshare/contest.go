package fairshare

import (
	"cmp"
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A Head is what a ClusterQueue would have admitted next.
type Head struct {
	UID      types.UID
	Priority int64
	// Since is the time by which it stands in line.
	Since time.Time
	// Usage is what its admission would charge. It is not changed and must not be.
	Usage quota.Usage
}

// A Contest has the heads of ClusterQueues and knows for each Cohort which of those below is the next to admit. It is a tournament: each
// ClusterQueue sends its head to its Cohort, and each Cohort sends the best of those that it gets to its parent. There the best is the one
// with which its sender would borrow nothing of what it asks for; then the one with which its sender would have the lowest share; then
// the higher priority, the earlier time and the lower UID.
//
// What a head would change on its way up depends on the path that it takes and on nothing else. So an admission changes
// only the results on one path.
//
// Changes of quotas and parents need not be told. Changes of weights do (Charged).
type Contest struct {
	meter   *Meter
	places  map[*quota.Node]*place
	version uint64
}

// A place is a node that has a head at or below it.
type place struct {
	node   *quota.Node
	parent *place
	// senders are the places right below that send a head, the best one first.
	senders senders
	// index is where this place is among the senders of its parent, or -1.
	index int
	// head is what a ClusterQueue contends with.
	head *Head

	// best is the place whose head this place sends, and added what that head would add to the usage of this node, with all IDs that
	// the head has. The rest is what the parent compares.
	best    *place
	added   quota.Usage
	borrows bool
	share   Share
}

// NewContest returns a Contest without heads.
func NewContest(meter *Meter) *Contest {
	return &Contest{meter: meter, places: map[*quota.Node]*place{}}
}

// Enter has a ClusterQueue contend with a head, in place of the one that it had. What was charged to the ClusterQueue before counts, so
// that Charged need not be called as well.
func (c *Contest) Enter(n *quota.Node, head Head) {
	c.settle()
	p := c.place(n)
	p.head = &head
	c.update(p)
}

// Leave takes the head of a ClusterQueue out.
func (c *Contest) Leave(n *quota.Node) {
	c.settle()
	if p := c.places[n]; p != nil {
		p.head = nil
		c.update(p)
	}
}

// Charged must be called when the usage of a ClusterQueue, or the weight of any node, has changed.
func (c *Contest) Charged(n *quota.Node) {
	c.settle()
	for ; n != nil; n = n.Parent() {
		if p := c.places[n]; p != nil {
			c.update(p)
			return
		}
	}
}

// First returns the ClusterQueue below a root whose head is the next to admit.
func (c *Contest) First(root *quota.Node) (n *quota.Node, ok bool) {
	c.settle()
	p := c.places[root]
	if p == nil || p.best == nil {
		return nil, false
	}
	return p.best.node, true
}

// settle begins anew if quotas or parents have changed.
func (c *Contest) settle() {
	version := c.meter.tree.Version()
	if c.version == version {
		return
	}
	c.version = version
	before := c.places
	// The order in which the heads come back does not matter: no two are equal.
	c.places = make(map[*quota.Node]*place, len(before))
	for n, old := range before {
		if old.head != nil {
			p := c.place(n)
			p.head = old.head
			c.update(p)
		}
	}
}

func (c *Contest) place(n *quota.Node) *place {
	p := c.places[n]
	if p == nil {
		p = &place{node: n, index: -1}
		c.places[n] = p
		if parent := n.Parent(); parent != nil {
			p.parent = c.place(parent)
		}
	}
	return p
}

// update repairs the path from a place to the root.
func (c *Contest) update(p *place) {
	for ; p != nil; p = p.parent {
		p.choose()
		if p.parent == nil {
			return
		}
		if p.best != nil {
			p.share = c.meter.Share(p.node, p.added)
			p.borrows = p.borrowsAny()
		}
		p.send()
	}
}

// choose finds out which head to send, and what it would add here.
func (p *place) choose() {
	switch {
	case p.head != nil:
		p.best, p.added = p, p.head.Usage
	case len(p.senders) > 0:
		sender := p.senders[0]
		p.best = sender.best
		p.added = p.added[:0]
		for _, more := range sender.added {
			p.added = append(p.added, quota.Charge{ID: more.ID, Amount: sender.node.PassedOn(more.ID, more.Amount)})
		}
	default:
		p.best = nil
	}
}

func (p *place) borrowsAny() bool {
	for _, more := range p.added {
		if p.node.Excess(more.ID, more.Amount) > 0 {
			return true
		}
	}
	return false
}

// send puts the place where it belongs among the senders of its parent.
func (p *place) send() {
	switch s := &p.parent.senders; {
	case p.best == nil && p.index >= 0:
		heap.Remove(s, p.index)
	case p.best != nil && p.index >= 0:
		heap.Fix(s, p.index)
	case p.best != nil:
		heap.Push(s, p)
	}
}

func (p *place) compare(other *place) int {
	if p.borrows != other.borrows {
		if p.borrows {
			return 1
		}
		return -1
	}
	if c := p.share.Compare(other.share); c != 0 {
		return c
	}
	a, b := p.best.head, other.best.head
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
}

// senders is a heap in which each place knows where it is.
type senders []*place

func (s *senders) Len() int           { return len(*s) }
func (s *senders) Less(i, k int) bool { return (*s)[i].compare((*s)[k]) < 0 }

func (s *senders) Swap(i, k int) {
	a, b := (*s)[i], (*s)[k]
	(*s)[i], (*s)[k] = b, a
	a.index, b.index = k, i
}

// Push is for package heap.
func (s *senders) Push(x any) {
	p := x.(*place)
	p.index = len(*s)
	*s = append(*s, p)
}

// Pop is for package heap.
func (s *senders) Pop() any {
	last := len(*s) - 1
	p := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	p.index = -1
	return p
}
