package preempt

import (
	"slices"
	"time"

	"github.com/tranche-dev/tranche/admission/quota"
)

// A list has the Holders of one Queue that use one FlavorResource, in the order in which they are preempted. It is cut in chunks, so that a
// change moves few of them.
type list struct {
	id     quota.ID
	chunks []chunk
}

// A chunk also stores how much its Holders use, their lowest priority, and their latest Queued time.
type chunk struct {
	holders []*Holder
	total   quota.Amount
	lowest  int64
	newest  time.Time
}

const chunkSize = 64

// find returns the chunk in which a Holder is or belongs, and its index there. The list must not be empty. The latest Holder is most often
// preempted first.
func (l *list) find(h *Holder) (c, i int) {
	if h.compare(l.chunks[0].holders[0]) <= 0 {
		return 0, 0
	}
	c, _ = slices.BinarySearchFunc(l.chunks, h, func(c chunk, h *Holder) int { return c.holders[len(c.holders)-1].compare(h) })
	c = min(c, len(l.chunks)-1)
	i, _ = slices.BinarySearchFunc(l.chunks[c].holders, h, (*Holder).compare)
	return c, i
}

func (l *list) insert(h *Holder) {
	if len(l.chunks) == 0 {
		c := chunk{holders: []*Holder{h}}
		c.count(l.id)
		l.chunks = append(l.chunks, c)
		return
	}
	at, i := l.find(h)
	c := &l.chunks[at]
	c.holders = slices.Insert(c.holders, i, h)
	if len(c.holders) < chunkSize {
		c.total += h.Usage.Of(l.id)
		c.lowest, c.newest = c.holders[0].Priority, later(c.newest, h.Queued)
		return
	}
	half := chunk{holders: slices.Clone(c.holders[chunkSize/2:])}
	clear(c.holders[chunkSize/2:])
	c.holders = c.holders[:chunkSize/2]
	c.count(l.id)
	half.count(l.id)
	l.chunks = slices.Insert(l.chunks, at+1, half)
}

func (l *list) remove(h *Holder) {
	at, i := l.find(h)
	c := &l.chunks[at]
	if len(c.holders) == 1 {
		l.chunks = slices.Delete(l.chunks, at, at+1)
		return
	}
	c.holders = slices.Delete(c.holders, i, i+1)
	c.lowest = c.holders[0].Priority
	c.total -= h.Usage.Of(l.id)
	if !h.Queued.Before(c.newest) {
		c.count(l.id)
	}
}

func (c *chunk) count(id quota.ID) {
	c.total, c.lowest, c.newest = 0, c.holders[0].Priority, time.Time{}
	for _, h := range c.holders {
		c.total += h.Usage.Of(id)
		c.newest = later(c.newest, h.Queued)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// atMost returns an upper bound of how much the Holders up to a priority use, which is at most what all use.
func (l *list) atMost(priority int64) quota.Amount {
	var total quota.Amount
	for i := range l.chunks {
		if l.chunks[i].lowest > priority {
			break
		}
		total += l.chunks[i].total
	}
	return total
}
