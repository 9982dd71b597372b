package fairshare_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tranche-dev/tranche/admission/fairshare"
	"github.com/tranche-dev/tranche/admission/quota"
)

// forest draws Cohorts, of which the later ones are below earlier ones or roots, and ClusterQueues at random places.
func forest(t *rapid.T) (tree *quota.Tree, nodes, queues []*quota.Node) {
	tree = quota.NewTree()
	for _, fr := range names {
		tree.Index.ID(fr)
	}
	cohorts := rapid.IntRange(1, 4).Draw(t, "cohorts")
	for i := range cohorts + rapid.IntRange(1, 6).Draw(t, "queues") {
		var n *quota.Node
		if i < cohorts {
			n = tree.AddCohort(fmt.Sprint(i))
		} else {
			n = tree.AddClusterQueue(fmt.Sprint(i))
			queues = append(queues, n)
		}
		if p := rapid.IntRange(-1, 2*min(i, cohorts)-1).Draw(t, "parent") / 2; i > 0 && p >= 0 {
			tree.SetParent(n, nodes[p])
		}
		n.Weight = rapid.SampledFrom([]float64{1, 0, 0.5, 3}).Draw(t, "weight")
		tree.SetQuotas(n, quotas(t))
		nodes = append(nodes, n)
	}
	return tree, nodes, queues
}

func quotas(t *rapid.T) map[quota.ID]quota.Quota {
	limit := rapid.SampledFrom([]quota.Amount{unlimited, 0, 2})
	qs := map[quota.ID]quota.Quota{}
	for id := range quota.ID(len(names)) {
		qs[id] = quota.Quota{
			Nominal:        quota.Amount(rapid.IntRange(0, 6).Draw(t, "nominal")),
			BorrowingLimit: limit.Draw(t, "borrowing"), LendingLimit: limit.Draw(t, "lending"),
		}
	}
	return qs
}

func usage(t *rapid.T) quota.Usage {
	var u quota.Usage
	for id := range quota.ID(len(names)) {
		u.Add(id, quota.Amount(rapid.IntRange(0, 4).Draw(t, "amount")))
	}
	return u
}

// tournament recomputes which ClusterQueue below a node is first, only from the tree and the heads.
func tournament(tree *quota.Tree, heads map[*quota.Node]fairshare.Head, n *quota.Node) *quota.Node {
	if _, ok := heads[n]; ok {
		return n
	}
	var best *quota.Node
	var bestBorrows int
	var bestShare fairshare.Share
	for _, child := range n.Children() {
		winner := tournament(tree, heads, child)
		if winner == nil {
			continue
		}
		head := heads[winner]
		var share fairshare.Share
		borrows := 0
		tree.WhatIf(func() bool {
			winner.Charge(head.Usage)
			share = fairshare.NewMeter(tree).Share(child, nil)
			for _, c := range head.Usage {
				if child.Used(c.ID) > child.Subtree(c.ID) {
					borrows = 1
				}
			}
			return true
		})
		if best == nil || cmp.Or(borrows-bestBorrows, share.Compare(bestShare), cmp.Compare(heads[best].Priority, head.Priority),
			head.Since.Compare(heads[best].Since), cmp.Compare(head.UID, heads[best].UID)) < 0 {
			best, bestBorrows, bestShare = winner, borrows, share
		}
	}
	return best
}

// TestContestAgainstTournament enters, leaves, charges and changes quotas, weights and parents at random.
func TestContestAgainstTournament(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, nodes, queues := forest(t)
		contest := fairshare.NewTournament(fairshare.NewMeter(tree))
		heads, charged := map[*quota.Node]fairshare.Head{}, map[*quota.Node]quota.Usage{}
		var uid int
		enter := func(q *quota.Node) {
			uid++
			heads[q] = fairshare.Head{
				UID: types.UID(fmt.Sprintf("%03d", uid*7919%1000)), Priority: int64(rapid.IntRange(0, 1).Draw(t, "priority")),
				Since: time.Unix(int64(rapid.IntRange(0, 1).Draw(t, "since")), 0), Usage: usage(t),
			}
			contest.Enter(q, heads[q])
		}
		for _, q := range queues {
			enter(q)
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			q := rapid.SampledFrom(queues).Draw(t, "queue")
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0:
				contest.Leave(q)
				delete(heads, q)
			case 1:
				q.Release(charged[q])
				delete(charged, q)
				contest.Charged(q)
			case 2, 3:
				u, more := charged[q].Clone(), usage(t)
				u.AddAll(more)
				charged[q] = u
				q.Charge(more)
				contest.Charged(q)
			case 4:
				n := rapid.SampledFrom(nodes).Draw(t, "changed")
				n.Weight = rapid.SampledFrom([]float64{1, 0, 2}).Draw(t, "weight")
				contest.Charged(n)
			case 5:
				tree.SetQuotas(rapid.SampledFrom(nodes).Draw(t, "changed"), quotas(t))
			case 6:
				tree.SetParent(q, nodes[0])
			default:
				enter(q)
			}
			for _, root := range nodes {
				if root.Parent() != nil {
					continue
				}
				got, ok := contest.First(root)
				if want := tournament(tree, heads, root); got != want || ok != (want != nil) {
					t.Fatalf("first below %s is %v, the tournament says %v", root.Name, got, want)
				}
			}
		}
	})
}

// TestContestOrder: four equal ClusterQueues, of which b already borrows the resource that c asks for, and d another one.
func TestContestOrder(t *testing.T) {
	tree := quota.NewTree()
	gpu, cpu := tree.Index.ID(names[0]), tree.Index.ID(names[2])
	root := tree.AddCohort("root")
	queues := map[string]*quota.Node{}
	for _, name := range []string{"a", "b", "c", "d"} {
		q := tree.AddClusterQueue(name)
		tree.SetParent(q, root)
		tree.SetQuotas(q, map[quota.ID]quota.Quota{
			gpu: {Nominal: 4, BorrowingLimit: unlimited, LendingLimit: unlimited},
			cpu: {Nominal: 4, BorrowingLimit: unlimited, LendingLimit: unlimited},
		})
		queues[name] = q
	}
	queues["b"].Charge(quota.Usage{{ID: gpu, Amount: 5}})
	queues["c"].Charge(quota.Usage{{ID: gpu, Amount: 4}})
	queues["d"].Charge(quota.Usage{{ID: cpu, Amount: 8}})
	tournament := fairshare.NewTournament(fairshare.NewMeter(tree))
	for name, q := range queues {
		tournament.Enter(q, fairshare.Head{UID: types.UID(name), Usage: quota.Usage{{ID: gpu, Amount: 1}}})
	}
	// a and d borrow no gpu, but d has the higher share; c has a lower share than b.
	var got []string
	for {
		q, ok := tournament.First(root)
		if !ok {
			break
		}
		got = append(got, q.Name)
		tournament.Leave(q)
	}
	if want := "[a d c b]"; fmt.Sprint(got) != want {
		t.Errorf("order %v, want %s", got, want)
	}
}

func TestContestOfOneClusterQueue(t *testing.T) {
	tree := quota.NewTree()
	q := tree.AddClusterQueue("q")
	tournament := fairshare.NewTournament(fairshare.NewMeter(tree))
	if _, ok := tournament.First(q); ok {
		t.Error("a first without a head")
	}
	tournament.Enter(q, fairshare.Head{UID: "u"})
	if got, ok := tournament.First(q); !ok || got != q {
		t.Errorf("first is %v", got)
	}
}
