package quota_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/admission/quota"
)

// FuzzOf feeds any text that the API server accepts as a quantity.
func FuzzOf(f *testing.F) {
	for _, text := range []string{"0", "1", "-1", "1500m", "1n", "8E", "9223372036854775807", "9223372036854775808", "72057594037927936", "72057594037927937", "1e30", "-8E", "0.1", "12Ki"} {
		f.Add("cpu", text)
		f.Add("memory", text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		q, err := resource.ParseQuantity(text)
		if err != nil || len(text) > 64 {
			return
		}
		r := corev1.ResourceName(name)
		amount, ok := quota.Of(r, q)
		back := amount.Quantity(r)
		switch {
		case amount < 0:
			t.Fatalf("%s of %s is %d", text, name, amount)
		case ok && amount > quota.MaxCharge:
			t.Fatalf("%s of %s is %d, more than may be charged", text, name, amount)
		case ok && back.Cmp(q) < 0:
			t.Fatalf("%s of %s became less: %s", text, name, back.String())
		case !ok && q.Sign() >= 0 && amount != quota.MaxAmount, !ok && q.Sign() < 0 && amount != 0:
			t.Fatalf("%s of %s is %d, and not exact", text, name, amount)
		}
		if again, exact := quota.Of(r, back); ok && (!exact || again != amount) {
			t.Fatalf("%s of %s is %d, and its quantity %s is %d", text, name, amount, back.String(), again)
		}
		_ = amount.Format(r)
	})
}

// FuzzTree decodes a forest and its charges from bytes: limits up to the largest amounts, Cohorts at any height, charges over quota.
func FuzzTree(f *testing.F) {
	f.Add([]byte{3, 2, 0, 7, 255, 255, 1, 7, 1, 255, 2, 255, 255, 255, 1, 9, 0, 3, 1, 255, 0, 2})
	f.Add([]byte{1, 1, 255, 255, 0, 0, 255, 255, 0, 255, 0, 255, 0, 254})
	f.Fuzz(func(t *testing.T, data []byte) {
		in := &reader{data}
		tree := quota.NewTree()
		id := tree.Index.ID(quota.FlavorResource{Flavor: "a", Resource: "gpu"})
		nodes, queues := in.forest(tree, id)
		charged := make([]quota.Amount, len(queues))
		for len(in.data) > 1 {
			i := int(in.next()) % len(queues)
			if a := min(in.amount(), quota.MaxCharge); a%2 == 0 && charged[i] <= quota.MaxCharge {
				queues[i].Charge(quota.Usage{{ID: id, Amount: a}})
				charged[i] += a
			} else {
				a = min(a, charged[i])
				queues[i].Release(quota.Usage{{ID: id, Amount: a}})
				charged[i] -= a
			}
			checkNodes(t, nodes, queues, charged)
		}
		for i, q := range queues {
			q.Release(quota.Usage{{ID: id, Amount: charged[i]}})
		}
		for _, n := range nodes {
			if n.Used(id) != 0 {
				t.Fatalf("%s uses %d when all has been released", n.Name, n.Used(id))
			}
		}
	})
}

// checkNodes: usage equals the charges, and no node has more available than all quota.
func checkNodes(t *testing.T, nodes, queues []*quota.Node, charged []quota.Amount) {
	t.Helper()
	for _, n := range nodes {
		if n.Used(0) < 0 || n.Subtree(0) < 0 || n.Capacity(0) < 0 {
			t.Fatalf("%s uses %d of %d, at most %d", n.Name, n.Used(0), n.Subtree(0), n.Capacity(0))
		}
	}
	for i, q := range queues {
		if q.Used(0) != charged[i] {
			t.Fatalf("%s uses %d, charged %d", q.Name, q.Used(0), charged[i])
		}
		if free, most := q.Available(0), q.Capacity(0); free > most {
			t.Fatalf("%d available to %s, at most %d", free, q.Name, most)
		}
		if level := q.Level(0, 1); level < 0 || level > q.Root().Height() {
			t.Fatalf("%s borrows from level %d", q.Name, level)
		}
	}
}

// A reader returns bytes as long as there are any, then zeros.
type reader struct{ data []byte }

func (r *reader) next() byte {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

// amount is small, about as much as may be charged, or no limit.
func (r *reader) amount() quota.Amount {
	switch b := r.next(); {
	case b == 255:
		return quota.MaxAmount
	case b >= 250:
		return quota.MaxCharge - quota.Amount(255-b)
	default:
		return quota.Amount(b)
	}
}

func (r *reader) forest(tree *quota.Tree, id quota.ID) (nodes, queues []*quota.Node) {
	var cohorts []*quota.Node
	for range r.next() % 4 {
		cohorts = append(cohorts, tree.AddCohort("cohort"))
	}
	for range r.next()%4 + 1 {
		queues = append(queues, tree.AddClusterQueue("queue"))
	}
	nodes = append(append(nodes, cohorts...), queues...)
	for i, n := range nodes {
		// A parent comes before its children, so that there are no cycles.
		if parent := int(r.next()) % 5; parent < min(i, len(cohorts)) {
			tree.SetParent(n, cohorts[parent])
		}
		tree.SetQuotas(n, map[quota.ID]quota.Quota{id: {Nominal: r.amount(), BorrowingLimit: r.amount(), LendingLimit: r.amount()}})
	}
	return nodes, queues
}
