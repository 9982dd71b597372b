package fairshare

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/admission/quota"
	"github.com/tranche-dev/tranche/queue/ranking"
)

// A Head is the head of a ClusterQueue's pending queue.
type Head struct {
	UID      types.UID
	Priority int64
	// Since is the time of its queue position.
	Since time.Time
	// Usage is what its admission would charge. It must not be changed.
	Usage quota.Usage
}

// A Tournament has the heads of ClusterQueues and stores for each Cohort which of the heads below it is the next to admit. It is a tournament: each
// ClusterQueue sends its head to its Cohort, and each Cohort sends the best of the heads that it gets to its parent. The best head is the one
// with which its sender would borrow nothing of the resources that it asks for; then the one with which its sender would have the lowest share; then
// the one with the higher priority, the earlier time and the lower UID.
//
// The usage that a head would add to a node depends only on the path from its ClusterQueue to the root. So an admission changes
// only the results on one path.
//
// The Tournament detects changes of quotas and parents itself. Changes of weights must be reported (Charged).
type Tournament struct {
	meter   *Meter
	places  map[*quota.Node]*place
	version uint64
}

// A place is a node that has a head at or below it.
type place struct {
	node   *quota.Node
	parent *place
	// senders are the child places that send a head, the best one first.
	senders ranking.Ranking[*place]
	// index is where this place is among the senders of its parent, or -1.
	index int
	// head is the head of a ClusterQueue.
	head *Head

	// best is the place whose head this place sends, and added what that head would add to the usage of this node, with all IDs that the head
	// has. The parent compares the other fields.
	best    *place
	added   quota.Usage
	borrows bool
	share   Share
}

// NewTournament returns a Tournament without heads.
func NewTournament(meter *Meter) *Tournament {
	return &Tournament{meter: meter, places: map[*quota.Node]*place{}}
}

// Enter sets the head of a ClusterQueue, and replaces an earlier one. It also reads the current charges of the ClusterQueue, so that Charged need
// not be called as well.
func (t *Tournament) Enter(n *quota.Node, head Head) {
	t.settle()
	p := t.place(n)
	p.head = &head
	t.update(p)
}

// Leave removes the head of a ClusterQueue.
func (t *Tournament) Leave(n *quota.Node) {
	t.settle()
	if p := t.places[n]; p != nil {
		p.head = nil
		t.update(p)
	}
}

// Charged must be called when the usage of a ClusterQueue, or the weight of any node, has changed.
func (t *Tournament) Charged(n *quota.Node) {
	t.settle()
	for ; n != nil; n = n.Parent() {
		if p := t.places[n]; p != nil {
			t.update(p)
			return
		}
	}
}

// First returns the ClusterQueue below a root whose head is the next to admit.
func (t *Tournament) First(root *quota.Node) (n *quota.Node, ok bool) {
	t.settle()
	p := t.places[root]
	if p == nil || p.best == nil {
		return nil, false
	}
	return p.best.node, true
}

// settle rebuilds the places if quotas or parents have changed.
func (t *Tournament) settle() {
	version := t.meter.tree.Version()
	if t.version == version {
		return
	}
	t.version = version
	before := t.places
	// The order in which the heads are entered again does not matter: no two are equal.
	t.places = make(map[*quota.Node]*place, len(before))
	for n, old := range before {
		if old.head != nil {
			p := t.place(n)
			p.head = old.head
			t.update(p)
		}
	}
}

func (t *Tournament) place(n *quota.Node) *place {
	p := t.places[n]
	if p == nil {
		p = &place{node: n, index: -1}
		t.places[n] = p
		if parent := n.Parent(); parent != nil {
			p.parent = t.place(parent)
		}
	}
	return p
}

// update recomputes the path from a place to the root.
func (t *Tournament) update(p *place) {
	for ; p != nil; p = p.parent {
		p.choose()
		if p.parent == nil {
			return
		}
		if p.best != nil {
			p.share = t.meter.Share(p.node, p.added)
			p.borrows = p.borrowsAny()
		}
		p.send()
	}
}

// choose determines which head to send, and what it would add here.
func (p *place) choose() {
	switch {
	case p.head != nil:
		p.best, p.added = p, p.head.Usage
	case p.senders.Len() > 0:
		sender := p.senders.First()
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

// send updates the position of the place among the senders of its parent.
func (p *place) send() {
	switch s := &p.parent.senders; {
	case p.best == nil && p.index >= 0:
		s.Drop(p)
	case p.best != nil && p.index >= 0:
		s.Fix(p)
	case p.best != nil:
		s.Push(p)
	}
}

// Precedes reports whether the head that a place sends is better than that of a sibling.
func (p *place) Precedes(other *place) bool {
	if p.borrows != other.borrows {
		return other.borrows
	}
	if c := p.share.Compare(other.share); c != 0 {
		return c < 0
	}
	a, b := p.best.head, other.best.head
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID)) < 0
}

// Place is for package ranking.
func (p *place) Place() *int { return &p.index }
