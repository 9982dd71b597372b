package dashboard

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quota"
)

// The kinds of QueueRows.
const (
	KindCohort       = "Cohort"
	KindClusterQueue = "ClusterQueue"
)

// A QueueRow is one row of the tree of Cohorts and ClusterQueues.
type QueueRow struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Path has the Cohorts above it, the root first.
	Path []string `json:"path"`
	// ClusterQueues is how many ClusterQueues are below a Cohort.
	ClusterQueues int `json:"clusterQueues,omitempty"`
	// Pending, Reserving and Admitted count quota Workloads, as the status of the ClusterQueues does.
	Pending   int32 `json:"pending"`
	Reserving int32 `json:"reserving"`
	Admitted  int32 `json:"admitted"`
	// Reason and Message report why a ClusterQueue is not active, or why a Cohort is not used as its spec asks.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Share is the weighted share of fair sharing, and Weight its weight. They are missing without fair sharing.
	Share  *int64   `json:"share,omitempty"`
	Weight *float64 `json:"weight,omitempty"`
	Bars   []Bar    `json:"bars"`
}

// A Bar is the quota of one flavor and resource, in CPUs, bytes or pieces.
type Bar struct {
	Flavor   string              `json:"flavor"`
	Resource corev1.ResourceName `json:"resource"`
	// Nominal is the quota of a ClusterQueue, or the sum of the quotas of a Cohort and all that is below it.
	Nominal float64 `json:"nominal"`
	// Used is what quota Workloads hold. It consists of Idle, Reserved, and the rest, which is in use.
	Used float64 `json:"used"`
	// Reserved is the part of Used that is reserved and not admitted.
	Reserved float64 `json:"reserved"`
	// Idle is the part of Used that is admitted, and whose pods are not all ready. It is missing if not all quota Workloads could be read.
	Idle *float64 `json:"idle,omitempty"`
	// Borrowed is the part of Used beyond Nominal, without Unlisted; for a Cohort, that of all its ClusterQueues.
	Borrowed float64 `json:"borrowed"`
	// Lent is the part of the unused nominal quota of a ClusterQueue that it could not use now, because others use it.
	Lent float64 `json:"lent"`
	// Unlisted is the part of Used that is held of a flavor or resource that the spec of its ClusterQueue does not list: it was removed. Quota
	// Workloads whose quota was removed are known only if all could be read.
	Unlisted float64 `json:"unlisted,omitempty"`
	// Free is how much one more quota Workload could use now, by borrowing, too: none if the ClusterQueue is not active; for a Cohort, in that of
	// its ClusterQueues where it is most.
	Free float64 `json:"free"`
	// BorrowingLimit and LendingLimit are missing if they are not set.
	BorrowingLimit *float64 `json:"borrowingLimit,omitempty"`
	LendingLimit   *float64 `json:"lendingLimit,omitempty"`
}

// A tree is the forest of Cohorts and ClusterQueues as rows in depth-first order, in the order of their names.
type tree struct {
	rows []*QueueRow
	// byName has the rows of ClusterQueues.
	byName map[string]*QueueRow
}

// A treeBuilder computes a tree.
type treeBuilder struct {
	m     *Model
	quota *quota.Tree
	nodes map[string]*quota.Node
	// parents has the parent of each Cohort, children the Cohorts and queues the ClusterQueues of a Cohort. The name "" stands for none.
	parents  map[string]string
	children map[string][]string
	queues   map[string][]*clusterQueue
	leaves   map[*clusterQueue]*quota.Node
	cyclic   map[string]bool
	tree     *tree
}

// settled returns the tree, which is computed again if an object of it has changed.
func (m *Model) settled() *tree {
	if m.tree == nil {
		b := &treeBuilder{
			m: m, quota: quota.NewTree(), nodes: map[string]*quota.Node{}, parents: map[string]string{}, children: map[string][]string{},
			queues: map[string][]*clusterQueue{}, leaves: map[*clusterQueue]*quota.Node{}, cyclic: map[string]bool{},
			tree: &tree{byName: map[string]*QueueRow{}},
		}
		b.connect()
		b.rows("", []string{})
		m.tree = b.tree
	}
	return m.tree
}

// connect makes the nodes with their quotas and charges.
func (b *treeBuilder) connect() {
	for name, c := range b.m.cohorts {
		b.parents[name] = c.parent
	}
	for _, q := range b.m.clusterQueues {
		if q.exists {
			b.queues[q.cohort] = append(b.queues[q.cohort], q)
		}
	}
	// A Cohort that other objects name exists without an object of its own.
	for name := range b.queues {
		b.imply(name)
	}
	for _, c := range b.m.cohorts {
		b.imply(c.parent)
	}
	delete(b.parents, "")
	b.cutCycles()
	for _, name := range slices.Sorted(maps.Keys(b.parents)) {
		b.children[b.parents[name]] = append(b.children[b.parents[name]], name)
		b.nodes[name] = b.quota.AddCohort(name)
		if c := b.m.cohorts[name]; c != nil {
			b.limit(b.nodes[name], c.limits)
		}
	}
	for name, parent := range b.parents {
		b.quota.SetParent(b.nodes[name], b.nodes[parent])
	}
	for cohort, queues := range b.queues {
		slices.SortFunc(queues, func(a, b *clusterQueue) int { return strings.Compare(a.name, b.name) })
		for _, q := range queues {
			node := b.quota.AddClusterQueue(q.name)
			b.leaves[q] = node
			b.limit(node, q.limits)
			b.quota.SetParent(node, b.nodes[cohort])
		}
	}
	for q, node := range b.leaves {
		var usage quota.Usage
		for _, l := range b.m.limitsOf(q) {
			usage.Add(b.quota.Index.ID(l.FlavorResource), q.usageOf(l.FlavorResource).reserved)
		}
		node.Charge(usage)
	}
}

func (b *treeBuilder) imply(name string) {
	if _, isKnown := b.parents[name]; !isKnown {
		b.parents[name] = ""
	}
}

// cutCycles makes each Cohort that is above itself a root.
func (b *treeBuilder) cutCycles() {
	for _, name := range slices.Sorted(maps.Keys(b.parents)) {
		seen := map[string]bool{name: true}
		for up := b.parents[name]; up != ""; up = b.parents[up] {
			if up == name {
				b.cyclic[name] = true
			}
			if seen[up] {
				break
			}
			seen[up] = true
		}
	}
	for name := range b.cyclic {
		b.parents[name] = ""
	}
}

func (b *treeBuilder) limit(node *quota.Node, limits []flavorLimit) {
	quotas := map[quota.ID]quota.Quota{}
	for _, l := range limits {
		quotas[b.quota.Index.ID(l.FlavorResource)] = l.Quota
	}
	b.quota.SetQuotas(node, quotas)
}

// rows appends the rows of the children of a Cohort, and returns their sum.
func (b *treeBuilder) rows(cohort string, path []string) *sum {
	total := newSum()
	for _, name := range b.children[cohort] {
		row := &QueueRow{Kind: KindCohort, Name: name, Path: path}
		b.tree.rows = append(b.tree.rows, row)
		below := b.rows(name, append(slices.Clone(path), name))
		b.fillCohort(row, below)
		total.add(below)
	}
	for _, q := range b.queues[cohort] {
		row := b.clusterQueueRow(q, path)
		b.tree.rows = append(b.tree.rows, row)
		b.tree.byName[q.name] = row
		total.addQueue(q, row)
	}
	return total
}

// A sum adds up ClusterQueues and the quotas of Cohorts.
type sum struct {
	queues                       int
	pending, reserving, admitted int32
	amounts                      map[quota.FlavorResource]*Bar
}

func newSum() *sum { return &sum{amounts: map[quota.FlavorResource]*Bar{}} }

func (s *sum) bar(fr quota.FlavorResource) *Bar {
	bar := s.amounts[fr]
	if bar == nil {
		bar = &Bar{Flavor: string(fr.Flavor), Resource: fr.Resource, Idle: new(float64)}
		s.amounts[fr] = bar
	}
	return bar
}

func (s *sum) addBar(b *Bar) {
	bar := s.bar(flavorResource(b))
	bar.Nominal += b.Nominal
	bar.Used += b.Used
	bar.Reserved += b.Reserved
	*bar.Idle += ptr.Deref(b.Idle, 0)
	bar.Borrowed += b.Borrowed
	bar.Unlisted += b.Unlisted
	bar.Free = max(bar.Free, b.Free)
}

func (s *sum) addQueue(q *clusterQueue, row *QueueRow) {
	s.queues++
	s.pending, s.reserving, s.admitted = s.pending+q.waiting, s.reserving+q.reserving, s.admitted+q.admitted
	for i := range row.Bars {
		s.addBar(&row.Bars[i])
	}
}

func (s *sum) add(other *sum) {
	s.queues += other.queues
	s.pending, s.reserving, s.admitted = s.pending+other.pending, s.reserving+other.reserving, s.admitted+other.admitted
	for _, bar := range other.amounts {
		s.addBar(bar)
	}
}

// fillCohort completes the row of a Cohort with the sum of all that is below it, to which it adds its own quota.
func (b *treeBuilder) fillCohort(row *QueueRow, below *sum) {
	if b.cyclic[row.Name] {
		row.Reason, row.Message = "Cycle", "spec.parentName leads back to this Cohort; correct it in one of the Cohorts of the cycle"
	}
	if c := b.m.cohorts[row.Name]; c != nil {
		for _, l := range c.limits {
			below.bar(l.FlavorResource).Nominal += units(l.Resource, l.Nominal)
		}
		row.setShare(c.share, c.weight)
	}
	row.ClusterQueues, row.Pending, row.Reserving, row.Admitted = below.queues, below.pending, below.reserving, below.admitted
	row.Bars = []Bar{}
	for _, fr := range slices.SortedFunc(maps.Keys(below.amounts), quota.FlavorResource.Compare) {
		bar := *below.amounts[fr]
		if bar.Idle = new(*bar.Idle); b.m.isPartial {
			bar.Idle = nil
		}
		row.Bars = append(row.Bars, bar)
	}
}

func (r *QueueRow) setShare(share *int64, weight float64) {
	if r.Share = share; share != nil {
		r.Weight = &weight
	}
}

func (b *treeBuilder) clusterQueueRow(q *clusterQueue, path []string) *QueueRow {
	row := &QueueRow{
		Kind: KindClusterQueue, Name: q.name, Path: path, Pending: q.waiting, Reserving: q.reserving, Admitted: q.admitted, Bars: []Bar{},
	}
	row.setShare(q.share, q.weight)
	if q.inactive != nil {
		row.Reason, row.Message = q.inactive.Reason, q.inactive.Message
	}
	for _, l := range b.m.limitsOf(q) {
		row.Bars = append(row.Bars, b.bar(q, l))
	}
	return row
}

func (b *treeBuilder) bar(q *clusterQueue, l flavorLimit) Bar {
	fr := l.FlavorResource
	u := q.usageOf(fr)
	free := max(0, b.leaves[q].Available(b.quota.Index.ID(fr)))
	in := func(a quota.Amount) float64 { return units(fr.Resource, a) }
	bar := Bar{
		Flavor: string(fr.Flavor), Resource: fr.Resource, Nominal: in(l.Nominal), Used: in(u.reserved), Reserved: in(max(0, u.reserved.Minus(u.admitted))),
		Idle: new(in(min(q.charges[Starting][fr], u.reserved))),
	}
	if l.IsUnlisted {
		bar.Unlisted = bar.Used // and none is free: the engine charges no more of it
	} else {
		bar.Borrowed = in(max(0, u.reserved.Minus(l.Nominal)))
	}
	if !l.IsUnlisted && q.inactive == nil {
		bar.Free = in(free)
	}
	if b.m.isPartial {
		bar.Idle = nil
	}
	if q.cohort != "" {
		bar.Lent = in(max(0, l.Nominal.Minus(u.reserved).Minus(free)))
	}
	if l.BorrowingLimit != quota.MaxAmount {
		bar.BorrowingLimit = new(in(l.BorrowingLimit))
	}
	if l.LendingLimit != quota.MaxAmount {
		bar.LendingLimit = new(in(l.LendingLimit))
	}
	return bar
}

func flavorResource(b *Bar) quota.FlavorResource {
	return quota.FlavorResource{Flavor: kueue.ResourceFlavorReference(b.Flavor), Resource: b.Resource}
}
